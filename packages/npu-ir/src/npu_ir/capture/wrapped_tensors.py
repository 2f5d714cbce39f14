"""Parameters of tensor subclasses that wrap plain tensors, such as quantized weights: the graph has the plain ones.

torch.export keeps such a parameter whole and reads the tensors in it by name. In a graph each of them is a
parameter of its own: ``l.weight`` with the tensors ``q`` and ``scale`` becomes ``l.weight.q`` and
``l.weight.scale``. Weights are taken apart in the same way when they are bound.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch.fx import Node

from npu_ir import _torch
from npu_ir.capture.provenance import place
from npu_ir.errors import ConversionError
from npu_ir.node import Value

READS_PART = "export.access_subclass_inner_tensor.default"


@dataclass(eq=False)
class WrappedTensor:
    """Stands for a parameter or buffer that wraps others, until a part of it is read.

    Attributes:
        target: Its ``state_dict`` key, and the names that lead to the part.
        add: Adds a plain tensor to the graph: given its key and metadata.
    """

    target: str
    add: Callable[[str, Any], Value]
    _parts: dict[str, Value | WrappedTensor] = field(default_factory=dict)

    def part(self, name: str, tensor: Any) -> Value | WrappedTensor:
        """Return the tensor ``name`` in it, whose metadata is ``tensor``: added to the graph at the first time."""
        if name not in self._parts:
            target = f"{self.target}.{name}"
            is_wrapped = _torch.is_wrapper(tensor)
            self._parts[name] = WrappedTensor(target, self.add) if is_wrapped else self.add(target, tensor)
        return self._parts[name]


def part_of_wrapped(node: Node, wrapped: Any) -> Value | WrappedTensor:
    """Return what stands for an FX node that reads one of the tensors in a parameter."""
    assert isinstance(wrapped, WrappedTensor), f"{node} reads a part of {wrapped!r}"
    return wrapped.part(str(node.args[1]), node.meta["val"])


def require_plain(node: Node, arguments: list[Any]) -> None:
    """Refuse an op on a whole parameter of a subclass.

    Raises:
        ConversionError: Names the parameter.
    """
    for argument in arguments:
        if isinstance(argument, WrappedTensor):
            raise ConversionError(
                f"{node.target} works on {argument.target!r} as a whole, which is a tensor subclass",
                where=place(node),
                fix="give the subclass a __torch_dispatch__ that spells the op out in terms of the tensors in it",
            )

"""Parameters of tensor subclasses that wrap plain tensors, such as quantized weights: the graph has the plain ones.

torch.export keeps such a parameter whole and reads the tensors in it by name. In a graph each of them is a
parameter of its own: ``l.weight`` with the tensors ``q`` and ``scale`` becomes ``l.weight.q`` and
``l.weight.scale``. Weights are taken apart in the same way when they are bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from npu_ir import _torch
from npu_ir.capture.provenance import place
from npu_ir.core.node import Value
from npu_ir.errors import ConversionError

READS_PART = "export.access_subclass_inner_tensor.default"


@dataclass(frozen=True, slots=True, eq=False)
class WrappedTensor:
    """Stands for a parameter or buffer that wraps others.

    Attributes:
        target: Its ``state_dict`` key, and the names that lead to it where it is a part itself.
        parts: What stands for the tensors in it, by name.
    """

    target: str
    parts: dict[str, Value | WrappedTensor]


def add_parts(tensor: Any, keys: Sequence[str], add: Callable[[list[str], Any], Value]) -> WrappedTensor:
    """Return what stands for ``tensor``, whose plain tensors ``add`` puts into the graph.

    Args:
        tensor: Metadata of the whole.
        keys: Its ``state_dict`` keys, more than one where it is tied.
        add: Adds a tensor, given its keys and metadata.
    """
    parts: dict[str, Value | WrappedTensor] = {}
    for name, part in _torch.wrapped_parts(tensor).items():
        inner = [f"{key}.{name}" for key in keys]
        parts[name] = add_parts(part, inner, add) if _torch.is_wrapper(part) else add(inner, part)
    return WrappedTensor(keys[0], parts)


def part_of_wrapped(node: Node, wrapped: Any) -> Value | WrappedTensor:
    """Return what stands for an FX node that reads one of the tensors in a parameter."""
    if not isinstance(wrapped, WrappedTensor):
        raise ConversionError(
            f"{node.name} reads a part of a tensor subclass that is no parameter or buffer",
            where=place(node),
            fix="make it a parameter or a persistent buffer",
        )
    return wrapped.parts[str(node.args[1])]


def require_plain(node: Node, arguments: Sequence[Any]) -> None:
    """Refuse an op on a whole parameter of a subclass.

    Raises:
        ConversionError: Names the parameter.
    """
    for argument in arguments:
        if isinstance(argument, WrappedTensor):
            raise ConversionError(
                f"{node.target} works on {argument.target!r} as a whole, which is a tensor subclass",
                where=place(node),
                fix="use it where its __torch_function__ takes it apart: not inside of control flow, nor as a result",
            )

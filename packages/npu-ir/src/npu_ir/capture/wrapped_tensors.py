"""Parameters of wrapper tensor subclasses, such as quantized weights, as the plain tensors in them.

torch.export keeps such a parameter whole and reads its inner tensors by name. In a graph each of them is a
separate parameter: ``l.weight`` with the tensors ``q`` and ``scale`` becomes ``l.weight.q`` and
``l.weight.scale``. Weights are flattened in the same way when they are bound.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from npu_ir._torch.tensors import is_wrapper, wrapped_parts
from npu_ir.capture.provenance import location_of
from npu_ir.core.node import Value
from npu_ir.errors import ConversionError

# The op by which an exported program reads an inner tensor.
READS_PART = "export.access_subclass_inner_tensor.default"


@dataclass(frozen=True, slots=True, eq=False)
class WrappedTensor:
    """The value of a parameter or buffer that wraps other tensors.

    Attributes:
        target: Its ``state_dict`` key, followed by the names that lead to it if it is wrapped itself.
        parts: The values of its inner tensors, by name.
    """

    target: str
    parts: dict[str, Value | WrappedTensor]


def add_parts(tensor: Any, keys: Sequence[str], add: Callable[[list[str], Any], Value]) -> WrappedTensor:
    """Return the value of ``tensor``, whose plain inner tensors ``add`` adds to the graph.

    Args:
        tensor: The FakeTensor of the wrapper.
        keys: Its ``state_dict`` keys, more than one if it is tied.
        add: Adds a plain tensor to the graph, given its keys and FakeTensor.
    """
    parts: dict[str, Value | WrappedTensor] = {}
    for name, part in wrapped_parts(tensor).items():
        inner = [f"{key}.{name}" for key in keys]
        parts[name] = add_parts(part, inner, add) if is_wrapper(part) else add(inner, part)
    return WrappedTensor(keys[0], parts)


def part_of_wrapped(node: Node, wrapped: Any) -> Value | WrappedTensor:
    """Return the value of an FX node that reads an inner tensor of a wrapper."""
    if not isinstance(wrapped, WrappedTensor):
        raise ConversionError(
            f"{node.name} reads a part of a tensor subclass that is not a parameter or buffer",
            where=location_of(node),
            fix="make it a parameter or a persistent buffer",
        )
    return wrapped.parts[str(node.args[1])]


def require_unwrapped(node: Node, arguments: Sequence[Any]) -> None:
    """Refuse an op on a whole wrapper, as opposed to its inner tensors.

    Raises:
        ConversionError: Names the parameter.
    """
    for argument in arguments:
        if isinstance(argument, WrappedTensor):
            raise ConversionError(
                f"{node.target} works on {argument.target!r} as a whole, which is a tensor subclass",
                where=location_of(node),
                fix="use it where its __torch_function__ unwraps it: "
                "not inside of control flow, nor as a result",
            )

"""Activations that oneDNN fuses with the op in front of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npu_ir import OpNode, TensorType, Value
from npu_passes.rewriting.arguments import arguments_of

# By op: the name in oneDNN, and the arguments that are its scalars.
_NAMES: dict[str, tuple[str, tuple[str, ...]]] = {
    "aten.gelu.default": ("gelu", ()),
    "aten.hardswish.default": ("hardswish", ()),
    "aten.hardtanh.default": ("hardtanh", ("min_val", "max_val")),
    "aten.leaky_relu.default": ("leaky_relu", ("negative_slope",)),
    "aten.relu.default": ("relu", ()),
    "aten.sigmoid.default": ("sigmoid", ()),
    "aten.silu.default": ("swish", ()),
    "aten.tanh.default": ("tanh", ()),
}
_RELU6 = "aten.relu6.default"
_RELU = "aten.relu.default"


@dataclass(frozen=True, slots=True)
class Activation:
    """Activation as the arguments ``attr``, ``scalars`` and ``algorithm`` of PyTorch's oneDNN ops."""

    name: str = "none"
    scalars: tuple[float, ...] = ()
    algorithm: str = ""

    @property
    def arguments(self) -> list[Any]:
        return [self.name, list(self.scalars), self.algorithm]


NOTHING = Activation()
RELU = Activation("relu")


def activation_of(node: OpNode | None) -> Activation | None:
    """Return the activation that ``node`` computes; None if oneDNN has no such activation."""
    if node is None:
        return None
    if node.op_type == _RELU6:
        return Activation("hardtanh", (0.0, 6.0))
    if node.op_type not in _NAMES:
        return None
    name, numbers = _NAMES[node.op_type]
    arguments = arguments_of(node, defaults=True)
    if any(isinstance(arguments[number], Value) for number in numbers):
        return None
    return Activation(
        name, tuple(float(arguments[number]) for number in numbers), arguments.get("approximate", "")
    )


def is_relu(node: OpNode | None) -> bool:
    return node is not None and node.op_type == _RELU


def only_reader(value: Value) -> OpNode | None:
    """Return the only reader of ``value``; None if it is used several times, or returned by the graph."""
    return value.users[0] if value.use_count == 1 and value.users else None


def other_summand(node: OpNode | None, value: Value) -> Value | None:
    """Return the tensor that ``node`` adds to ``value``; None if it is not a plain sum of two equal types."""
    if node is None or node.op_type != "aten.add.Tensor":
        return None
    arguments = arguments_of(node, defaults=True)
    parts = [item for item in (arguments["self"], arguments["other"]) if isinstance(item, Value)]
    if len(parts) != 2 or arguments["alpha"] != 1:
        return None
    other = parts[0] if parts[1] is value else parts[1]
    return other if isinstance(other.type, TensorType) and other.type == value.type else None

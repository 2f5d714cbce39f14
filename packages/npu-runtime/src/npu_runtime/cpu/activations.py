"""Activations that oneDNN computes together with what is in front of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from npu_ir import OpNode, TensorType, Value
from npu_passes.rewriting.arguments import arguments_of

# By op: oneDNN's name, and the arguments that are its numbers.
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
    """An activation as the arguments ``attr``, ``scalars`` and ``algorithm`` of PyTorch's oneDNN ops have it."""

    name: str = "none"
    scalars: tuple[float, ...] = ()
    algorithm: str = ""

    @property
    def arguments(self) -> list[Any]:
        return [self.name, list(self.scalars), self.algorithm]


NOTHING = Activation()
RELU = Activation("relu")


def activation_of(node: OpNode | None) -> Activation | None:
    """Return the activation that ``node`` is; None if it is none of oneDNN's."""
    if node is None:
        return None
    if node.op_type == _RELU6:
        return Activation("hardtanh", (0.0, 6.0))
    if node.op_type not in _NAMES:
        return None
    name, numbers = _NAMES[node.op_type]
    given = arguments_of(node, defaults=True)
    if any(isinstance(given[number], Value) for number in numbers):
        return None
    return Activation(name, tuple(float(given[number]) for number in numbers), given.get("approximate", ""))


def is_relu(node: OpNode | None) -> bool:
    return node is not None and node.op_type == _RELU


def only_reader(value: Value) -> OpNode | None:
    """Return the node that alone reads ``value``, and reads it once; None if there are others, or the graph returns it."""
    return value.users[0] if value.use_count == 1 and value.users else None


def other_summand(node: OpNode | None, value: Value) -> Value | None:
    """Return what ``node`` adds to ``value``; None if it adds no other tensor of this very type."""
    if node is None or node.op_type != "aten.add.Tensor":
        return None
    given = arguments_of(node, defaults=True)
    parts = [item for item in (given["self"], given["other"]) if isinstance(item, Value)]
    if len(parts) != 2 or given["alpha"] != 1:
        return None
    other = parts[0] if parts[1] is value else parts[1]
    return other if isinstance(other.type, TensorType) and other.type == value.type else None

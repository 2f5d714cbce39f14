"""Reshapes that split the first axis of an attention into batch and heads, or merge them."""

from __future__ import annotations

from dataclasses import dataclass

from npu_ir import Value
from npu_ir.symbolic.expressions import Dim
from npu_passes.core.edit import Edit

RESHAPES = (
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten.unflatten.int",
    "aten.flatten.using_ints",
)


@dataclass(frozen=True, slots=True)
class Heads:
    """Correspondence of the shapes [N, rows, columns] and [batch, heads, rows, columns].

    Attributes:
        split: The sizes of the two axes, batch and heads.
        merged: N, their product.
    """

    split: tuple[Dim, ...]
    merged: Dim

    def shape(self, shape: tuple[Dim, ...]) -> tuple[Dim, ...]:
        """Return the shape after `split_from` for a tensor of this shape."""
        if len(shape) == 3 and shape[0] == self.merged:
            return (*self.split, *shape[1:])
        return shape

    def split_from(self, edit: Edit, value: Value) -> Value:
        """Return ``value`` with its first axis split if its shape is [N, rows, columns], else ``value``.

        The strides may differ from those of a view.
        """
        shape = self.shape(value.tensor_type.shape)
        if shape == value.tensor_type.shape:
            return value
        node = value.producer
        if node is not None and node.op_type in RESHAPES and node.inputs[0].tensor_type.shape == shape:
            return node.inputs[0]
        sizes = [size if isinstance(size, int) else -1 for size in self.split]
        return edit.call("aten.unflatten.int", value, 0, sizes)

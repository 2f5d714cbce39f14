"""Matched attention subgraph, its heads, and the requirements of ``scaled_dot_product_attention``."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.core.types import dtype_name
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


class NoAttentionError(Exception):
    """Reason why a candidate attention cannot be fused."""


@dataclass(frozen=True, slots=True)
class Fill:
    """Mask that sets scores to a large negative number.

    Attributes:
        condition: Boolean tensor.
        at: Scores are set where ``condition`` has this value.
        number: The value that they are set to.
    """

    condition: Value
    at: bool
    number: float


@dataclass(frozen=True, slots=True)
class Attention:
    """Subgraph that computes ``softmax(scale * query @ key.mT, with masks) @ value``.

    Attributes:
        query: [..., L, E].
        key: [..., S, E], or [..., E, S].
        value: [..., S, Ev].
        is_key_transposed: True if ``key`` is [..., E, S].
        scale: Factor of the inner product.
        masks: Applied to the scaled scores in this order: tensors are added, fills set scores to a number.
        heads: The reshape of the scores; None if there is none.
        nodes: The nodes that compute it, in topological order.
    """

    query: Value
    key: Value
    value: Value
    is_key_transposed: bool
    scale: float
    masks: tuple[Value | Fill, ...]
    heads: Heads | None
    nodes: tuple[OpNode, ...]

    def require_fit(self) -> None:
        """Raise unless one call of ``scaled_dot_product_attention`` computes the same.

        Raises:
            NoAttentionError: It does not; the message is the reason.
        """
        query, key, value = (item.tensor_type for item in (self.query, self.key, self.value))
        described = f"query {query}, key {key}, value {value}"
        shapes = [item.shape for item in (query, key, value)]
        if self.heads is not None:
            shapes = [self.heads.shape(shape) for shape in shapes]
        if {len(shape) for shape in shapes} not in ({3}, {4}):
            raise NoAttentionError(f"it is not of 3 or 4 axes: {described}")
        if len({shape[:-2] for shape in shapes}) > 1:
            raise NoAttentionError(f"its products broadcast: {described}")
        if not (query.dtype == key.dtype == value.dtype and query.dtype.is_floating_point):
            raise NoAttentionError(f"its parts are not floats of one dtype: {described}")
        for mask in self.masks:
            item, wanted = (mask.condition, torch.bool) if isinstance(mask, Fill) else (mask, query.dtype)
            if item.tensor_type.dtype != wanted:
                raise NoAttentionError(f"its mask %{item.name}, {item.type}, is not of {dtype_name(wanted)}")


def require_mask(mask: Value | Fill, scores: Value) -> None:
    """Raise unless a mask broadcasts to the shape of the scores."""
    value = mask.condition if isinstance(mask, Fill) else mask
    shape = scores.tensor_type.shape
    if not isinstance(value.type, TensorType) or not _broadcasts_to(value.type.shape, shape):
        raise NoAttentionError(f"its mask %{value.name}, {value.type}, does not fit scores of {scores.type}")


def _broadcasts_to(shape: tuple[Dim, ...], wanted: tuple[Dim, ...]) -> bool:
    """Return whether a shape broadcasts to another one without enlarging it."""
    pairs = zip(reversed(shape), reversed(wanted), strict=False)
    return len(shape) <= len(wanted) and all(size in (1, other) for size, other in pairs)

"""Matched attention subgraph, its heads, and the requirements of ``scaled_dot_product_attention``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.core.types import dtype_name
from npu_ir.symbolic.expressions import Dim, Expr
from npu_passes.core.edit import Edit
from npu_passes.rewriting.axes import permutation

RESHAPES = (
    "aten.view.default",
    "aten.reshape.default",
    "aten._unsafe_view.default",
    "aten.unflatten.int",
    "aten.flatten.using_ints",
)


@dataclass(frozen=True, slots=True)
class Heads:
    """Correspondence of the shapes [N, rows, columns] and [batch, heads, rows, columns]."""

    split: tuple[Dim, ...]  # the sizes of the two axes, batch and heads
    merged: Dim  # N, their product

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
    """Mask that sets scores to a large negative number."""

    condition: Value  # boolean tensor
    at: bool  # scores are set where ``condition`` has this value
    number: float  # the value that they are set to
    made_by: str = field(compare=False)  # the name of the node

    def number_of(self, dtype: torch.dtype) -> float:
        """Return the number in a dtype that may be narrower, where a finite one stays finite."""
        return max(self.number, torch.finfo(dtype).min) if math.isfinite(self.number) else self.number

    def is_vast_in(self, dtype: torch.dtype) -> bool:
        """Return whether adding a score of ordinary size to the number in this dtype rounds to the number.

        So replacing scores by it and adding it give the same, even in a row that is masked as a whole. The
        least number of ``float16`` is not vast, because scores are summed in ``float32``.
        """
        return self.number_of(dtype) <= _VAST


_VAST = -1e30
_HIDING = -1e9


def hiding_number(dtype: torch.dtype) -> float:
    """Return the largest score that surely gets a weight of 0 beside one of ordinary size."""
    return max(_HIDING, torch.finfo(dtype).min)


@dataclass(frozen=True, slots=True)
class Attention:
    """Subgraph that computes ``softmax(scale * query @ key.mT, with masks) @ value``."""

    query: Value  # [..., L, E]
    key: Value  # [..., S, E], or [..., E, S]
    value: Value  # [..., S, Ev]
    is_key_transposed: bool  # whether ``key`` is [..., E, S]
    scale: float  # factor of the inner product
    # Applied to the scaled scores in this order: tensors are added, fills set scores to a number.
    masks: tuple[Value | Fill, ...]
    heads: Heads | None  # the reshape of the scores; None if there is none
    nodes: tuple[OpNode, ...]  # the nodes that compute it, in topological order

    @property
    def softmax_dtype(self) -> torch.dtype:
        """The dtype that the softmax returns."""
        (dtype,) = {node.outputs[0].tensor_type.dtype for node in self.nodes if node.op_type in SOFTMAXES}
        return dtype

    def require_fit(self) -> None:
        """Raise unless one call of ``scaled_dot_product_attention`` computes the same."""
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
        self._require_exact_sum()

    def _require_exact_sum(self) -> None:
        """Raise if several added masks of half precision would be summed in it, and were not before."""
        added = [mask for mask in self.masks if not isinstance(mask, Fill)]
        dtype = self.query.tensor_type.dtype
        is_cast = any(
            node.op_type == "aten.add.Tensor" and node.outputs[0].tensor_type.dtype != dtype
            for node in self.nodes
        )
        if len(added) > 1 and is_cast and torch.finfo(dtype).bits < 32:
            raise NoAttentionError(f"it adds several masks of {dtype_name(dtype)} to scores of a wider dtype")


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


PRODUCTS = ("aten.matmul.default", "aten.bmm.default")
INNER_PRODUCTS = (*PRODUCTS, "aten.baddbmm.default")
SOFTMAXES = ("aten.softmax.int", "aten._softmax.default")
CASTS = ("aten.to.dtype", "aten._to_copy.default")
FILLS = ("aten.masked_fill.Scalar", "aten.masked_fill.Tensor")
WHERES = ("aten.where.self", "aten.where.ScalarOther", "aten.where.ScalarSelf")
# By op: True if it multiplies by the number, False if it divides.
SCALINGS: Mapping[str, bool] = MappingProxyType(
    {"aten.mul.Tensor": True, "aten.mul.Scalar": True, "aten.div.Tensor": False, "aten.div.Scalar": False}
)
_DEPTH = 8  # of walks along producers: without a limit, `leads_to_product` could be exponential


def transposition_input(key: Value) -> Value | None:
    """Return the input of the transposition of the last two axes that computes ``key``; None if none does."""
    node, rank = key.producer, key.tensor_type.rank
    if node is None or permutation(node) != (*range(rank - 2), rank - 1, rank - 2):
        return None
    return node.inputs[0]


def softmax_of(weights: Value) -> tuple[OpNode | None, list[OpNode]]:
    """Return the softmax behind attention weights, and the nodes between, outermost first.

    Between are dropouts, casts and reshapes only; the softmax is None if there is none.
    """
    passed: list[OpNode] = []
    node = weights.producer
    between = ("aten.dropout.default", *CASTS, *RESHAPES)
    while node is not None and node.op_type in between and len(passed) < _DEPTH:
        passed.append(node)
        node = node.inputs[0].producer
    return (node if node is not None and node.op_type in SOFTMAXES else None), passed


def leads_to_product(value: Any, depth: int = _DEPTH) -> bool:
    """Return whether ``value`` may be scores: an inner product, possibly scaled, masked or reshaped."""
    node = value.producer if isinstance(value, Value) else None
    if node is None or depth == 0:
        return False
    if node.op_type in INNER_PRODUCTS:
        return True
    passable = (*CASTS, *SCALINGS, *WHERES, *RESHAPES, "aten.add.Tensor", *FILLS)
    return node.op_type in passable and any(leads_to_product(item, depth - 1) for item in node.inputs)


def require_plain_cast(node: OpNode, arguments: Mapping[str, Any]) -> None:
    """Raise unless a node only casts to a floating-point dtype."""
    others = [name for name in arguments if name not in ("self", "dtype") and arguments[name]]
    if others or not (arguments["dtype"] or torch.int64).is_floating_point:
        raise NoAttentionError(f"{node.name!r} does more than cast to another dtype of floats")


def require_as_wide(node: OpNode, dtype: torch.dtype) -> None:
    """Raise unless the dtype of a node's result can represent all values of ``dtype``."""
    result_dtype = node.outputs[0].tensor_type.dtype
    if torch.promote_types(dtype, result_dtype) != result_dtype:
        raise NoAttentionError(f"{node.name!r} rounds to {dtype_name(result_dtype)}")


def heads_of(node: OpNode) -> Heads:
    """Return the axes that a reshape splits or merges.

    Raises:
        NoAttentionError: It does something else.
    """
    old, new = node.inputs[0].type, node.outputs[0].type
    if isinstance(old, TensorType) and isinstance(new, TensorType):
        narrow, wide = sorted((old.shape, new.shape), key=len)
        merged = math.prod(wide[:-2])
        if (len(narrow), len(wide)) == (3, 4) and narrow == (merged, *wide[-2:]):
            if all(isinstance(size, Expr) for size in wide[:2]):
                raise NoAttentionError(
                    f"{node.name!r} splits or merges axes that are both of open sizes: {wide[0]}, {wide[1]}"
                )  # a reshape can state only one of them as -1
            return Heads(wide[:2], merged)
    raise NoAttentionError(
        f"{node.name!r} makes {new} of {old} between softmax and product: "
        "it does not just split the first axis in two, or merge the first two"
    )


def trailing_split(root: OpNode, heads: Heads | None) -> Iterator[OpNode]:
    """Yield the reshape that splits the heads of the outermost product, if it is its only reader."""
    result = root.outputs[0]
    if heads is None or result.is_output or len(result.users) != 1:
        return
    (node,) = result.users
    shape = heads.shape(result.tensor_type.shape)
    if node.op_type in RESHAPES and node.outputs[0].tensor_type.shape == shape:
        yield node

"""Classification of the nodes of an attention: casts, scalings, transpositions, reshapes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from types import MappingProxyType
from typing import Any

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.core.types import dtype_name
from npu_ir.symbolic.expressions import Expr
from npu_passes.library.fusion.attention import RESHAPES, Heads, NoAttentionError
from npu_passes.rewriting.axes import permutation

PRODUCTS = ("aten.matmul.default", "aten.bmm.default")
INNER_PRODUCTS = (*PRODUCTS, "aten.baddbmm.default")
SOFTMAXES = ("aten.softmax.int", "aten._softmax.default")
CASTS = ("aten.to.dtype", "aten._to_copy.default")
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
    passable = (*CASTS, *SCALINGS, *WHERES, *RESHAPES, "aten.add.Tensor", "aten.masked_fill.Scalar")
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
        merged = prod(wide[:-2])
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

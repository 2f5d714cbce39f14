"""Floating-point operations of a node, by PyTorch's formulas and our own for packed weights."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode, flop_registry

from npu_ir import OpNode, TensorType
from npu_ir.ops.execution import binding_of
from npu_ir.ops.schema import find_op, schema_of
from npu_passes._torch import OpOverload

# Products with weights packed for oneDNN: PyTorch has no formulas for them.
_PACKED_PRODUCTS = ("mkldnn._linear_pointwise.", "mkldnn._convolution_pointwise.")


class FlopCounter:
    """Counter of the floating-point operations of nodes, with a cache of its results."""

    def __init__(self) -> None:
        self._known: dict[Any, int | None] = {}

    def __call__(self, node: OpNode) -> int | None:
        """Return the number of floating-point operations of a node; a multiply-add counts as two.

        Matrix products, convolutions and attention count; everything else is 0, as in
        `torch.utils.flop_counter`, where the formulas come from. Products with packed weights count as those
        with ordinary weights do; operations fused to them are 0.

        Returns:
            The number; None if sizes are symbolic, or PyTorch cannot run the op without data.
        """
        if not node.inputs or not _may_count(node.op_type):
            return 0  # an op without inputs would allocate its result, of any size
        types = tuple(value.type for value in node.inputs)
        key = node.op_type, types, node.operands, repr(node.attrs)
        if key not in self._known:
            self._known[key] = _count_flops(node)
        return self._known[key]


@functools.cache
def _may_count(op_type: str) -> bool:
    """Return whether an op has a formula or may decompose into ops that do; pointwise ops never do."""
    if op_type.startswith(_PACKED_PRODUCTS):
        return True
    op = find_op(op_type)
    if not isinstance(op, OpOverload) or not (
        op.overloadpacket in flop_registry or schema_of(op).is_composite
    ):
        return False
    is_view = any(item.alias_info is not None for item in op._schema.returns)
    return torch.Tag.pointwise not in op.tags and not is_view


def _count_flops(node: OpNode) -> int | None:
    types = [value.type for value in (*node.inputs, *node.outputs)]
    if any(type.symbols for type in types):
        return None
    op = find_op(node.op_type)
    if op is None:
        return None
    if node.op_type.startswith(_PACKED_PRODUCTS):
        return _count_packed_product(node, op)
    meta = [
        torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device="meta")
        if isinstance(type, TensorType) and type.layout is torch.strided
        else None
        for type in (value.type for value in node.inputs)
    ]
    if None in meta:
        return None
    args, kwargs = binding_of(node, op).arguments(meta, torch.device("meta"))
    try:
        with torch.no_grad(), FlopCounterMode(display=False) as counter:
            op(*args, **kwargs)
    except (RuntimeError, TypeError, ValueError, NotImplementedError):
        return None
    return int(counter.get_total_flops())


def _count_packed_product(node: OpNode, op: Any) -> int:
    """Return the operations of a product with packed weights: two per output element and weight it reads."""
    # The type of a weight packed for oneDNN states its unpacked shape.
    args, kwargs = binding_of(node, op).arguments(list(node.inputs), torch.device("meta"))
    arguments = dict(zip((item.name for item in op._schema.arguments), args, strict=False)) | kwargs
    weights_of_each = math.prod(arguments["W"].tensor_type.static_shape[1:])
    return int(2 * node.outputs[0].tensor_type.numel * weights_of_each)

"""Conversion to the strides that readers of a value were captured with: ``view`` accepts only some."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from npu_ir import TensorType, Value
from npu_ir.core.types import Type, contiguous_strides
from npu_ir.ops.fake_values import LARGE, nearest_value
from npu_ir.symbolic.constraints import Range
from npu_ir.symbolic.expressions import Dim, substitute_symbols
from npu_passes.core.edit import Edit

# Sample values at which symbolic strides are compared: ``min(16, 16*s0)`` is 16 for an ``s0`` of at least 1.
_SIZES = (0, 1, 7, LARGE)


def can_convert_strides(found: Type, wanted: Type, symbols: Mapping[str, Range]) -> bool:
    """Return whether `convert_strides` can convert a value of type ``found`` to the strides of ``wanted``."""
    return has_same_strides(found, wanted, symbols) or _memory_order(wanted, symbols) is not None


def convert_strides(edit: Edit, value: Value, wanted: Type) -> Value:
    """Return ``value`` in the strides of ``wanted``: itself, or a copy where they differ."""
    if has_same_strides(value.type, wanted, edit.graph.symbols):
        return value
    order = _memory_order(wanted, edit.graph.symbols)
    assert order is not None
    if order == sorted(order):
        return edit.call("aten.clone.default", value, memory_format=torch.contiguous_format)
    # A contiguous copy of the permuted value has the wanted memory order; permute it back.
    outermost_first = edit.call("aten.permute.default", value, order)
    copy = edit.call("aten.clone.default", outermost_first, memory_format=torch.contiguous_format)
    back = [order.index(axis) for axis in range(len(order))]
    return edit.call("aten.permute.default", copy, back)


def has_same_strides(left: Type, right: Type, symbols: Mapping[str, Range]) -> bool:
    """Return whether strides are equal in all dimensions of more than one element."""
    if not (isinstance(left, TensorType) and isinstance(right, TensorType)):
        return True
    return all(
        _are_equal_strides(sizes.shape, _strides(sizes), _strides(other))
        for values in _sample_sizes(left.symbols | right.symbols, symbols)
        for sizes, other in [(left.substitute(values), right.substitute(values))]
    )


def _are_equal_strides(shape: Sequence[Dim], strides: Sequence[Dim], others: Sequence[Dim]) -> bool:
    pairs = zip(shape, strides, others, strict=True)
    return 0 in shape or all(size == 1 or stride == other for size, stride, other in pairs)


def _strides(type: TensorType) -> tuple[Dim, ...]:
    return contiguous_strides(type.shape) if type.strides is None else type.strides


def _sample_sizes(names: set[str], symbols: Mapping[str, Range]) -> list[dict[str, Dim]]:
    return [
        {name: nearest_value(symbols[name], size) for name in names} for size in _SIZES[: 4 if names else 1]
    ]


def _memory_order(type: Type, symbols: Mapping[str, Range]) -> list[int] | None:
    """Return the dimensions of a dense tensor, outermost first; None if it has gaps or overlaps."""
    if not isinstance(type, TensorType) or type.layout is not torch.strided:
        return None
    samples = _sample_sizes(type.symbols, symbols)
    strides = [substitute_symbols(stride, samples[-1]) for stride in _strides(type)]
    order = sorted(range(type.rank), key=lambda axis: (strides[axis], type.shape[axis] != 1), reverse=True)
    for fixed in map(type.substitute, samples):
        shape = [fixed.shape[axis] for axis in order]
        if not _are_equal_strides(
            shape, [_strides(fixed)[axis] for axis in order], contiguous_strides(shape)
        ):
            return None
    return order

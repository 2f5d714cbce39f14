"""Result types of the commonest ops by PyTorch's rules, in closed form, which takes no call of PyTorch.

A rule answers where it is sure, for fixed sizes and dense memory; all other calls are left to inference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, TypeGuard

import torch

from npu_ir.core.literals import Literal
from npu_ir.core.types import TensorType, Type, dense_type, memory_format_strides
from npu_ir.ops.schema import find_op, schema_of

_Attrs: TypeAlias = "Mapping[str, Literal]"
_Rule: TypeAlias = "Callable[[list[TensorType], _Attrs], TensorType | None]"

_UNARY = (
    *("abs", "elu", "exp", "gelu", "hardsigmoid", "hardswish", "hardtanh", "log", "neg", "relu", "rsqrt"),
    *("sigmoid", "silu", "sqrt", "tanh"),
)
_BINARY = ("add", "div", "mul", "sub")
_OPERANDS = frozenset({("self",), ("self", "other")})
# Not quantized, and none that PyTorch does not promote, as float8.
_DTYPES = frozenset(
    {
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.complex128),
        *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64),
    }
)


def types_by_rule(
    op_type: str, types: Sequence[Type], operands: Sequence[str] | None, attrs: Mapping[str, Literal]
) -> tuple[Type, ...] | None:
    """Return the types of the results of an op on inputs of static types; None if no rule decides them.

    Args:
        op_type: The op.
        types: Those of the inputs.
        operands: The argument that each input fills; None leaves it to the order.
        attrs: The other arguments.
    """
    rule = _RULES.get(op_type)
    if rule is None or operands is None or tuple(operands) not in _OPERANDS:
        return None
    tensors = [type for type in types if _is_usual(type)]
    if not len(operands) == len(types) == len(tensors) or not _are_accepted(op_type, operands, attrs):
        return None
    found = rule(tensors, attrs)
    return None if found is None else (found,)


def _is_usual(type: Type) -> TypeGuard[TensorType]:
    return isinstance(type, TensorType) and type.layout is torch.strided and type.dtype in _DTYPES


def _are_accepted(op_type: str, operands: Sequence[str], attrs: Mapping[str, Literal]) -> bool:
    """Return whether an op takes arguments of these names; what is wrong with others, inference says."""
    op = find_op(op_type)
    if op is None:
        return False
    schema, names = schema_of(op), {*operands, *attrs}
    is_fitting = schema.required <= names <= schema.by_name.keys()
    return is_fitting and len(names) == len(operands) + len(attrs)


def _pointwise(types: list[TensorType], attrs: _Attrs) -> TensorType | None:
    """Return the type of a function of each element of one tensor of floats."""
    (input,) = types
    are_known = all(item in ("none", "tanh") or _is_number(item) for item in attrs.values())
    is_known = are_known and input.dtype.is_floating_point and _is_in_memory_format(input)
    return input if is_known else None


def _arithmetic(types: list[TensorType], attrs: _Attrs) -> TensorType | None:
    """Return the type of a sum or product of two tensors of floats, or of one and a number."""
    input = types[0]
    if not all(map(_is_number, attrs.values())):
        return None
    if len(types) == 1:
        return _pointwise(types, attrs) if "other" in attrs else None
    other = types[1]
    if not (input.dtype.is_floating_point and other.dtype.is_floating_point):
        return None
    dtype = input.dtype
    if dtype is not other.dtype:
        if bool(input.shape) is not bool(other.shape):
            return None  # a tensor of rank 0 does not decide the dtype
        dtype = torch.promote_types(dtype, other.dtype)
    if input.shape == other.shape and input.strides == other.strides and _is_in_memory_format(input):
        return TensorType(input.shape, dtype, input.strides)
    for image, factors in ((input, other), (other, input)):
        if image.memory_format is torch.channels_last and _is_of_channels(factors, image.shape):
            return TensorType(image.shape, dtype, image.strides)
    if input.strides is not None or other.strides is not None:
        return None
    shape = _broadcast(input.shape, other.shape)
    return None if shape is None else TensorType(shape, dtype)


def _is_of_channels(factors: TensorType, shape: Sequence[Any]) -> bool:
    """Return whether a tensor has one number for each channel of images of this shape."""
    is_fitting = factors.strides is None and factors.rank == 4 and factors.shape[1:] == (shape[1], 1, 1)
    return is_fitting and factors.shape[0] in (1, shape[0])


def _broadcast(left: Sequence[Any], right: Sequence[Any]) -> tuple[Any, ...] | None:
    """Return the shape that two shapes broadcast to; None if they do not."""
    rank = max(len(left), len(right))
    padded = [(1,) * (rank - len(shape)) + tuple(shape) for shape in (left, right)]
    pairs = list(zip(*padded, strict=True))
    if any(one != other and 1 not in (one, other) for one, other in pairs):
        return None
    return tuple([other if one == 1 else one for one, other in pairs])


def _permute(types: list[TensorType], attrs: _Attrs) -> TensorType | None:
    (input,), order = types, attrs.get("dims")
    rank = input.rank
    if not _are_integers(order) or not all(-rank <= axis < rank for axis in order):
        return None
    if sorted(axis % rank for axis in order) != list(range(rank)):
        return None
    strides = input.static_strides
    shape = tuple([input.static_shape[axis] for axis in order])
    return dense_type(shape, input.dtype, [strides[axis] for axis in order])


def _reshape(types: list[TensorType], attrs: _Attrs) -> TensorType | None:
    return _in_shape(types, attrs.get("shape"), copies=True)


def _view(types: list[TensorType], attrs: _Attrs) -> TensorType | None:
    return _in_shape(types, attrs.get("size"), copies=False)


def _in_shape(types: list[TensorType], wanted: Any, *, copies: bool) -> TensorType | None:
    """Return the type of the elements in another shape: a view, or a contiguous copy if there is none."""
    input, count = types[0], math.prod(types[0].static_shape)
    if not _are_integers(wanted) or not count:
        return None
    shape = list(wanted)
    if shape.count(-1) == 1:
        known = -math.prod(shape)
        if known <= 0 or count % known:
            return None
        shape[shape.index(-1)] = count // known
    if min(shape, default=1) < 0 or math.prod(shape) != count:
        return None
    if input.strides is None:
        return TensorType(tuple(shape), input.dtype)
    strides = _strides_of_view(input.static_shape, input.static_strides, shape)
    if strides is None:
        return TensorType(tuple(shape), input.dtype) if copies else None
    return dense_type(tuple(shape), input.dtype, strides)


def _strides_of_view(
    shape: Sequence[int], strides: Sequence[int], wanted: Sequence[int]
) -> tuple[int, ...] | None:
    """Return the strides of a view in another shape; None if only a copy has it.

    Source: `computeStride` of ATen (TensorUtils.cpp): axes in one piece of memory are divided.
    """
    result = [0] * len(wanted)
    place = len(wanted) - 1
    base, count, viewed = strides[-1], 1, 1
    for axis in range(len(shape) - 1, -1, -1):
        count *= shape[axis]
        if axis and (shape[axis - 1] == 1 or strides[axis - 1] == count * base):
            continue
        while place >= 0 and (viewed < count or wanted[place] == 1):
            result[place] = viewed * base
            viewed *= wanted[place]
            place -= 1
        if viewed != count:
            return None
        base, count, viewed = strides[axis - 1], 1, 1
    return tuple(result) if place < 0 else None


def _clone(types: list[TensorType], attrs: _Attrs) -> TensorType | None:
    (input,), wanted = types, attrs.get("memory_format", torch.preserve_format)
    if wanted is torch.preserve_format:
        return input if _is_in_memory_format(input) else None
    if wanted is torch.channels_last and input.rank == 4:
        strides = memory_format_strides(input.shape, wanted)
        return dense_type(input.static_shape, input.dtype, strides)
    return TensorType(input.shape, input.dtype) if wanted is torch.contiguous_format else None


def _to_dtype(types: list[TensorType], attrs: _Attrs) -> TensorType | None:
    (input,), dtype = types, attrs.get("dtype")
    if len(attrs) > 1 or dtype not in _DTYPES or not _is_in_memory_format(input):
        return None
    return TensorType(input.shape, dtype, input.strides)


def _is_in_memory_format(type: TensorType) -> bool:
    """Return whether results of pointwise functions have the strides of such a tensor."""
    return type.strides is None or type.memory_format is torch.channels_last


def _is_number(item: Any) -> bool:
    """Return whether an argument is a number that PyTorch takes for a real one."""
    return item.__class__ is float or (item.__class__ is int and -(2**63) <= item < 2**63)


def _are_integers(sizes: Any) -> TypeGuard[list[int]]:
    return sizes.__class__ is list and all(size.__class__ is int for size in sizes)


_RULES: Mapping[str, _Rule] = {
    **{f"aten.{name}.default": _pointwise for name in _UNARY},
    **{f"aten.{name}.Tensor": _arithmetic for name in _BINARY},
    "aten.permute.default": _permute,
    "aten.reshape.default": _reshape,
    "aten.view.default": _view,
    "aten.clone.default": _clone,
    "aten.to.dtype": _to_dtype,
}

"""The JSON form of types: ``["f32", [8, 64]]``, with strides ``["f32", [8, 64], [1, 8]]``, or ``"int"``."""

from __future__ import annotations

from typing import Any

from npu_ir.serial.place import UPGRADE, Place, read_items, shown
from npu_ir.types import SCALAR_KINDS, ScalarType, TensorType, Type, dtype_name, is_dtype_name, parse_dtype

_MAX_DIM = 1 << 63


def type_to_json(type: Type) -> Any:
    """Return the JSON form of ``type``."""
    if isinstance(type, ScalarType):
        return type.kind
    strides = [] if type.strides is None else [list(type.strides)]
    return [dtype_name(type.dtype), list(type.shape), *strides]


def read_type(data: Any, place: Place, *steps: str | int) -> Type:
    """Return the type whose JSON form is ``data``."""
    if type(data) is str:
        if data not in SCALAR_KINDS:
            raise place.at(*steps).error(
                f"{shown(data)} is no type: expected one of {', '.join(SCALAR_KINDS)} or a list"
            )
        return ScalarType(data)  # type: ignore[arg-type]
    return read_tensor_type(data, place, *steps)


def read_tensor_type(data: Any, place: Place, *steps: str | int) -> TensorType:
    """Return the tensor type whose JSON form is ``data``."""
    if type(data) is not list or len(data) not in (2, 3):
        raise place.at(*steps).error(
            f"expected [dtype, shape] or [dtype, shape, strides], found {shown(data)}"
        )
    if type(data[0]) is not str or not is_dtype_name(data[0]):
        raise place.at(*steps, 0).error(
            f"this PyTorch has no dtype {shown(data[0])}",
            "use the PyTorch the file was made with, or a newer one",
        )
    shape = read_sizes(data[1], place, *steps, 1)
    strides = read_sizes(data[2], place, *steps, 2) if len(data) == 3 else None
    if strides is not None and len(strides) != len(shape):
        raise place.at(*steps).error(f"{len(strides)} strides for {len(shape)} dimensions")
    return TensorType(shape, parse_dtype(data[0]), strides)


def read_sizes(data: Any, place: Place, *steps: str | int) -> tuple[int, ...]:
    """Return sizes or strides: integers from 0 to 2**63 - 1."""
    for index, size in enumerate(read_items(data, place, *steps)):
        if isinstance(size, (str, dict, list)):
            raise place.at(*steps, index).error(
                f"{shown(size)} is no fixed size: dimensions that are symbols are not supported", UPGRADE
            )
        if type(size) is not int or not 0 <= size < _MAX_DIM:
            raise place.at(*steps, index).error(
                f"{shown(size)} is no size: expected an integer from 0 to 2**63 - 1"
            )
    return tuple(data)

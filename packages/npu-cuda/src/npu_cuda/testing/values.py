"""Values of tensors: conversion of stored elements (floats as float64), and the inputs of cases."""

from __future__ import annotations

from functools import lru_cache
from itertools import product
from math import prod
from typing import Any
from zlib import crc32

import numpy as np

from npu_cuda.testing.case import Array, Case, Domain, TensorLayout

FLOATS = ("float32", "float16", "bfloat16")
TINY = {"float32": 2.0**-149, "float16": 2.0**-24, "bfloat16": 2.0**-133}
HUGE = {"float32": 3.4028234663852886e38, "float16": 65504.0, "bfloat16": 3.3895313892515355e38}


@lru_cache
def storage_of(dtype: str) -> np.dtype[Any]:
    """Return the NumPy dtype of the bytes; bfloat16, which NumPy lacks, is stored as uint16."""
    return np.dtype("uint16" if dtype == "bfloat16" else dtype)


def decode(stored: Array, dtype: str) -> Array:
    """Return the values of stored elements."""
    if dtype == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    return stored.astype(np.float64) if dtype in FLOATS else stored


def encode(values: Array, dtype: str) -> Array:
    """Return values as stored: rounded to float32, then to the dtype, to nearest, ties to even."""
    if dtype not in FLOATS:
        return np.asarray(values).astype(storage_of(dtype))
    with np.errstate(over="ignore", invalid="ignore"):
        singles = np.asarray(values).astype(np.float32)
        if dtype != "bfloat16":
            return singles.astype(storage_of(dtype))
    bits = np.atleast_1d(singles).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    quiet = (bits >> 16) | 0x40
    stored = np.where(np.isnan(np.atleast_1d(singles)), quiet, rounded).astype(np.uint16)
    return stored.reshape(singles.shape)


def special_values(dtype: str) -> list[float]:
    """Return values of this dtype that arithmetic often gets wrong."""
    tiny, huge = TINY[dtype], HUGE[dtype]
    of_both_signs = (float("nan"), float("inf"), 0.0, tiny, huge, 1.0)
    return [*of_both_signs, *(-value for value in of_both_signs), 5 * tiny, 1.5]


def special_count(arity: int) -> int:
    """Return the number of combinations of special values for this number of inputs."""
    return int(len(special_values("float32")) ** arity)


@lru_cache(maxsize=1)  # a case is called in many ways
def inputs_of(case: Case) -> list[Array]:
    """Return the values of each input, representable in the dtype of its layout."""
    if case.special:
        combinations = np.array(list(product(special_values(case.inputs[0].dtype), repeat=len(case.inputs))))
        return [np.resize(combinations[:, i], layout.shape) for i, layout in enumerate(case.inputs)]
    random = np.random.default_rng(crc32(case.name.encode()))
    values = [
        _broadcast_shared(_in_domain(_values(layout, random), case.domain, layout.dtype), layout)
        for layout in case.inputs
    ]
    if case.domain == "one NaN":
        values[0] = values[0].copy()
        values[0].flat[values[0].size // 2] = np.nan
    for place, size in case.indices.items():
        values[place] = values[place] % size
    return [np.full_like(v, np.nan) if i in case.unread else v for i, v in enumerate(values)]


def _in_domain(values: Array, domain: Domain, dtype: str) -> Array:
    """Return values moved into a domain; positive integers stay small, so that powers of them fit."""
    if domain == "any" or values.dtype.kind == "b":
        return values
    if domain == "not zero":
        return np.where(values == 0, np.ones_like(values) * 3, values)
    if values.dtype.kind != "f":
        return values % 5 + 1
    return decode(encode(np.abs(values) + 0.125, dtype), dtype)


def _broadcast_shared(values: Array, layout: TensorLayout) -> Array:
    """Return values that are equal along axes of stride 0, whose elements share memory."""
    first = tuple(slice(0, 1) if stride == 0 else slice(None) for stride in layout.strides or ())
    return np.broadcast_to(values[first], layout.shape)


def _values(layout: TensorLayout, random: np.random.Generator) -> Array:
    if layout.dtype in FLOATS:
        values = random.standard_normal(layout.shape)
        return decode(encode(values, layout.dtype), layout.dtype)
    storage = storage_of(layout.dtype)
    if storage.kind == "b":
        return random.integers(0, 2, layout.shape).astype(storage)
    if storage.kind == "f":
        return random.standard_normal(layout.shape).astype(storage)
    if storage.kind == "c":
        return (random.standard_normal(layout.shape) + 1j * random.standard_normal(layout.shape)).astype(
            storage
        )
    items = random.integers(0, 256, prod(layout.shape) * storage.itemsize, np.uint8)
    return items.view(storage).reshape(layout.shape)

"""Conversion between stored elements and NumPy values: floats as float64, others unchanged."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

FLOATS = ("float32", "float16", "bfloat16")


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

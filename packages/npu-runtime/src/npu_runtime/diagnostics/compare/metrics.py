"""Metrics of the difference of two values: absolute, relative, in ULPs, and signal to noise."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir.core.tensor_bytes import equal_elements

# Integers of the same width as floats: IEEE 754 bits are a sign and a magnitude that grows with the number.
_INTEGER_OF_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True)
class Difference:
    """The difference of a value from an expected one, over the elements that are finite in both.

    Attributes:
        max_abs: Largest absolute difference; nan if the values cannot be compared.
        rms: Root mean square of the differences.
        max_rel: Largest difference relative to the expected element, where that is not 0.
        ulp: Largest distance in units in the last place of the dtype; None unless both are floats of one
            dtype.
        snr_db: Signal-to-noise ratio, ``10 log10(sum |expected|^2 / sum |difference|^2)``; inf if all are
            equal.
        unlike: Number of elements that are NaN or infinite in one value only, or infinities of other signs.
        count: Number of elements.
    """

    max_abs: float = 0.0
    rms: float = 0.0
    max_rel: float = 0.0
    ulp: int | None = None
    snr_db: float = math.inf
    unlike: int = 0
    count: int = 1


UNKNOWN = Difference(math.nan, math.nan, math.nan, None, math.nan)


def measure(actual: Any, expected: Any) -> Difference:
    """Return the difference of ``actual`` from ``expected``, both of one shape or both numbers."""
    got, want = to_float64(actual), to_float64(expected)
    if got is None or want is None or got.shape != want.shape:
        return UNKNOWN
    if not got.numel():
        return Difference(ulp=ulp_distance(actual, expected), count=0)
    same = equal_elements(got, want)
    comparable = got.isfinite() & want.isfinite()
    difference = torch.where(same | ~comparable, 0.0, (got - want).abs())
    magnitude = torch.where(comparable, want.abs(), 0.0)
    relative = torch.where(magnitude == 0, 0.0, difference / magnitude)
    return Difference(
        float(difference.max()),
        _rms(difference),
        float(relative.max()),
        ulp_distance(actual, expected),
        _decibels(magnitude, difference),
        int((~same & ~comparable).sum()),
        got.numel(),
    )


@dataclass(frozen=True, slots=True)
class Error:
    """The error of a value against the exact one, over the elements that are finite in both.

    Attributes:
        max: Largest absolute difference.
        rms: Root mean square of the differences.
    """

    max: float
    rms: float


def measure_error(actual: Any, exact: Any) -> Error | None:
    """Return the error of ``actual`` against ``exact``; None if they cannot be compared."""
    got, want = to_float64(actual), to_float64(exact)
    if got is None or want is None or got.shape != want.shape:
        return None
    difference = (got - want).abs()
    finite = difference[difference.isfinite()]
    return Error(float(finite.max()), _rms(finite)) if finite.numel() else Error(0.0, 0.0)


def _rms(difference: torch.Tensor) -> float:
    scale = float(difference.max())  # the squares of large numbers are infinite, those of small ones 0
    return scale * float((difference / scale).square().mean().sqrt()) if scale else 0.0


def to_dense(item: Any) -> Any:
    """Return a sparse tensor as a dense one, anything else unchanged."""
    return item.to_dense() if isinstance(item, torch.Tensor) and item.layout is not torch.strided else item


def to_float64(value: Any) -> torch.Tensor | None:
    """Return a tensor or number as dense float64 or complex128 on the CPU; None if it is not convertible."""
    if isinstance(value, (bool, int, float)):
        return torch.tensor(value, dtype=torch.float64)
    if not isinstance(value, torch.Tensor):
        return None
    tensor: torch.Tensor = value.detach()
    tensor = tensor.dequantize() if tensor.is_quantized else tensor
    tensor = to_dense(tensor).cpu()
    if not is_numeric(tensor.dtype):
        return None
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


def is_numeric(dtype: torch.dtype) -> bool:
    """Return whether a dtype has numbers or booleans as elements that PyTorch can convert."""
    if dtype.is_floating_point:
        return dtype != torch.float4_e2m1fn_x2
    return dtype.is_complex or dtype in _INTEGERS


_INTEGERS = frozenset(
    {torch.bool, torch.uint8, torch.uint16, torch.uint32, torch.uint64}
    | {torch.int8, torch.int16, torch.int32, torch.int64}
)


def _decibels(magnitude: torch.Tensor, difference: torch.Tensor) -> float:
    # Scaled first: the squares of large numbers are infinite.
    scale = max(float(magnitude.max()), float(difference.max()))
    if scale == 0 or float(difference.max()) == 0:
        return math.inf
    signal, noise = (float((item / scale).square().sum()) for item in (magnitude, difference))
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def ulp_distance(actual: Any, expected: Any) -> int | None:
    """Return the largest distance in units in the last place; None unless both are floats of one dtype.

    Bits of the same sign are ordered like the numbers, so distances are differences of magnitudes; across
    zero, sums.
    """
    if not (isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor)):
        return None
    if actual.dtype != expected.dtype or not is_numeric(actual.dtype):
        return None
    if not (actual.is_floating_point() or actual.is_complex()):
        return None
    if not actual.numel():
        return 0
    (low, got), (high, want) = _signs_and_magnitudes(actual), _signs_and_magnitudes(expected)
    apart = torch.where(low == high, (got - want).abs(), got + want)
    apart = torch.where(apart < 0, torch.iinfo(torch.int64).max, apart)  # more than an integer holds
    return int(torch.where(_finite_mask(actual) & _finite_mask(expected), apart, 0).max())


def _signs_and_magnitudes(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return whether floats have the sign bit, and their bits without it as integers."""
    floats = _as_real(tensor)
    bits = floats.view(_INTEGER_OF_SIZE[floats.itemsize])
    mask = torch.iinfo(bits.dtype).max
    return bits < 0, (bits & mask).to(torch.int64)


def _finite_mask(tensor: torch.Tensor) -> torch.Tensor:
    return _as_real(tensor).to(torch.float64).isfinite()


def _as_real(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of floats; of complex numbers, with a last dimension of real and imaginary parts."""
    plain: torch.Tensor = to_dense(tensor.detach().resolve_conj().resolve_neg()).cpu().contiguous()
    return torch.view_as_real(plain) if plain.is_complex() else plain

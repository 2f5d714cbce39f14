"""Transform matrices of Winograd's algorithm for 3 x 3 kernels.

Output tiles of m x m need patches of t x t pixels, t = m + 2. With the points a[0], ..., a[t-2] and
infinity, the patch and the kernel are polynomials that are evaluated at these points, multiplied there, and
interpolated (Toom-Cook):

    result = A^T ((G kernel G^T) * (B^T patch B)) A

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015). The points for tiles of
4 are chosen for a small error, after Barabasz et al., "Error Analysis and Improving the Accuracy of
Winograd Convolution" (2018): with 0, 1, -1, 1/2 and -2 it is a third of that with 0, 1, -1, 2 and -2.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

import torch

_NEAR = (Fraction(0), Fraction(1), Fraction(-1))
POINTS: Mapping[int, tuple[Fraction, ...]] = MappingProxyType(
    {2: _NEAR, 4: (*_NEAR, Fraction(1, 2), Fraction(-2))}
)
_TAPS = 3

_Rows = Sequence[Sequence[Fraction]]


@functools.cache
def matrices(tile: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the transforms of patches, kernels and products, for both dimensions at once, in float64.

    Args:
        tile: m, a key of `POINTS`.

    Returns:
        ``B^T x B^T`` of [t^2, t^2], ``G x G`` of [t^2, 9] and ``A^T x A^T`` of [m^2, t^2]; x is the
        Kronecker product.
    """
    points = POINTS[tile]
    # Row i of B^T is the numerator of Lagrange's polynomial i; its denominator scales row i of G. The last
    # rows belong to the point infinity, where a polynomial is its leading coefficient.
    patch = [*(_product(_without(points, i)) for i in range(len(points))), _product(points)]
    kernel = [[point**power / _scale(points, i) for power in range(_TAPS)] for i, point in enumerate(points)]
    kernel.append([Fraction(0)] * (_TAPS - 1) + [Fraction(1)])
    result = [[point**power for power in range(tile)] for point in points]
    result.append([Fraction(0)] * (tile - 1) + [Fraction(1)])
    b, g, a = _tensor(patch), _tensor(kernel), _tensor(result).T.contiguous()
    return torch.kron(b, b), torch.kron(g, g), torch.kron(a, a)


def _without(points: Sequence[Fraction], index: int) -> list[Fraction]:
    return [point for other, point in enumerate(points) if other != index]


def _scale(points: Sequence[Fraction], index: int) -> Fraction:
    """Return the product of the differences of a point to all other points."""
    product = Fraction(1)
    for other in _without(points, index):
        product *= points[index] - other
    return product


def _product(roots: Sequence[Fraction]) -> list[Fraction]:
    """Return the coefficients of the polynomial with these roots, the constant first."""
    result = [Fraction(1)]
    for root in roots:
        shifted, padded = [Fraction(0), *result], [*result, Fraction(0)]
        result = [high - root * low for high, low in zip(shifted, padded, strict=True)]
    return result


def _tensor(rows: _Rows) -> torch.Tensor:
    width = max(map(len, rows))
    padded = [[float(item) for item in row] + [0.0] * (width - len(row)) for row in rows]
    return torch.tensor(padded, dtype=torch.float64, device="cpu")

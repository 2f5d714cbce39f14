"""Winograd's algorithm for convolutions of 3 x 3 taps: ``npu::winograd_panels``, ``npu::winograd_conv2d``.

Output tiles of m x m need patches of t x t pixels, t = m + 2. With the points a[0], ..., a[t-2] and
infinity, the patch and the kernel are polynomials that are evaluated at these points, multiplied there, and
interpolated (Toom-Cook):

    result = A^T ((G kernel G^T) * (B^T patch B)) A

Source: Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks" (2015). The points for tiles of
4 are chosen for a small error, after Barabasz et al., "Error Analysis and Improving the Accuracy of
Winograd Convolution" (2018): with 0, 1, -1, 1/2 and -2 it is a third of that with 0, 1, -1, 2 and -2.
Importing this module registers the ops with PyTorch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

import torch
import torch.nn.functional as F
from torch import Tensor

from npu_passes.ops.packed import MOST_WIDTH, goes_by_parts, matrix_of, pack_matrix, panels_view
from npu_passes.ops.registration import register_composite

WINOGRAD_PANELS = "npu.winograd_panels.default"
WINOGRAD_CONV2D = "npu.winograd_conv2d.default"
_NEAR = (Fraction(0), Fraction(1), Fraction(-1))
POINTS: Mapping[int, tuple[Fraction, ...]] = MappingProxyType(
    {2: _NEAR, 4: (*_NEAR, Fraction(1, 2), Fraction(-2))}
)
_TAPS = 3
_PART = 1 << 12  # pairs of channels: their values at all points fit into the second cache

_Rows = Sequence[Sequence[Fraction]]


@register_composite("(Tensor weight, int tile) -> Tensor")
def winograd_panels(weight: Tensor, tile: int) -> Tensor:
    """Return the panels of the values of weights at the points, as a matrix of [in, points * out].

    The values are computed in float64, of a large weight for some input channels at a time.

    Args:
        weight: [out, in, 3, 3].
        tile: 2 or 4.
    """
    if not goes_by_parts(weight):
        return pack_matrix(_at_points(weight, tile).to(weight.dtype), MOST_WIDTH)
    channels, rows = weight.shape[:2]
    count = -(-((tile + 2) ** 2) * channels // MOST_WIDTH)
    panels = weight.new_empty(count, rows, MOST_WIDTH)
    step = max(1, _PART // channels)
    for part, some in zip(torch.split(panels, step, 1), torch.split(weight, step, 1), strict=True):
        part.copy_(panels_view(_at_points(some, tile), MOST_WIDTH))
    return panels


def _at_points(weight: Tensor, tile: int) -> Tensor:
    """Return the values of weights at the points, [in, points * out], in float64."""
    channels, rows = weight.shape[:2]
    taps = weight.permute(2, 3, 1, 0).reshape(_TAPS**2, -1).to(torch.float64)
    values = matrices(tile)[1].to(weight.device) @ taps
    return values.view(-1, rows, channels).transpose(0, 1).reshape(rows, -1)


@register_composite(
    "(Tensor input, Tensor panels, Tensor? bias, SymInt[2] padding, SymInt tile, SymInt out_channels) "
    "-> Tensor"
)
def winograd_conv2d(
    input: Tensor, panels: Tensor, bias: Tensor | None, padding: Sequence[int], tile: int, out_channels: int
) -> Tensor:
    """Return the convolution of images by 3 x 3 taps, with stride 1 and without groups.

    Args:
        input: [batch, in, height, width].
        panels: Those of the transformed weights, as a matrix of [in, points * out].
        bias: [out].
        padding: Zeros on either side, of height and width.
        tile: 2 or 4.
        out_channels: The columns of the matrix that belong to a point.
    """
    side = tile + 2
    transformed = matrix_of(panels).reshape(-1, side, side, out_channels)
    back = input.new_tensor(_kernel_inverse(tile))
    weight = torch.einsum("ka,iabo,lb->oikl", back, transformed, back)
    return F.conv2d(input, weight, bias, 1, padding)


def _kernel_inverse(tile: int) -> list[list[float]]:
    """Return the matrix that makes a kernel of its values at the points: 0, 1 and -1 determine it."""
    zero, one, minus = (float(_scale(POINTS[tile], i)) for i in range(_TAPS))
    others = [0.0] * (tile + 2 - _TAPS)
    rows = [zero, 0.0, 0.0], [0.0, one / 2, -minus / 2], [-zero, one / 2, minus / 2]
    return [[*row, *others] for row in rows]


@functools.cache
def matrices(tile: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the transforms of patches, kernels and products, for both dimensions at once, in float64.

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

"""3 x 3 convolutions with many channels by Winograd's algorithm.

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
import math
from collections.abc import Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import torch

from npu_ir import Graph, OpNode, Value
from npu_passes import Pass, within
from npu_passes.core.edit import Edit
from npu_passes.rewriting.value_replacement import match_strides
from npu_runtime.cpu import onednn
from npu_runtime.cpu.convolutions import CONVOLUTIONS, Convolution, convolution_of, convolution_problem
from npu_runtime.cpu.costs import is_channels_last, winograd_tile

_NEAR = (Fraction(0), Fraction(1), Fraction(-1))
POINTS: Mapping[int, tuple[Fraction, ...]] = MappingProxyType(
    {2: _NEAR, 4: (*_NEAR, Fraction(1, 2), Fraction(-2))}
)
_TAPS = 3

_Rows = Sequence[Sequence[Fraction]]


class Winograd(Pass):
    """Compute 3 x 3 convolutions of stride 1 by Winograd's algorithm, on images in channels-last.

    With output tiles of 4 x 4 pixels this takes a quarter of the multiplications, with 2 x 2 less than half
    of them. They become products of large matrices; the transformed weights, 4 times as large or 1.8 times,
    are computed in float64 when weights are bound. Applied where it is estimated to be clearly faster: with
    64 channels or more, and not if the weights are too large for the cache.

    The error relative to the largest result was 1.3e-6 to 2.6e-6 with tiles of 4, 2.5e-7 with tiles of 2,
    and 5e-7 to 1e-6 with oneDNN: random data, 64 to 512 channels. An infinity or NaN in the input spreads
    to the whole tile.
    """

    name = "winograd"
    numerics = within(1e-5)
    after = ("channels-last", "constant-folding")
    before = ("pack-convolution",)

    def run(self, graph: Graph) -> bool:
        changed = False
        for node in graph.nodes_of(*CONVOLUTIONS):
            if node.in_prologue:
                continue
            problem = onednn.unavailable_reason() or convolution_problem(graph, node) or _no_gain(node)
            if problem is not None:
                self.refuse(node, problem, "winograd")
                continue
            self._replace(graph, convolution_of(node))
            changed = True
        return changed

    def _replace(self, graph: Graph, item: Convolution) -> None:
        tile = winograd_tile(item)
        assert tile is not None
        with self.rewrite(graph, f"winograd-{tile}", item.node) as edit:
            result = _Winograd(edit, item, tile).result()
            edit.replace(item.output, match_strides(edit, result, item.output))


def _no_gain(node: OpNode) -> str | None:
    """Return the reason why Winograd's algorithm is not used; None if it is."""
    item = convolution_of(node)
    if winograd_tile(item) is None:
        return "it is not a 3 x 3 convolution of stride 1, or not large enough"
    if not is_channels_last(item.input):
        return f"%{item.input.name} is {item.input.type}, and not in channels-last"
    return None


class _Winograd:
    """Builder of the nodes that compute one convolution."""

    def __init__(self, edit: Edit, item: Convolution, tile: int) -> None:
        self._edit = edit
        self._item = item
        self._tile = tile
        self._patch = tile + 2
        self._batch, self._channels, self._height, self._width = item.output.tensor_type.static_shape
        # Output tiles per column and row; the last ones may reach over the edge, and are cut in `_image`.
        self._down, self._across = math.ceil(self._height / tile), math.ceil(self._width / tile)

    def result(self) -> Value:
        # Each transform is one matrix product with a Kronecker product (B^T x B^T) on flattened patches;
        # the products in the transformed domain are, for each of the t^2 points, a matrix product over the
        # input channels.
        points, patches = self._patch**2, self._batch * self._down * self._across
        of_patch, of_kernel, of_result = matrices(self._tile)
        given = self._call("mm.default", self._constant("patch", of_patch), self._patches())
        given = self._call("view.default", given, [points, patches, self._item.in_channels])
        products = self._call("bmm.default", given, self._weights(of_kernel))
        products = self._call("view.default", products, [points, patches * self._channels])
        return self._image(self._call("mm.default", self._constant("result", of_result), products))

    def _call(self, op: str, *args: Any, **kwargs: Any) -> Value:
        return self._edit.call(f"aten.{op}", *args, **kwargs)

    def _constant(self, kind: str, matrix: torch.Tensor) -> Value:
        """Return one of the matrices, as a constant that all convolutions of a graph share."""
        graph, target = self._edit.graph, f"winograd.{self._tile}.{kind}"
        known = next((value for value in graph.arguments if _is_constant(value, target)), None)
        return known or graph.add_constant(target, matrix if kind == "kernel" else matrix.float())

    def _patches(self) -> Value:
        """Return the overlapping patches of the input, [points of a patch, patches * channels]."""
        above, left = self._item.padding
        _, _, height, width = self._item.input.tensor_type.static_shape
        below = self._down * self._tile + 2 - height - above
        right = self._across * self._tile + 2 - width - left
        image = self._item.input
        if any((left, right, above, below)):
            image = self._call("constant_pad_nd.default", image, [left, right, above, below])
        image = self._call("permute.default", image, [0, 2, 3, 1])
        for axis in (1, 2):
            image = self._call("unfold.default", image, axis, self._patch, self._tile)
        image = self._call("permute.default", image, [4, 5, 0, 1, 2, 3])
        return self._call("reshape.default", image, [self._patch**2, -1])

    def _weights(self, of_kernel: torch.Tensor) -> Value:
        """Return the transformed weights, [points of a patch, in, out], computed in the prologue."""
        before = len(self._edit.made)
        weight = self._call("permute.default", self._item.weight, [2, 3, 1, 0])
        weight = self._call("reshape.default", weight, [9, -1])
        weight = self._call("to.dtype", weight, torch.float64)
        weight = self._call("mm.default", self._constant("kernel", of_kernel), weight)
        weight = self._call("to.dtype", weight, torch.float32)
        shape = [self._patch**2, self._item.in_channels, self._channels]
        weight = self._call("view.default", weight, shape, name="packed")
        for name in self._edit.made[before:]:
            self._edit.graph.move_to_prologue(self._edit.graph.node(name))
        return weight

    def _image(self, tiles: Value) -> Value:
        """Return the output image assembled from its tiles, with the bias added."""
        shape = [self._tile, self._tile, self._batch, self._down, self._across, self._channels]
        image = self._call("view.default", tiles, shape)
        image = self._call("permute.default", image, [2, 3, 0, 4, 1, 5])
        sizes = [self._batch, self._down * self._tile, self._across * self._tile, self._channels]
        image = self._call("reshape.default", image, sizes)
        for axis, (size, wanted) in enumerate(zip(sizes[1:3], (self._height, self._width), strict=True), 1):
            if size != wanted:
                image = self._call("slice.Tensor", image, axis, 0, wanted)
        if self._item.bias is not None:
            image = self._call("add.Tensor", image, self._item.bias)
        return self._call("permute.default", image, [0, 3, 1, 2], name=self._item.node.name)


def _is_constant(value: Value, target: str) -> bool:
    return value.argument is not None and value.argument.target == target


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

"""3 x 3 convolutions with many channels by Winograd's algorithm (`npu_passes.ops.winograd`)."""

from __future__ import annotations

import math
from typing import Any

import torch

from npu_ir import Graph, OpNode, Value
from npu_passes import within
from npu_passes.core.edit import Edit
from npu_passes.ops.winograd import matrices
from npu_passes.rewriting.value_replacement import match_strides
from npu_runtime.cpu.convolution_pass import ConvolutionPass
from npu_runtime.cpu.convolutions import Convolution, convolution_of
from npu_runtime.cpu.costs import is_channels_last, winograd_tile


class Winograd(ConvolutionPass):
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

    def no_gain(self, node: OpNode) -> str | None:
        """Return the reason why Winograd's algorithm is not used; None if it is."""
        item = convolution_of(node)
        if winograd_tile(item) is None:
            return "it is not a 3 x 3 convolution of stride 1, or not large enough"
        if not is_channels_last(item.input):
            return f"%{item.input.name} is {item.input.type}, and not in channels-last"
        return None

    def replace(self, graph: Graph, item: Convolution) -> None:
        tile = winograd_tile(item)
        assert tile is not None
        with self.rewrite(graph, f"winograd-{tile}", item.node) as edit:
            result = _Winograd(edit, item, tile).result()
            edit.replace(item.output, match_strides(edit, result, item.output))


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
        of_patch, _, of_result = matrices(self._tile)
        given = self._call(
            "mm.default", _constant(self._edit, self._tile, "patch", of_patch), self._patches()
        )
        given = self._call("view.default", given, [points, patches, self._item.in_channels])
        products = self._call("bmm.default", given, transformed_weights(self._edit, self._item, self._tile))
        products = self._call("view.default", products, [points, patches * self._channels])
        return self._image(
            self._call("mm.default", _constant(self._edit, self._tile, "result", of_result), products)
        )

    def _call(self, op: str, *args: Any, **kwargs: Any) -> Value:
        return self._edit.call(f"aten.{op}", *args, **kwargs)

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


def transformed_weights(edit: Edit, item: Convolution, tile: int) -> Value:
    """Return the weights at the points, [points of a patch, in, out], computed in the prologue."""
    before = len(edit.made)
    weight = edit.call("aten.permute.default", item.weight, [2, 3, 1, 0])
    weight = edit.call("aten.reshape.default", weight, [9, -1])
    weight = edit.call("aten.to.dtype", weight, torch.float64)
    weight = edit.call("aten.mm.default", _constant(edit, tile, "kernel", matrices(tile)[1]), weight)
    weight = edit.call("aten.to.dtype", weight, torch.float32)
    shape = [(tile + 2) ** 2, item.in_channels, item.out_channels]
    weight = edit.call("aten.view.default", weight, shape, name="packed")
    for name in edit.made[before:]:
        edit.graph.move_to_prologue(edit.graph.node(name))
    return weight


def _constant(edit: Edit, tile: int, kind: str, matrix: torch.Tensor) -> Value:
    """Return one of the matrices, as a constant that all convolutions of a graph share."""
    graph, target = edit.graph, f"winograd.{tile}.{kind}"
    known = next((value for value in graph.arguments if _is_constant(value, target)), None)
    return known or graph.add_constant(target, matrix if kind == "kernel" else matrix.float())


def _is_constant(value: Value, target: str) -> bool:
    return value.argument is not None and value.argument.target == target

"""Convolutions by constant weights, packed in panels for the backend ``host``."""

from __future__ import annotations

from npu_ir import Graph, OpNode
from npu_passes import Pass, within
from npu_passes.ops.packed import (
    MOST_WIDTH,
    PACK_FILTERS,
    PACKED_CONV2D,
    PACKED_CONV_TRANSPOSE2D,
    image_type,
    panel_width,
)
from npu_passes.ops.winograd import WINOGRAD_CONV2D, WINOGRAD_PANELS
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import match_strides
from npu_runtime.cpu.convolutions import (
    CONVOLUTIONS,
    TRANSPOSED,
    Convolution,
    convolution_of,
    convolution_problem,
    transposed_problem,
)
from npu_runtime.cpu.costs import is_channels_last, panel_tile
from npu_runtime.cpu.pack_matrix import pack_weight


class PackPanels(Pass):
    """Pack the weights of 2-d convolutions when weights are bound, for the backend ``host``.

    A convolution of float32, without groups or depthwise, becomes ``npu::packed_conv2d`` of
    ``npu::pack_filters``, which is in the prologue; a transposed one without groups or dilation, likewise,
    ``npu::packed_conv_transpose2d``. The packed weight is a plain tensor. Without the backend
    ``host`` the layers compute the same, slower. Grouped convolutions stay: oneDNN is faster. Of 3 x 3
    convolutions with many channels, on images in channels-last, the panels are of weights transformed for
    Winograd's algorithm (``npu::winograd_conv2d``), with the error that the pass ``winograd`` states:
    relative to the largest number around a pixel, and an infinity or a NaN spreads to the results of its
    tiles.
    """

    name = "pack-panels"
    numerics = within(1e-5)
    after = ("conv-bn-folding", "conv-add-folding", "constant-folding", "channels-last")

    def run(self, graph: Graph) -> bool:
        changed = False
        for node in graph.nodes_of(*CONVOLUTIONS):
            if node.in_prologue:
                continue
            problem = convolution_problem(graph, node)
            item = convolution_of(node) if problem is None else None
            if item is not None and item.groups > 1 and not item.is_depthwise:
                problem = f"it has {item.groups} groups"
            if problem is not None or item is None:
                self.refuse(node, problem or "", "pack")
                continue
            tile = panel_tile(item) if is_channels_last(item.input) else None
            self._pack(graph, item) if tile is None else self._pack_points(graph, item, tile)
            changed = True
        for node in graph.nodes_of(TRANSPOSED):
            problem = transposed_problem(graph, node)
            if problem is not None:
                self.refuse(node, problem, "pack")
                continue
            self._pack_transposed(graph, node)
            changed = True
        return changed

    def _pack_transposed(self, graph: Graph, node: OpNode) -> None:
        given, (output,) = arguments_of(node, defaults=True), node.outputs
        image, weight = given["input"], given["weight"]
        inputs, outputs, height, width = weight.tensor_type.static_shape
        with self.rewrite(graph, "pack", node) as edit:
            panel = panel_width(outputs)
            filters = edit.to_prologue(edit.call("aten.transpose.int", weight, 0, 1))
            shape = height * width * inputs, outputs
            panels = pack_weight(edit, PACK_FILTERS, filters, panel, shape, panel)
            names = "stride", "padding", "output_padding"
            pairs = [[given[name][0], given[name][-1]] for name in names]
            result = edit.call(
                PACKED_CONV_TRANSPOSE2D,
                image,
                panels,
                given["bias"],
                [height, width],
                *pairs,
                outputs,
                type=image_type(image.tensor_type, output.tensor_type),
                name=node.name,
            )
            edit.replace(output, match_strides(edit, result, output))

    def _pack(self, graph: Graph, item: Convolution) -> None:
        height, width = item.kernel
        with self.rewrite(graph, "pack", item.node) as edit:
            panel = item.out_channels if item.is_depthwise else panel_width(item.out_channels)
            shape = height * width * item.in_channels // item.groups, item.out_channels
            panels = pack_weight(edit, PACK_FILTERS, item.weight, panel, shape, panel)
            result = edit.call(
                PACKED_CONV2D,
                item.input,
                panels,
                item.bias,
                [height, width],
                list(item.stride),
                list(item.padding),
                list(item.dilation),
                item.out_channels,
                type=image_type(item.input.tensor_type, item.output.tensor_type),
                name=item.node.name,
            )
            edit.replace(item.output, match_strides(edit, result, item.output))

    def _pack_points(self, graph: Graph, item: Convolution, tile: int) -> None:
        with self.rewrite(graph, f"pack-winograd-{tile}", item.node) as edit:
            shape = item.in_channels, (tile + 2) ** 2 * item.out_channels
            panels = pack_weight(edit, WINOGRAD_PANELS, item.weight, tile, shape, MOST_WIDTH)
            padding = list(item.padding)
            arguments = item.input, panels, item.bias, padding, tile, item.out_channels
            type = image_type(item.input.tensor_type, item.output.tensor_type)
            result = edit.call(WINOGRAD_CONV2D, *arguments, type=type, name=item.node.name)
            edit.replace(item.output, match_strides(edit, result, item.output))

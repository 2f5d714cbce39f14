"""Convolutions by constant weights, packed in panels for the backend ``host``."""

from __future__ import annotations

from npu_ir import Graph
from npu_passes import Pass, within
from npu_passes.ops.packed import PACK_MATRIX, PACKED_CONV2D, panel_width
from npu_passes.rewriting.value_replacement import match_strides
from npu_runtime.cpu.convolutions import CONVOLUTIONS, Convolution, convolution_of, convolution_problem


class PackPanels(Pass):
    """Pack the weights of 2-d convolutions when weights are bound, for the backend ``host``.

    A convolution of float32 without groups becomes ``npu::packed_conv2d`` of ``npu::pack_matrix``, which is
    in the prologue. The packed weight is a plain tensor. Without the backend ``host`` the layers compute the
    same, slower. Depthwise and grouped convolutions stay.
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
            if problem is None and convolution_of(node).groups > 1:
                problem = f"it has {convolution_of(node).groups} groups"
            if problem is not None:
                self.refuse(node, problem, "pack")
                continue
            self._pack(graph, convolution_of(node))
            changed = True
        return changed

    def _pack(self, graph: Graph, item: Convolution) -> None:
        height, width = item.kernel
        with self.rewrite(graph, "pack", item.node) as edit:
            taps = edit.to_prologue(edit.call("aten.permute.default", item.weight, [2, 3, 1, 0]))
            shape = [height * width * item.in_channels, item.out_channels]
            matrix = edit.to_prologue(edit.call("aten.reshape.default", taps, shape))
            panels = edit.to_prologue(edit.call(PACK_MATRIX, matrix, panel_width(item.out_channels)))
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
                name=item.node.name,
            )
            edit.replace(item.output, match_strides(edit, result, item.output))

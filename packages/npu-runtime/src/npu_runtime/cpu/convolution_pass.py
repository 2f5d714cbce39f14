"""Base class of passes that compute 2-d convolutions of images in channels-last in another way."""

from __future__ import annotations

from npu_ir import Graph, OpNode
from npu_passes import Pass
from npu_runtime.cpu import onednn
from npu_runtime.cpu.convolutions import CONVOLUTIONS, Convolution, convolution_of, convolution_problem


class ConvolutionPass(Pass):
    """Replace each convolution for which the subclass has a faster way; record why others stay."""

    def run(self, graph: Graph) -> bool:
        changed = False
        for node in graph.nodes_of(*CONVOLUTIONS):
            if node.in_prologue:
                continue
            problem = onednn.unavailable_reason() or convolution_problem(graph, node) or self.no_gain(node)
            if problem is not None:
                self.refuse(node, problem, self.name)
                continue
            self.replace(graph, convolution_of(node))
            changed = True
        return changed

    def no_gain(self, node: OpNode) -> str | None:
        """Return the reason why the other way is not faster; None if it is."""
        raise NotImplementedError

    def replace(self, graph: Graph, item: Convolution) -> None:
        """Rewrite one convolution."""
        raise NotImplementedError

"""A loss that is a mean or a sum, as the loss of each element and its mean or sum."""

from __future__ import annotations

from npu_ir import Graph
from npu_passes import Pass
from npu_passes.arguments import arguments_of

_POINTWISE = ("aten.mse_loss.default", "aten.smooth_l1_loss.default", "aten.huber_loss.default")
_NONE = 0
_REDUCTIONS = {1: "aten.mean.default", 2: "aten.sum.default"}


class SplitLoss(Pass):
    """Compute a loss of all elements in two steps: that of each element, and the mean or sum of these.

    PyTorch computes it in the same two steps, to the bit, and allocates memory for both in each call (torch 2.13). Apart,
    both have a place in planned memory, and take as long.
    """

    name = "split-loss"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        """Split ``mse_loss``, ``smooth_l1_loss`` and ``huber_loss``."""
        before = graph.edits
        for node in list(graph.nodes_of(*_POINTWISE)):
            given = arguments_of(node, defaults=True)
            reduction = given.pop("reduction")
            if reduction != _NONE:
                inputs = given.pop("self"), given.pop("target")
                with self.rewrite(graph, "split", node) as edit:
                    each = edit.call(node.op_type, *inputs, **given, reduction=_NONE)
                    edit.replace(node.outputs[0], edit.call(_REDUCTIONS[reduction], each))
        return graph.edits != before

"""Decomposition of losses into ops whose results are in planned memory."""

from __future__ import annotations

import torch

from npu_ir import Graph, OpNode, TensorType
from npu_passes import Pass
from npu_passes.rewriting.arguments import arguments_of

_MEAN = "aten.mean.default"
_POINTWISE = ("aten.mse_loss.default", "aten.smooth_l1_loss.default", "aten.huber_loss.default")
_NONE = 0
_REDUCTIONS = {1: _MEAN, 2: "aten.sum.default"}
# A narrower dtype cannot represent every number of elements; ATen divides in float32 there.
_DIVIDED = (torch.float32, torch.float64)


class SplitLoss(Pass):
    """Split reduced losses into ops whose results are in planned memory.

    1. ``mse_loss``, ``smooth_l1_loss`` and ``huber_loss``: the loss of each element, and the mean or sum of
       these.
    2. A mean of all elements: their sum, divided by a tensor that holds their number.

    PyTorch computes the same internally, bitwise equal, but allocates memory in each call: for the
    elementwise losses, and for the divisor of a mean (torch 2.13).
    """

    name = "split-loss"
    is_idempotent = True

    def run(self, graph: Graph) -> bool:
        """Split losses, then means."""
        before = graph.edits
        for node in list(graph.nodes_of(*_POINTWISE)):
            self._split_loss(graph, node)
        for node in list(graph.nodes_of(_MEAN)):
            self._split_mean(graph, node)
        return graph.edits != before

    def _split_loss(self, graph: Graph, node: OpNode) -> None:
        arguments = arguments_of(node, defaults=True)
        reduction = arguments["reduction"]
        if reduction == _NONE:
            return
        with self.rewrite(graph, "loss", node) as edit:
            each = edit.call(node.op_type, **{**arguments, "reduction": _NONE})
            edit.replace(node.outputs[0], edit.call(_REDUCTIONS[reduction], each))

    def _split_mean(self, graph: Graph, node: OpNode) -> None:
        given, mean = node.inputs[0].tensor_type, node.outputs[0].tensor_type
        if node.in_prologue or given.symbols or given.dtype != mean.dtype or mean.dtype not in _DIVIDED:
            return
        with self.rewrite(graph, "mean", node) as edit:
            total = edit.call("aten.sum.default", node.inputs[0])
            # On meta: the device is inferred when the graph is run.
            count = edit.call(
                "aten.full.default",
                [],
                given.numel,
                type=TensorType((), mean.dtype),
                dtype=mean.dtype,
                device=torch.device("meta"),
            )
            edit.replace(node.outputs[0], edit.call("aten.div.Tensor", total, count))

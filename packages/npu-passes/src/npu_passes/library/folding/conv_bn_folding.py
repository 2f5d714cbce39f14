"""Fold batch norms into the convolutions and linear layers in front of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from npu_ir import Graph, OpNode, Value
from npu_passes.core.base import Pass, within
from npu_passes.core.edit import Edit
from npu_passes.library.folding.output_channels import (
    LINEAR,
    ChannelOp,
    channel_op,
    fold_problems,
    folded_names,
    unknown_reason,
    with_parameters,
)
from npu_passes.ops.folded import FOLD_BATCH_NORM, folded_types
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.weight_dependence import Weights

# Ops without the argument `training` are in evaluation mode, except for _ALWAYS_TRAINS.
NORMS = (
    "aten.batch_norm.default",
    "aten.native_batch_norm.default",
    "aten._native_batch_norm_legit.no_stats",
    "aten._native_batch_norm_legit_functional.default",
    "aten._native_batch_norm_legit_no_training.default",
    "aten._batch_norm_no_update.default",
    "aten._batch_norm_with_update_functional.default",
)
_ALWAYS_TRAINS = "aten._batch_norm_with_update_functional.default"
_AXIS = 1


class ConvBnFolding(Pass):
    """Fold ``batch_norm(conv(x))`` into the convolution, and ``batch_norm(linear(x))`` into the linear layer.

    Per output channel, with ``a = gamma / sqrt(var + eps)``: ``weight' = a * weight`` and
    ``bias' = a * (bias - mean) + beta``. The node ``npu.fold_batch_norm.default`` computes these from the
    parameters, in float64; `constant-folding` moves it into the prologue, so it runs when weights are bound.
    Convolutions of one to three dimensions, transposed and grouped ones are folded, with and without bias,
    and norms with and without affine parameters.

    Not folded are norms in training mode, without running statistics or with statistics that the graph
    updates; convolutions whose output is used elsewhere, or whose weights depend on the call; and norms
    over another axis than that of the output channels (of a linear layer on sequences, of a convolution
    without batch).

    The tolerance is relative to results in float64: where mean and output are large and nearly cancel,
    eager is the one that rounds. The new weights have the dtype of the old ones: in float16 they may
    overflow where results do not, with variances close to 0, which cannot be detected without data.

    Source: the formula of batch norm in evaluation mode; `torch.nn.utils.fusion.fuse_conv_bn_weights`
    computes the same in the dtype of the weights.

    Attributes:
        fold_linear: Fold into linear layers, too.
    """

    name = "conv-bn-folding"
    is_idempotent = True
    numerics = within(1e-5)
    before = ("conv-add-folding", "constant-folding")

    fold_linear: bool = True

    def run(self, graph: Graph) -> bool:
        changed = False
        weights = Weights(graph)
        for node in graph.nodes_of(*NORMS):
            if node.in_prologue:
                continue
            norm = arguments_of(node, defaults=True)
            op = channel_op(norm["input"])
            problem = next(self._problems(graph, op, node, norm, weights), None)
            if problem is not None or op is None:
                self.refuse(node, problem or "", rule="conv-bn")
                continue
            with self.rewrite(graph, "conv-bn", op.node, node) as edit:
                weight, bias = _fold(edit, op, norm)
                edit.replace(node.outputs[0], with_parameters(edit, op, weight, bias, weights))
            changed = True
        return changed

    def _problems(
        self, graph: Graph, op: ChannelOp | None, node: OpNode, norm: dict[str, Any], weights: Weights
    ) -> Iterator[str]:
        """Yield the reasons why the norm cannot be folded."""
        if op is None:
            producer = norm["input"].producer
            source = f"%{norm['input'].name}" if producer is None else producer.op_type
            yield f"it follows {source}, which is not a convolution or linear layer of the body"
            return
        if op.node.op_type == LINEAR and not self.fold_linear:
            yield "it follows a linear layer, and fold_linear is off"
        yield from _norm_problems(graph, op, node, norm, weights)
        yield from fold_problems(graph, op, node.outputs[0], weights)


def _norm_problems(
    graph: Graph, op: ChannelOp, node: OpNode, norm: dict[str, Any], weights: Weights
) -> Iterator[str]:
    """Yield the reasons why the norm is not a fixed function of each channel."""
    statistics = [norm.get(name) for name in ("running_mean", "running_var")]
    if None in statistics:
        yield "it has no running statistics: it uses those of the batch"
        return
    if norm.get("training") or node.op_type == _ALWAYS_TRAINS:
        yield "it is in training mode"
    if op.axis != _AXIS:
        yield f"it normalizes axis {_AXIS}, and the output channels are axis {op.axis}"
    if any(value.use_count for value in node.outputs[1:]):
        yield "its statistics are read"
    for value in filter(None, (*statistics, norm["weight"], norm["bias"])):
        if value.tensor_type.shape != (op.channels,):
            yield f"%{value.name} of the norm is {value.type}, and there are {op.channels} output channels"
        if value not in weights:
            yield unknown_reason(graph, value)


def _fold(edit: Edit, op: ChannelOp, norm: dict[str, Any]) -> tuple[Value, ...]:
    """Return the weight and bias of the layer that absorbs the norm."""
    bias_type = None if op.bias is None else op.bias.tensor_type
    return edit.calls(
        FOLD_BATCH_NORM,
        weight=op.weight,
        bias=op.bias,
        mean=norm["running_mean"],
        variance=norm["running_var"],
        gamma=norm["weight"],
        beta=norm["bias"],
        eps=norm["eps"],
        transposed_groups=op.groups if op.is_transposed else 0,
        types=folded_types(op.weight.tensor_type, bias_type, op.channels),
        output_names=folded_names(op),
    )

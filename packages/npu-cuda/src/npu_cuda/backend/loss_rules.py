"""Rules of the negative log likelihood, of cross-entropy and of their gradients."""

from __future__ import annotations

from collections.abc import Mapping

import torch

from npu_cuda.backend.op_builder import Lowered, OpBuilder, Rule, number
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir import OpNode
from npu_ir.plugins.backend import Operand

_IGNORED = -100  # PyTorch's default
_MEAN = 1


def _nll_attrs(node: OpNode) -> dict[str, float]:
    return {
        "reduction": number(node, "reduction", _MEAN),
        "ignore_index": number(node, "ignore_index", _IGNORED),
    }


def _total(build: OpBuilder) -> Operand:
    """Return the total weight: a result of the node, or a temporary."""
    return build.node.outputs[1] if len(build.node.outputs) > 1 else build.like_scalar("total_weight")


def _nll_loss(node: OpNode) -> Lowered:
    build = OpBuilder(node, "self", "target", "weight")
    inputs = build.present("self", "target", "weight")
    return build.add("NllLossFwd", inputs, [node.outputs[0], _total(build)], **_nll_attrs(node))


def _nll_loss_backward(node: OpNode) -> Lowered:
    names: tuple[str, ...] = ("grad_output", "self", "target", "weight", "total_weight")
    if node.operands is None and len(node.inputs) == len(names) - 1:
        names = ("grad_output", "self", "target", "total_weight")
    build = OpBuilder(node, *names)
    inputs = build.present("grad_output", "target", "weight", "total_weight")
    return build.add("NllLossBwd", inputs, node.outputs, **_nll_attrs(node))


def _cross_entropy(node: OpNode) -> Lowered:
    build = OpBuilder(node, "self", "target", "weight")
    logits, target = build.present("self", "target")
    if number(node, "label_smoothing", 0.0) != 0:
        return f"cross-entropy has no label_smoothing={node.attrs['label_smoothing']}"
    if tensor_type(target).dtype is not torch.int64 or tensor_type(logits).rank > 2:
        return f"cross-entropy takes rows of logits and classes, not {logits.type} and {target.type}"
    logs = build.like("logs", logits)
    build.add("LogSoftmax", [logits], [logs], axis=-1)
    inputs = [logs, target, *build.present("weight")]
    return build.add("NllLossFwd", inputs, [node.outputs[0], _total(build)], **_nll_attrs(node))


def _cross_entropy_with_grad(node: OpNode) -> Lowered:
    build = OpBuilder(node, "logits", "target")
    logits, target = build.present("logits", "target")
    loss, grad = node.outputs
    attrs = _nll_attrs(node)
    logs, slope = build.like("logs", logits), build.like("grad_logs", logits)
    total, seed = build.like_scalar("total_weight"), build.like_scalar("grad_loss")
    build.add("LogSoftmax", [logits], [logs], axis=1)
    build.add("NllLossFwd", [logs, target], [loss, total], **attrs)
    build.add("Fill", [], [seed], value=number(node, "scale", 1.0))
    build.add("NllLossBwd", [seed, target, total], [slope], **attrs)
    return build.add("LogSoftmaxBwd", [slope, logs], [grad], axis=1)


LOSS_RULES: Mapping[str, tuple[Rule, ...]] = {
    "aten.nll_loss_forward.default": (_nll_loss,),
    "aten.nll_loss.default": (_nll_loss,),
    "aten.nll_loss_nd.default": (_nll_loss,),
    "aten.nll_loss_backward.default": (_nll_loss_backward,),
    "aten.cross_entropy_loss.default": (_cross_entropy,),
    "npu.cross_entropy_with_grad.default": (_cross_entropy_with_grad,),
}

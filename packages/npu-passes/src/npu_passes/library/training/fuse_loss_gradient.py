"""Fusion of a loss with its gradient."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from npu_ir import Graph, OpNode, Value
from npu_passes.core.base import Pass
from npu_passes.ops.fused import CROSS_ENTROPY_WITH_GRAD, MSE_LOSS_WITH_GRAD
from npu_passes.rewriting.arguments import arguments_of, number_of
from npu_passes.rewriting.value_replacement import equals_up_to_strides

_MSE, _MSE_BACKWARD = "aten.mse_loss.default", "aten.mse_loss_backward.default"
_SOFTMAX, _SOFTMAX_BACKWARD = "aten._log_softmax.default", "aten._log_softmax_backward_data.default"
_NLL, _NLL_BACKWARD = "aten.nll_loss_forward.default", "aten.nll_loss_backward.default"
_SCALING: Mapping[str, Callable[[Tensor, float], Tensor]] = {
    "aten.mul.Tensor": torch.mul,
    "aten.div.Tensor": torch.div,
}
_NONE = 0  # a loss per row
_UNKNOWN = "the gradient of the loss is not a known number"


@dataclass(frozen=True, slots=True)
class _Seed:
    """Initial gradient of a backward pass, where it is known: 1, possibly scaled by numbers."""

    scale: float
    nodes: tuple[OpNode, ...]  # the nodes that compute it, in order


class FuseLossGradient(Pass):
    """Fuse a loss with its gradient into one op, for backends that share their difference or softmax.

    1. ``mse_loss`` and ``mse_loss_backward`` become ``npu::mse_loss_with_grad``.
    2. ``_log_softmax``, ``nll_loss_forward`` and their gradients become ``npu::cross_entropy_with_grad``,
       where the logits are [rows, classes], classes have no weights, and the log-probabilities have no
       other readers.

    Losses are means or sums, and the initial gradient is 1, possibly multiplied or divided by numbers. The
    arithmetic stays the same. There is no gain on the CPU: for 2,048 rows of 65 classes the five ops take
    0.28 ms; ops that compute the exponentials once take 0.25 ms and round differently, and for 64 rows of
    10 classes both take 28 us.
    """

    name = "fuse-loss-gradient"
    is_idempotent = True
    after = ("canonicalize", "elim-identity", "cse", "dead-code")

    def run(self, graph: Graph) -> bool:
        """Fuse losses in one forward sweep."""
        before = graph.edits
        for node in graph.body:
            if node.op_type == _MSE_BACKWARD:
                self._fuse_mse(graph, node)
            elif node.op_type == _SOFTMAX_BACKWARD:
                self._fuse_cross_entropy(graph, node)
        return graph.edits != before

    def _fuse_mse(self, graph: Graph, backward: OpNode) -> None:
        rule = "mse"
        arguments = arguments_of(backward)
        prediction, target, reduction = arguments["self"], arguments["target"], arguments["reduction"]
        loss = _find_mse(prediction, target, reduction)
        if loss is None:
            return
        seed = _seed(arguments["grad_output"], loss.outputs[0])
        if seed is None:
            self.refuse(backward, _UNKNOWN, rule)
            return
        types = [loss.outputs[0].type, backward.outputs[0].type]
        with self.rewrite(graph, rule, *seed.nodes, backward, loss) as edit:
            results = edit.calls(MSE_LOSS_WITH_GRAD, prediction, target, reduction, seed.scale, types=types)
            edit.replace(loss.outputs[0], results[0])
            edit.replace(backward.outputs[0], results[1])

    def _fuse_cross_entropy(self, graph: Graph, last: OpNode) -> None:
        rule = "cross-entropy"
        group = _cross_entropy(last)
        if group is None:
            return
        softmax, forward, backward = group
        arguments = arguments_of(forward, defaults=True)
        seed = _seed(arguments_of(backward)["grad_output"], forward.outputs[0])
        reason = _cross_entropy_problem(softmax, forward, backward, last)
        if seed is None or reason is not None:
            self.refuse(last, reason or _UNKNOWN, rule)
            return
        types = [forward.outputs[0].type, last.outputs[0].type]
        with self.rewrite(graph, rule, softmax, *seed.nodes, backward, last, forward) as edit:
            results = edit.calls(
                CROSS_ENTROPY_WITH_GRAD,
                softmax.inputs[0],
                arguments["target"],
                arguments["reduction"],
                arguments["ignore_index"],
                seed.scale,
                types=types,
            )
            edit.replace(forward.outputs[0], results[0])
            edit.replace(last.outputs[0], results[1])
            # Readers first: `last` reads `backward`, and both read outputs of the forward pass.
            edit.erase(last)
            edit.erase(backward)


def _find_mse(prediction: Value, target: Value, reduction: int) -> OpNode | None:
    for node, _ in prediction.uses:
        if node is not None and node.op_type == _MSE and reduction != _NONE:
            arguments = arguments_of(node, defaults=True)
            same = arguments["self"] is prediction and arguments["target"] is target
            same = same and equals_up_to_strides(prediction.type, target.type)
            if same and arguments["reduction"] == reduction:
                return node
    return None


def _cross_entropy(last: OpNode) -> tuple[OpNode, OpNode, OpNode] | None:
    """Return the softmax, the loss and the gradient of the loss for ``last``, the gradient of the softmax."""
    arguments = arguments_of(last)
    backward, softmax = arguments["grad_output"].producer, arguments["output"].producer
    if (
        backward is None
        or softmax is None
        or softmax.op_type != _SOFTMAX
        or backward.op_type != _NLL_BACKWARD
    ):
        return None
    forward = arguments_of(backward)["total_weight"].producer
    return None if forward is None or forward.op_type != _NLL else (softmax, forward, backward)


def _cross_entropy_problem(softmax: OpNode, forward: OpNode, backward: OpNode, last: OpNode) -> str | None:
    """Return the reason why they are not a cross-entropy and its gradient; None if they are."""
    logs, logits = softmax.outputs[0], softmax.inputs[0]
    ours, theirs = arguments_of(forward, defaults=True), arguments_of(backward)
    names = ("self", "target", "weight", "reduction", "ignore_index")
    if any(ours[name] is not theirs.get(name) and ours[name] != theirs.get(name) for name in names):
        return "its gradient is that of another loss"
    if ours["weight"] is not None or ours["reduction"] == _NONE:
        return "classes have weights, or the loss is that of each row"
    if (
        logits.tensor_type.rank != 2
        or not equals_up_to_strides(logits.type, logs.type)
        or arguments_of(softmax)["dim"] not in (1, -1)
    ):
        return f"the logits are {logits.type}"
    if {node for node, _ in logs.uses} != {forward, backward, last}:
        return f"%{logs.name} is read elsewhere, too"
    if {node for node, _ in forward.outputs[1].uses} != {backward}:
        return f"%{forward.outputs[1].name} is read elsewhere, too"
    if {node for node, _ in backward.outputs[0].uses} != {last}:
        return f"%{backward.outputs[0].name} is read elsewhere, too"
    return None


def _seed(value: Value, loss: Value) -> _Seed | None:
    """Return the gradient of a loss, if it is computed from numbers only."""
    nodes: list[OpNode] = []
    while value.producer is not None and value.producer.op_type in _SCALING:
        nodes.append(value.producer)
        if len(value.producer.inputs) != 1:
            return None
        value = value.producer.inputs[0]
    is_scalar = equals_up_to_strides(value.type, loss.type) and loss.tensor_type.rank == 0
    is_one = value.producer is not None and value.producer.op_type == "aten.ones_like.default"
    start = 1.0 if is_one else number_of(value)
    if start is None or not is_scalar:
        return None
    # In the dtype of the loss, because the nodes round to it.
    gradient = torch.tensor(start, dtype=value.tensor_type.dtype)
    for node in reversed(nodes):
        number = node.attrs.get("other")
        if not isinstance(number, (int, float)) or node.attrs.get("rounding_mode") is not None:
            return None
        gradient = _SCALING[node.op_type](gradient, number)
    creator = () if value.producer is None else (value.producer,)
    return _Seed(gradient.item(), (*creator, *reversed(nodes)))

"""Rules of batch norms: the statistics, the norm, and the update of running statistics."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from npu_cuda.backend.op_builder import Lowered, OpBuilder, Rule, eps_in_two_parts, number
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir import OpNode
from npu_ir.plugins.backend import Operand

_FORWARD = ("input", "weight", "bias", "running_mean", "running_var")
_BACKWARD = ("grad_out", "input", "weight", "running_mean", "running_var", "save_mean", "save_invstd")
_RUNNING = 1  # of the flags: statistics are given
# Ops whose fourth result is memory for kernels of other libraries, of no bytes here.
_WITH_UPDATE, _NO_UPDATE = (
    "aten._batch_norm_with_update_functional.default",
    "aten._batch_norm_no_update.default",
)


def _lower_forward(node: OpNode) -> Lowered:
    """Return the ops of a norm; of one that trains, also those of the running statistics."""
    build = _builder(node, _FORWARD)
    x = build.tensors["input"]
    if tensor_type(x).rank < 2:
        return f"a norm takes batches with channels, not {x.type}"
    if ("weight" in build.tensors) != ("bias" in build.tensors):
        return "it has a weight and a bias, or neither"
    is_training = _is_training(node)
    running = build.present("running_mean", "running_var")
    if not is_training and not running:
        return "a norm without statistics of its own takes running ones"
    results = _results(build, is_training=is_training)
    # Of the batch, without a correction: what its running statistics are made of.
    has_variance = is_training and len(node.outputs) >= 5
    variance = [build.like("variance", results[1])] * has_variance
    inputs = (x, *build.present("weight", "bias"), *(() if is_training else running))
    build.add("BatchNormFwd", inputs, (*results, *variance), **_attrs(node, is_training=is_training))
    reserved = node.outputs[3:4] if node.op_type in (_WITH_UPDATE, _NO_UPDATE) else ()
    for unused in (*(y for y in node.outputs[1:3] if y not in results), *reserved):
        build.add("GradZero", (), (unused,))
    if len(node.outputs) >= 5:
        _add_updates(build, running, [results[1], *variance])
    return build.ops


def _add_updates(build: OpBuilder, running: Sequence[Operand], statistics: Sequence[Operand]) -> None:
    """Add the ops of the new running statistics: a part of the way to those of the batch.

    Args:
        build: The ops of the norm, of n elements in each channel.
        running: Mean and variance.
        statistics: The mean of the batch, and its variance v where the norm trains: a mean of n squares. That
            of n - 1 is v + v / (n - 1), of whose numbers float32 loses no digits.
    """
    updated = build.node.outputs[-2:]
    if len(statistics) == 1:
        for old, new in zip(running, updated, strict=True):
            build.add("Copy", (old,), (new,))
        return
    mean, biased = statistics
    share, variance = build.like("variance.share", mean), build.like("variance.corrected", mean)
    shape = tensor_type(build.tensors["input"]).static_shape
    build.add("DivScalar", (biased,), (share,), other=math.prod(shape) // shape[1] - 1)
    build.add("EltwiseAdd", (biased, share), (variance,))
    for old, now, new in zip(running, (mean, variance), updated, strict=True):
        build.add("LerpScalar", (old, now), (new,), weight=number(build.node, "momentum"))


def _lower_backward(node: OpNode) -> Lowered:
    """Return the op of the three gradients; those that are not wanted are computed, too."""
    build = _builder(node, _BACKWARD)
    mask: Any = node.attrs.get("output_mask", (True, True, True))
    if not all(mask):
        return f"three gradients are computed, not {list(mask)}"
    if "save_var" in build.tensors:  # of batch_norm_backward, where it is the same
        build.tensors["save_invstd"] = build.tensors["save_var"]
    is_training = bool(node.attrs.get("train", node.attrs.get("update")))
    names = ("save_mean", "save_invstd") if is_training else ("running_mean", "running_var")
    if len(build.present(*names)) < len(names):
        return f"its gradient takes {' and '.join(names)}"
    inputs = build.present("grad_out", "input", *names, "weight")
    return build.add("BatchNormBwd", inputs, node.outputs, **_attrs(node, is_training=is_training))


def _builder(node: OpNode, names: Sequence[str]) -> OpBuilder:
    """Return the builder of a node; tensors that it lacks are None among its attributes."""
    return OpBuilder(node, *(name for name in names if name not in node.attrs))


def _is_training(node: OpNode) -> bool:
    return bool(node.attrs.get("training", "no_training" not in node.op_type and node.op_type != _NO_UPDATE))


def _results(build: OpBuilder, *, is_training: bool) -> Sequence[Operand]:
    """Return the norm and its statistics, which in the graph are absent or empty if they are given."""
    y, *saved = build.node.outputs[:3]
    if is_training and saved:
        return (y, *saved)
    return (y, *build.statistics(("mean", "rstd"), tensor_type(y).static_shape[1:2]))


def _attrs(node: OpNode, *, is_training: bool) -> dict[str, float]:
    return {"flags": 0 if is_training else _RUNNING, **eps_in_two_parts(number(node, "eps"))}


BATCH_NORM_RULES: Mapping[str, tuple[Rule, ...]] = {
    **{
        f"aten.{name}": (_lower_forward,)
        for name in (
            "batch_norm.default",
            "native_batch_norm.default",
            "_native_batch_norm_legit.no_stats",
            "_native_batch_norm_legit_no_training.default",
            "_native_batch_norm_legit_functional.default",
        )
    },
    _WITH_UPDATE: (_lower_forward,),
    _NO_UPDATE: (_lower_forward,),
    "aten.native_batch_norm_backward.default": (_lower_backward,),
    "aten.batch_norm_backward.default": (_lower_backward,),
}

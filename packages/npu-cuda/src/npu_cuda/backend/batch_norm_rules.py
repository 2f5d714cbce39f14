"""Rules of batch norms: the statistics, the norm, and the update of running statistics."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from npu_cuda.backend.op_builder import eps_in_two_parts
from npu_cuda.backend.pointwise_rules import Pack
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir import OpNode, TensorType, Value
from npu_ir.plugins.backend import BackendOp, Operand, Temporary

_FORWARD = ("input", "weight", "bias", "running_mean", "running_var")
_BACKWARD = ("grad_out", "input", "weight", "running_mean", "running_var", "save_mean", "save_invstd")
_RUNNING = 1  # of the flags: statistics are given
# Ops whose fourth result is memory for kernels of other libraries, of no bytes here.
_WITH_UPDATE, _NO_UPDATE = (
    "aten._batch_norm_with_update_functional.default",
    "aten._batch_norm_no_update.default",
)

Rule = Callable[[OpNode, Pack], "list[BackendOp] | str"]


def _lower_forward(node: OpNode, pack: Pack) -> list[BackendOp] | str:
    """Return the ops of a norm; of one that trains, also those of the running statistics."""
    tensors = _tensors_of(node, _FORWARD)
    if tensors["input"].tensor_type.rank < 2:
        return f"a norm takes batches with channels, not {tensors['input'].type}"
    if ("weight" in tensors) != ("bias" in tensors):
        return "it has a weight and a bias, or neither"
    is_training = _is_training(node)
    if not is_training and "running_mean" not in tensors:
        return "a norm without statistics of its own takes running ones"
    x, results = tensors["input"], _results(node, is_training=is_training)
    # Of the batch, without a correction: what its running statistics are made of.
    has_variance = is_training and len(node.outputs) >= 5
    variance = (Temporary(f"{node.name}.variance", tensor_type(results[1])),) * has_variance
    affine = tuple(tensors[name] for name in ("weight", "bias") if name in tensors)
    running = tuple(tensors[name] for name in ("running_mean", "running_var") if name in tensors)
    schema_id, attrs = pack("BNEP", **_attrs(node, is_training=is_training))
    inputs = (x, *affine, *(() if is_training else running))
    norm = BackendOp("BatchNormFwd", inputs, (*results, *variance), (node,), schema_id=schema_id, attrs=attrs)
    reserved = node.outputs[3:4] if node.op_type in (_WITH_UPDATE, _NO_UPDATE) else ()
    unused = (*(y for y in node.outputs[1:3] if y not in results), *reserved)
    ops = [norm, *(BackendOp("GradZero", (), (y,), (node,)) for y in unused)]
    if len(node.outputs) >= 5:
        ops += _updates(node, pack, x, running, (results[1], *variance))
    return ops


def _updates(
    node: OpNode, pack: Pack, x: Value, running: tuple[Value, ...], statistics: tuple[Operand, ...]
) -> list[BackendOp]:
    """Return the ops of the new running statistics: a part of the way to those of the batch.

    Args:
        node: The norm.
        pack: Makes attributes.
        x: Its input, of n elements in each channel.
        running: Their mean and variance.
        statistics: The mean of the batch, and its variance v where the norm trains: a mean of n squares. That
            of n - 1 is v + v / (n - 1), of whose numbers float32 loses no digits.
    """
    if len(statistics) == 1:
        return [
            BackendOp("Copy", (a,), (b,), (node,)) for a, b in zip(running, node.outputs[-2:], strict=True)
        ]
    mean, biased = statistics
    type = tensor_type(mean)
    share, variance = (Temporary(f"{biased.name}.{name}", type) for name in ("share", "corrected"))
    count = math.prod(x.tensor_type.static_shape) // x.tensor_type.static_shape[1]
    calls: list[tuple[str, tuple[Operand, ...], Operand, tuple[int, bytes]]] = [
        ("DivScalar", (biased,), share, pack("DIVN", other=count - 1)),
        ("EltwiseAdd", (biased, share), variance, pack("EADD", alpha=1.0)),
    ]
    lerp = pack("LRPN", weight=_number(node, "momentum"))
    for old, now, new in zip(running, (mean, variance), node.outputs[-2:], strict=True):
        calls.append(("LerpScalar", (old, now), new, lerp))
    return [
        BackendOp(kind, inputs, (result,), (node,), schema_id=schema_id, attrs=attrs)
        for kind, inputs, result, (schema_id, attrs) in calls
    ]


def _lower_backward(node: OpNode, pack: Pack) -> list[BackendOp] | str:
    """Return the op of the three gradients; those that are not wanted are computed, too."""
    tensors = _tensors_of(node, _BACKWARD)
    mask: Any = node.attrs.get("output_mask", (True, True, True))
    if not all(mask):
        return f"three gradients are computed, not {list(mask)}"
    if "save_var" in tensors:  # of batch_norm_backward, where it is the same
        tensors["save_invstd"] = tensors["save_var"]
    is_training = bool(node.attrs.get("train", node.attrs.get("update")))
    names = ("save_mean", "save_invstd") if is_training else ("running_mean", "running_var")
    if not all(name in tensors for name in names):
        return f"its gradient takes {' and '.join(names)}"
    order = ("grad_out", "input", *names, *(("weight",) if "weight" in tensors else ()))
    inputs = tuple(tensors[name] for name in order)
    schema_id, attrs = pack("BNEB", **_attrs(node, is_training=is_training))
    return [BackendOp("BatchNormBwd", inputs, node.outputs, (node,), schema_id=schema_id, attrs=attrs)]


def _tensors_of(node: OpNode, names: tuple[str, ...]) -> dict[str, Value]:
    """Return the tensors of a node by argument; those that it lacks are None among its attributes."""
    operands = node.operands or [name for name in names if name not in node.attrs][: len(node.inputs)]
    return dict(zip(operands, node.inputs, strict=True))


def _is_training(node: OpNode) -> bool:
    return bool(node.attrs.get("training", "no_training" not in node.op_type and node.op_type != _NO_UPDATE))


def _results(node: OpNode, *, is_training: bool) -> tuple[Operand, ...]:
    """Return the norm and its statistics, which in the graph are absent or empty if they are given."""
    y, *saved = node.outputs[:3]
    if is_training and saved:
        return (y, *saved)
    dtype = torch.float64 if y.tensor_type.dtype is torch.float64 else torch.float32
    channels = TensorType((y.tensor_type.static_shape[1],), dtype)
    return (y, *(Temporary(f"{node.name}.{name}", channels) for name in ("mean", "rstd")))


def _attrs(node: OpNode, *, is_training: bool) -> dict[str, float]:
    return {"flags": 0 if is_training else _RUNNING, **eps_in_two_parts(_number(node, "eps"))}


def _number(node: OpNode, name: str) -> float:
    value: Any = node.attrs[name]
    return float(value)


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

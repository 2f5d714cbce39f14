"""Rules of softmax, norms and their gradients: nodes that native ops over rows compute."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import torch

from npu_cuda.backend.op_builder import Lowered, OpBuilder, Rule, eps_in_two_parts, number
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir import OpNode
from npu_ir.plugins.backend import Operand


def _softmax(kind: str) -> Rule:
    def lower(node: OpNode) -> Lowered:
        build = OpBuilder(node, "self")
        source, result = tensor_type(node.inputs[0]).dtype, tensor_type(node.outputs[0]).dtype
        if source != result and result not in (torch.float32, torch.float64):
            return f"PyTorch rounds {source} to {result} before {kind}"
        if source is torch.float64 and result is torch.float32:
            return f"PyTorch rounds {source} to {result} before {kind}"
        axis = int(number(node, "dim"))
        if _is_over_columns(build, axis):
            return _softmax_of_columns(build, kind, axis)
        return build.add(kind, node.inputs, node.outputs, axis=axis)

    return lower


def _is_over_columns(build: OpBuilder, axis: int) -> bool:
    """Return whether rows of float32 are side by side: loops over one row would wait for memory."""
    (x,), (y,) = build.node.inputs, build.node.outputs
    type = tensor_type(x)
    return (
        type == tensor_type(y)
        and type.dtype is torch.float32
        and type.rank > 0
        and type.static_strides[-1] == 1
        and axis not in {-1, type.rank - 1}
    )


def _softmax_of_columns(build: OpBuilder, kind: str, axis: int) -> Lowered:
    """Return the ops of exponentials and their sums, each over all columns at once."""
    (x,), (y,) = build.node.inputs, build.node.outputs
    shape = list(tensor_type(x).static_shape)
    mask = 1 << axis % len(shape)
    shape[axis] = 1
    names = ("most", "total", "log_total")
    most, total, log_total = (build.temporary(name, shape, torch.float32) for name in names)
    shifted, exponentials = build.like("shifted", x), build.like("exponentials", x)
    build.add("Amax", (x,), (most,), axes=mask)
    build.add("Sub", (x, most), (shifted,), alpha=1.0)
    build.add("Exp", (shifted,), (exponentials,))
    build.add("Sum", (exponentials,), (total,), axes=mask)
    if kind == "Softmax":
        return build.add("Div", (exponentials, total), (y,))
    build.add("Log", (total,), (log_total,))
    return build.add("Sub", (shifted, log_total), (y,), alpha=1.0)


def _softmax_backward(kind: str) -> Rule:
    def lower(node: OpNode) -> Lowered:
        build = OpBuilder(node, "grad_output", "output")
        dtypes = {tensor_type(value).dtype for value in (*node.inputs, *node.outputs)}
        if len(dtypes) > 1:
            return f"{kind} has tensors of one dtype, not {', '.join(sorted(map(str, dtypes)))}"
        return build.add(kind, node.inputs, node.outputs, axis=int(number(node, "dim")))

    return lower


# ---- norms ----


def _affine(build: OpBuilder) -> list[Operand] | str:
    """Return weight and bias, if there are any, or why there is no op of them."""
    if "bias" in build.tensors and "weight" not in build.tensors:
        return "no native op has a bias without a weight"
    return build.present("weight", "bias")


def _statistics_shape(build: OpBuilder) -> tuple[int, ...]:
    shape = tensor_type(build.tensors["input"]).static_shape
    count = len(build.node.attrs["normalized_shape"])
    return (*shape[: len(shape) - count], *([1] * count))


def _layer_norm(node: OpNode) -> Lowered:
    build = OpBuilder(node, "input", "weight", "bias")
    affine = _affine(build)
    if isinstance(affine, str):
        return affine
    statistics = node.outputs[1:] or build.statistics(("mean", "rstd"), _statistics_shape(build))
    inputs, outputs = [build.tensors["input"], *affine], [node.outputs[0], *statistics]
    return build.add("LayerNormFwd", inputs, outputs, **eps_in_two_parts(number(node, "eps", 1e-5)))


def _layer_norm_backward(node: OpNode) -> Lowered:
    build = OpBuilder(node, "grad_out", "input", "mean", "rstd", "weight", "bias")
    inputs = build.present("input", "grad_out", "weight", "mean", "rstd")
    return build.add("LayerNormBwd", inputs, build.results())


def _default_eps(build: OpBuilder) -> float:
    is_double = tensor_type(build.tensors["input"]).dtype is torch.float64
    return torch.finfo(torch.float64 if is_double else torch.float32).eps


def _rms_norm(node: OpNode) -> Lowered:
    build = OpBuilder(node, "input", "weight")
    statistics = node.outputs[1:] or build.statistics(("rstd",), _statistics_shape(build))
    eps = number(node, "eps", _default_eps(build))
    return build.add("RmsNormFwd", build.present("input", "weight"), [node.outputs[0], *statistics], eps=eps)


def _rms_norm_backward(node: OpNode) -> Lowered:
    build = OpBuilder(node, "grad_out", "input", "rstd", "weight")
    return build.add("RmsNormBwd", build.present("input", "grad_out", "weight", "rstd"), build.results())


def _group_norm(node: OpNode) -> Lowered:
    build = OpBuilder(node, "input", "weight", "bias")
    affine = _affine(build)
    if isinstance(affine, str):
        return affine
    groups = int(number(node, "group", number(node, "num_groups")))
    batch = tensor_type(build.tensors["input"]).static_shape[0]
    statistics = node.outputs[1:] or build.statistics(("mean", "rstd"), (batch, groups))
    inputs, outputs = [build.tensors["input"], *affine], [node.outputs[0], *statistics]
    return build.add("GroupNormFwd", inputs, outputs, groups=groups, eps=number(node, "eps", 1e-5))


def _group_norm_backward(node: OpNode) -> Lowered:
    build = OpBuilder(node, "grad_out", "input", "mean", "rstd", "weight")
    inputs = build.present("input", "grad_out", "weight", "mean", "rstd")
    return build.add("GroupNormBwd", inputs, build.results(), groups=int(number(node, "group")))


def _of_sum(norm: Callable[[OpBuilder, Operand, Operand], None]) -> Rule:
    """Return the rule of a norm of ``input + residual``, which also returns this sum."""

    def lower(node: OpNode) -> Lowered:
        build = OpBuilder(node, "input", "residual", "weight", "bias")
        left, right = build.present("input", "residual")
        if tensor_type(left).dtype != tensor_type(right).dtype:
            return "a norm of a sum adds tensors of one dtype"
        if "bias" in build.tensors and "weight" not in build.tensors:
            return "no native op has a bias without a weight"
        result, total = node.outputs
        build.add("EltwiseAdd", [left, right], [total])
        build.tensors["input"] = total
        norm(build, total, result)
        return build.ops

    return lower


def _layer_norm_of(build: OpBuilder, total: Operand, result: Operand) -> None:
    statistics = build.statistics(("mean", "rstd"), _statistics_shape(build))
    eps = eps_in_two_parts(number(build.node, "eps"))
    build.add("LayerNormFwd", [total, *build.present("weight", "bias")], [result, *statistics], **eps)


def _rms_norm_of(build: OpBuilder, total: Operand, result: Operand) -> None:
    statistics = build.statistics(("rstd",), _statistics_shape(build))
    eps = number(build.node, "eps", _default_eps(build))
    build.add("RmsNormFwd", [total, *build.present("weight")], [result, *statistics], eps=eps)


ROW_RULES: Mapping[str, tuple[Rule, ...]] = {
    "aten._softmax.default": (_softmax("Softmax"),),
    "aten.softmax.int": (_softmax("Softmax"),),
    "aten._log_softmax.default": (_softmax("LogSoftmax"),),
    "aten.log_softmax.int": (_softmax("LogSoftmax"),),
    "aten._softmax_backward_data.default": (_softmax_backward("SoftmaxBwd"),),
    "aten._log_softmax_backward_data.default": (_softmax_backward("LogSoftmaxBwd"),),
    "aten.native_layer_norm.default": (_layer_norm,),
    "aten.layer_norm.default": (_layer_norm,),
    "aten.native_layer_norm_backward.default": (_layer_norm_backward,),
    "aten.rms_norm.default": (_rms_norm,),
    "aten._fused_rms_norm.default": (_rms_norm,),
    "aten._fused_rms_norm_backward.default": (_rms_norm_backward,),
    "aten.native_group_norm.default": (_group_norm,),
    "aten.group_norm.default": (_group_norm,),
    "aten.native_group_norm_backward.default": (_group_norm_backward,),
    "npu.add_layer_norm.default": (_of_sum(_layer_norm_of),),
    "npu.add_rms_norm.default": (_of_sum(_rms_norm_of),),
}

"""Rules of convolutions over 1, 2 or 3 axes, transposed or not, and of their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npu_cuda.backend.op_builder import Lowered, OpBuilder, Rule, by_axis
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir import OpNode

_TENSORS = ("input", "weight", "bias")
_GRADIENT_TENSORS = ("grad_output", "input", "weight")


def _lower_convolution(node: OpNode) -> Lowered:
    return _convolution(node, is_transposed=bool(node.attrs.get("transposed", False)))


def _lower_transposed(node: OpNode) -> Lowered:
    return _convolution(node, is_transposed=True)


def _convolution(node: OpNode, *, is_transposed: bool) -> Lowered:
    build = OpBuilder(node, *_TENSORS)
    if (reason := _unsupported(build)) is not None:
        return reason
    attrs = _attrs(build, is_transposed=is_transposed)
    return build.add("Conv", build.present(*_TENSORS), node.outputs, **attrs)


def _lower_backward(node: OpNode) -> Lowered:
    """Return the ops of the gradients that are wanted: of the input, the weights and the bias."""
    build = OpBuilder(node, *_GRADIENT_TENSORS)
    if (reason := _unsupported(build)) is not None:
        return reason
    is_transposed = bool(node.attrs["transposed"])
    attrs = _attrs(build, is_transposed=is_transposed)
    grad, x, weight = build.present(*_GRADIENT_TENSORS)
    mask: Any = node.attrs["output_mask"]
    of_input, of_weight, of_bias = node.outputs
    if mask[0]:
        reverse = {**attrs, "transposed": int(not is_transposed)}
        build.add("Conv", (grad, weight), (of_input,), **reverse)
    if mask[1]:
        build.add("ConvWeightGradient", (x, grad), (of_weight,), **attrs)
    if mask[2]:
        axes = sum(1 << axis for axis in range(tensor_type(grad).rank) if axis != 1)
        build.add("Sum", (grad,), (of_bias,), axes=axes)
    return build.ops or "none of its gradients is wanted"


def _lower_packed(node: OpNode) -> Lowered:
    build = OpBuilder(node, "input", "panels", "bias")
    numbers = by_axis({name: node.attrs[name] for name in ("kernel", "stride", "padding", "dilation")})
    tensors = build.present("input", "panels", "bias")
    channels, rows = (tensor_type(build.tensors[name]).static_shape[1] for name in ("input", "panels"))
    numbers["groups"] = channels * numbers["kernel_h"] * numbers["kernel_w"] // rows
    return build.add("PackedConv", tensors, node.outputs, **numbers, has_bias=int(len(tensors) > 2))


def _lower_packed_transposed(node: OpNode) -> Lowered:
    build = OpBuilder(node, "input", "panels", "bias")
    numbers = by_axis({name: node.attrs[name] for name in ("kernel", "stride", "padding")})
    numbers["transposed"] = 1
    tensors = build.present("input", "panels", "bias")
    return build.add("PackedConv", tensors, node.outputs, **numbers, has_bias=int(len(tensors) > 2))


def _lower_winograd(node: OpNode) -> Lowered:
    build = OpBuilder(node, "input", "panels", "bias")
    tensors = build.present("input", "panels", "bias")
    numbers = by_axis({"kernel": (3, 3), "padding": node.attrs["padding"]})
    numbers |= {"winograd_tile": int(node.attrs["tile"]), "has_bias": int(len(tensors) > 2)}
    return build.add("PackedConv", tensors, node.outputs, **numbers)


def _unsupported(build: OpBuilder) -> str | None:
    rank, weights = (tensor_type(build.tensors[name]).rank for name in ("input", "weight"))
    if rank != weights:
        return f"Conv takes batches of images: {rank} axes, weights of {weights}"
    padding = build.node.attrs.get("padding")
    if isinstance(padding, str) and padding != "valid":
        return f"Conv takes numbers as padding, not {padding!r}"
    return None


def _attrs(build: OpBuilder, *, is_transposed: bool) -> dict[str, int]:
    spatial = tensor_type(build.tensors["weight"]).rank - 2
    lists: dict[str, Any] = {}
    for name, default in (("stride", 1), ("padding", 0), ("dilation", 1)):
        given = _attribute(build.node, name, default)
        numbers: list[Any] = (
            [0 if given == "valid" else given] if isinstance(given, int | str) else list(given)
        )
        lists[name] = numbers * spatial if len(numbers) == 1 else numbers
    groups = int(_attribute(build.node, "groups", 1))
    return {"groups": groups, "transposed": int(is_transposed), **by_axis(lists)}


def _attribute(node: OpNode, name: str, default: int) -> Any:
    value = node.attrs.get(name)
    return default if value is None or value == [] else value


CONV_RULES: Mapping[str, tuple[Rule, ...]] = {
    "aten.convolution.default": (_lower_convolution,),
    "aten.convolution_backward.default": (_lower_backward,),
    **{
        f"aten.conv{n}d.{overload}": (_lower_convolution,)
        for n in (1, 2, 3)
        for overload in ("default", "padding")
    },
    "npu.packed_conv2d.default": (_lower_packed,),
    "npu.packed_conv_transpose2d.default": (_lower_packed_transposed,),
    "npu.winograd_conv2d.default": (_lower_winograd,),
    "aten.conv_transpose1d.default": (_lower_transposed,),
    "aten.conv_transpose2d.input": (_lower_transposed,),
    "aten.conv_transpose3d.input": (_lower_transposed,),
}

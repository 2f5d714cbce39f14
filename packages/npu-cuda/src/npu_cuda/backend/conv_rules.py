"""Rules of convolutions over 1, 2 or 3 axes, transposed or not, and of their gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npu_cuda.backend.op_builder import Lowered, OpBuilder
from npu_cuda.backend.pointwise_rules import Pack
from npu_ir import OpNode, TensorType
from npu_ir.plugins.backend import Operand

_TENSORS = ("input", "weight", "bias")
_GRADIENT_TENSORS = ("grad_output", "input", "weight")
_AXES = "dhw"


def _lower_convolution(node: OpNode, pack: Pack) -> Lowered:
    return _convolution(node, pack, is_transposed=bool(node.attrs.get("transposed", False)))


def _lower_transposed(node: OpNode, pack: Pack) -> Lowered:
    return _convolution(node, pack, is_transposed=True)


def _convolution(node: OpNode, pack: Pack, *, is_transposed: bool) -> Lowered:
    build = OpBuilder(node, pack, *_TENSORS)
    if (reason := _unsupported(node, build, "input")) is not None:
        return reason
    attrs = _attrs(node, build, is_transposed=is_transposed)
    return build.add("Conv", build.present(*_TENSORS), node.outputs, "CONV", **attrs)


def _lower_backward(node: OpNode, pack: Pack) -> Lowered:
    """Return the ops of the gradients that are wanted: of the input, the weights and the bias."""
    build = OpBuilder(node, pack, *_GRADIENT_TENSORS)
    if (reason := _unsupported(node, build, "input")) is not None:
        return reason
    is_transposed = bool(node.attrs["transposed"])
    attrs = _attrs(node, build, is_transposed=is_transposed)
    grad, x, weight = build.present(*_GRADIENT_TENSORS)
    mask: Any = node.attrs["output_mask"]
    of_input, of_weight, of_bias = node.outputs
    if mask[0]:
        reverse = {**attrs, "transposed": int(not is_transposed)}
        build.add("Conv", (grad, weight), (of_input,), "CONV", **reverse)
    if mask[1]:
        build.add("ConvWeightGradient", (x, grad), (of_weight,), "CNVW", **attrs)
    if mask[2]:
        axes = sum(1 << axis for axis in range(_rank(build, grad)) if axis != 1)
        build.add("Sum", (grad,), (of_bias,), "RDSM", axes=axes)
    return build.ops or "none of its gradients is wanted"


def _lower_packed(node: OpNode, pack: Pack) -> Lowered:
    build = OpBuilder(node, pack, "input", "panels", "bias")
    numbers: dict[str, int] = {}
    for name in ("kernel", "stride", "padding", "dilation"):
        pair: Any = node.attrs[name]
        numbers |= {f"{name}_{axis}": number for axis, number in zip("hw", pair, strict=True)}
    tensors = build.present("input", "panels", "bias")
    channels, rows = (build.type(build.tensors[name]).static_shape[1] for name in ("input", "panels"))
    numbers["groups"] = channels * numbers["kernel_h"] * numbers["kernel_w"] // rows
    return build.add("PackedConv", tensors, node.outputs, "CNVP", **numbers, has_bias=int(len(tensors) > 2))


def _lower_winograd(node: OpNode, pack: Pack) -> Lowered:
    build = OpBuilder(node, pack, "input", "panels", "bias")
    padding: Any = node.attrs["padding"]
    tensors = build.present("input", "panels", "bias")
    numbers = {"kernel_h": 3, "kernel_w": 3, "padding_h": padding[0], "padding_w": padding[1]}
    numbers |= {"winograd_tile": int(node.attrs["tile"]), "has_bias": int(len(tensors) > 2)}
    return build.add("PackedConv", tensors, node.outputs, "CNVP", **numbers)


def _unsupported(node: OpNode, build: OpBuilder, name: str) -> str | None:
    rank = _rank(build, build.tensors[name])
    weights = _rank(build, build.tensors["weight"])
    if rank != weights:
        return f"Conv takes batches of images: {rank} axes, weights of {weights}"
    if isinstance(node.attrs.get("padding"), str) and node.attrs["padding"] != "valid":
        return f"Conv takes numbers as padding, not {node.attrs['padding']!r}"
    return None


def _attrs(node: OpNode, build: OpBuilder, *, is_transposed: bool) -> dict[str, int]:
    spatial = _rank(build, build.tensors["weight"]) - 2
    attrs = {"groups": int(_attribute(node, "groups", 1)), "transposed": int(is_transposed)}
    for name, default in (("stride", 1), ("padding", 0), ("dilation", 1)):
        given = _attribute(node, name, default)
        numbers: list[Any] = (
            [0 if given == "valid" else given] if isinstance(given, int | str) else list(given)
        )
        numbers = numbers * spatial if len(numbers) == 1 else numbers
        attrs |= {f"{name}_{axis}": number for axis, number in zip(_AXES[-spatial:], numbers, strict=True)}
    return attrs


def _attribute(node: OpNode, name: str, default: int) -> Any:
    value = node.attrs.get(name)
    return default if value is None or value == [] else value


def _rank(build: OpBuilder, operand: Operand) -> int:
    type = build.type(operand)
    assert isinstance(type, TensorType)
    return type.rank


CONV_RULES: Mapping[str, tuple[Any, ...]] = {
    "aten.convolution.default": (_lower_convolution,),
    "aten.convolution_backward.default": (_lower_backward,),
    **{
        f"aten.conv{n}d.{overload}": (_lower_convolution,)
        for n in (1, 2, 3)
        for overload in ("default", "padding")
    },
    "npu.packed_conv2d.default": (_lower_packed,),
    "npu.winograd_conv2d.default": (_lower_winograd,),
    "aten.conv_transpose1d.default": (_lower_transposed,),
    "aten.conv_transpose2d.input": (_lower_transposed,),
    "aten.conv_transpose3d.input": (_lower_transposed,),
}

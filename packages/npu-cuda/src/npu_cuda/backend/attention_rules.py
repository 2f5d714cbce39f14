"""Rules of scaled dot product attention and its gradients, and of rotary embeddings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from npu_cuda.backend.op_builder import Lowered, OpBuilder, Rule, make_op
from npu_cuda.backend.tensor_views import tensor_type
from npu_cuda.backend.view_rules import view_of
from npu_ir import OpNode, TensorType
from npu_ir.core.storage import has_overlapping_elements
from npu_ir.plugins.backend import Operand, Temporary

_TENSORS = ("query", "key", "value", "attn_mask")
_GRADIENT_TENSORS = ("grad_out", "query", "key", "value", "out", "logsumexp", "attn_mask")
_AXES = 4  # batch, heads, queries or keys, features


def _lower_attention(node: OpNode) -> Lowered:
    build = OpBuilder(node, *_TENSORS)
    if (reason := _unsupported(node)) is not None:
        return reason
    if {tensor_type(tensor).rank for tensor in build.present("query", "key", "value")} == {_AXES}:
        return build.add("Attention", build.present(*_TENSORS), node.outputs, **_attrs(node))
    return _lower_other_axes(node, build)


def _lower_other_axes(node: OpNode, build: OpBuilder) -> Lowered:
    """Return attention over more or fewer axes: those before the heads are one axis of the batch."""
    query, key, value = (tensor_type(tensor).static_shape for tensor in build.present(*_TENSORS[:3]))
    if len(node.outputs) != 1 or not len(query) == len(key) == len(value):
        return f"Attention takes tensors of as many axes, not of {[len(query), len(key), len(value)]}"
    if not query[:-2] == key[:-2] == value[:-2]:
        return f"Attention of {len(query)} axes takes one batch, not {[query[:-2], key[:-2], value[:-2]]}"
    tensors = [_with_four_axes(build, name) for name in _TENSORS[:3]]
    if "attn_mask" in build.tensors:
        shape = tensor_type(build.tensors["attn_mask"]).static_shape
        if len(shape) > _AXES and shape[:-3] != query[:-3] and math.prod(shape[:-3]) != 1:
            return f"Attention takes a mask of each or of all items, not of {list(shape)}"
        tensors.append(_with_four_axes(build, "attn_mask"))
    (output,) = node.outputs
    if tensor_type(output).strides is not None:
        return f"Attention of {len(query)} axes has a contiguous result, not {output.type}"
    result = build.temporary(
        "result", _four_axes(tensor_type(output).static_shape), tensor_type(output).dtype
    )
    build.add("Attention", tensors, (result,), **_attrs(node))
    return [*build.ops, view_of(node, result, (output,), [0])]


def _with_four_axes(build: OpBuilder, name: str) -> Operand:
    """Return a tensor as one of four axes; it is copied where its memory has no such view."""
    operand = build.tensors[name]
    type = tensor_type(operand)
    if name == "attn_mask" and type.rank < _AXES < tensor_type(build.tensors["query"]).rank:
        return operand  # it broadcasts along the batch
    strides = None if has_overlapping_elements(type) else _four_strides(type)
    if strides is None:
        operand = build.temporary(f"{name}.copy", type.static_shape, type.dtype)
        build.add("Copy", (build.tensors[name],), (operand,))
        strides = _four_strides(tensor_type(operand))
    view = Temporary(
        f"{build.node.name}.{name}.view", TensorType(_four_axes(type.static_shape), type.dtype, strides)
    )
    build.ops.append(view_of(build.node, operand, (view,), [0]))
    return view


def _four_axes(shape: Sequence[int]) -> tuple[int, ...]:
    full = (*[1] * (_AXES - len(shape)), *shape)
    return (math.prod(full[: 1 - _AXES]), *full[1 - _AXES :])


def _four_strides(type: TensorType) -> tuple[int, ...] | None:
    """Return the strides of a tensor whose first axes are one; None where no single stride is that of all."""
    shape, strides = type.static_shape, type.static_strides
    if type.rank < _AXES:
        return (*[math.prod(shape)] * (_AXES - type.rank), *strides)
    first = [(size, stride) for size, stride in zip(shape, strides, strict=True)][: 1 - _AXES]
    long = [(size, stride) for size, stride in first if size != 1]
    if any(outer != size * stride for (_, outer), (size, stride) in itertools.pairwise(long)):
        return None
    return (long[-1][1] if long else math.prod(shape), *strides[1 - _AXES :])


def _lower_gradient(node: OpNode) -> Lowered:
    build = OpBuilder(node, *_GRADIENT_TENSORS)
    if (reason := _unsupported(node)) is not None:
        return reason
    ranks = [tensor_type(tensor).rank for tensor in build.present("query", "key", "value")]
    if ranks != [_AXES] * 3:
        return f"AttentionGradient takes tensors of 4 axes, not of {ranks}"
    if tensor_type(build.tensors["key"]).shape[2] == 1:
        # Here they are differences of sums in another order: noise, of which Adam makes a step of full size.
        return "the gradients of q and k are exactly 0 for a single key"
    tensors = build.present(*_GRADIENT_TENSORS)
    return build.add("AttentionGradient", tensors, node.outputs, **_attrs(node))


def _lower_rotary(node: OpNode) -> Lowered:
    x, cos, sin = node.inputs
    return [make_op(node, "Rotary", (cos, sin, x), node.outputs)]  # cos says how much is turned


def _unsupported(node: OpNode) -> str | None:
    dropout: Any = node.attrs.get("dropout_p") or 0
    if dropout != 0:
        return f"Attention has no dropout, here of {dropout}"
    if node.attrs.get("scale") == 0:
        return "Attention takes a scale other than 0"
    return None


def _attrs(node: OpNode) -> dict[str, float]:
    scale: Any = node.attrs.get("scale") or 0.0
    return {"scale": float(scale), "is_causal": int(bool(node.attrs.get("is_causal")))}


ATTENTION_RULES: Mapping[str, tuple[Rule, ...]] = {
    "aten.scaled_dot_product_attention.default": (_lower_attention,),
    "aten._scaled_dot_product_flash_attention_for_cpu.default": (_lower_attention,),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": (_lower_gradient,),
    "npu.rotary_embedding.default": (_lower_rotary,),
}

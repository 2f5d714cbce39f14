"""Rules of scaled dot product attention and its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from npu_cuda.backend.op_builder import Lowered, OpBuilder
from npu_cuda.backend.pointwise_rules import Pack
from npu_ir import OpNode

_TENSORS = ("query", "key", "value", "attn_mask")
_GRADIENT_TENSORS = ("grad_out", "query", "key", "value", "out", "logsumexp", "attn_mask")


def _lower_attention(node: OpNode, pack: Pack) -> Lowered:
    build = OpBuilder(node, pack, *_TENSORS)
    if (reason := _unsupported(node, build)) is not None:
        return reason
    return build.add("Attention", build.present(*_TENSORS), node.outputs, "ATTN", **_attrs(node))


def _lower_gradient(node: OpNode, pack: Pack) -> Lowered:
    build = OpBuilder(node, pack, *_GRADIENT_TENSORS)
    if (reason := _unsupported(node, build)) is not None:
        return reason
    tensors = build.present(*_GRADIENT_TENSORS)
    return build.add("AttentionGradient", tensors, node.outputs, "ATTG", **_attrs(node))


def _unsupported(node: OpNode, build: OpBuilder) -> str | None:
    dropout: Any = node.attrs.get("dropout_p") or 0
    if dropout != 0:
        return f"Attention has no dropout, here of {dropout}"
    if node.attrs.get("scale") == 0:
        return "Attention takes a scale other than 0"
    ranks = [build.type(tensor).rank for tensor in build.present("query", "key", "value")]
    if ranks != [4, 4, 4]:
        return f"Attention takes tensors of 4 axes, not of {ranks}"
    return None


def _attrs(node: OpNode) -> dict[str, float]:
    scale: Any = node.attrs.get("scale") or 0.0
    return {"scale": float(scale), "is_causal": int(bool(node.attrs.get("is_causal")))}


ATTENTION_RULES: Mapping[str, tuple[Any, ...]] = {
    "aten.scaled_dot_product_attention.default": (_lower_attention,),
    "aten._scaled_dot_product_flash_attention_for_cpu.default": (_lower_attention,),
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": (_lower_gradient,),
}

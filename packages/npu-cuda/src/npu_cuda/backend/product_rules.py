"""Rules of products of matrices, whose weights may be packed or quantized, and of recurrent layers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from npu_cuda.backend.op_builder import Lowered, OpBuilder, Rule, make_op
from npu_cuda.backend.pointwise_rules import is_float32
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir import OpNode
from npu_ir.plugins.backend import Operand

_RECURRENT_TENSORS = ("projected", "panels", "h", "c", "bias")
_CELLS: Mapping[object, int] = {"tanh": 0, "relu": 1, "lstm": 2, "gru": 3}


def _lower_matmul(node: OpNode) -> Lowered:
    if len(node.inputs) != 2 or len(node.outputs) != 1 or _unsupported_attrs(node):
        return "Gemm multiplies two tensors"
    return _gemm_ops(node, *node.inputs)


def _lower_linear(node: OpNode) -> Lowered:
    if len(node.inputs) not in (2, 3) or len(node.outputs) != 1 or _unsupported_attrs(node):
        return "Gemm takes an input, a weight and a bias"
    return _gemm_ops(node, *node.inputs, tb=int(tensor_type(node.inputs[1]).rank == 2))


def _lower_addmm(node: OpNode) -> Lowered:
    """Return the ops of ``addmm`` or ``baddbmm``."""
    alpha, beta = _real_attr(node, "alpha", 1), _real_attr(node, "beta", 1)
    if len(node.inputs) != 3 or len(node.outputs) != 1 or _unsupported_attrs(node, "alpha", "beta"):
        return "Gemm multiplies two tensors and adds a third"
    if alpha is None or beta is None:
        return f"Gemm takes real factors, not {dict(node.attrs)}"
    if alpha == 0:
        return "alpha=0: PyTorch leaves the product out, which may be NaN"
    if tensor_type(node.outputs[0]).dtype is torch.float64 and not (is_float32(alpha) and is_float32(beta)):
        return f"alpha={alpha} and beta={beta} are stored in float32"
    addend, left, right = node.inputs
    return _gemm_ops(node, left, right, *([addend] if beta else []), alpha=alpha, beta=beta)


def _gemm_ops(node: OpNode, *inputs: Operand, **given: float) -> Lowered:
    """Return the op of ``alpha * left @ right + beta * addend``, for any batches and strides."""
    fields = {**given, "beta": given.get("beta", 1.0) if len(inputs) == 3 else 0.0}
    return [make_op(node, "Gemm", inputs, node.outputs, **fields)]


def _lower_pack_matrix(node: OpNode) -> Lowered:
    return [make_op(node, "PackMatrix", node.inputs, node.outputs)]  # the result says the width


def _lower_packed_linear(node: OpNode) -> Lowered:
    return [make_op(node, "PackedGemm", node.inputs, node.outputs, has_bias=int(len(node.inputs) > 2))]


def _lower_quantized_linear(node: OpNode) -> Lowered:
    return [make_op(node, "QuantizedGemm", node.inputs, node.outputs)]  # dtypes say the bits


def _lower_dynamic_quantized_linear(node: OpNode) -> Lowered:
    # A call without the argument has the default of the schema, which is that of the attribute, too.
    given = {"block": int(node.attrs["block"])} if "block" in node.attrs else {}
    return [make_op(node, "DynamicQuantizedGemm", node.inputs, node.outputs, **given)]


def _lower_recurrent(node: OpNode) -> Lowered:
    build = OpBuilder(node, *_RECURRENT_TENSORS)
    cell = _CELLS[node.attrs.get("cell", "lstm")]
    attrs = {
        "cell": cell,
        "reverse": int(bool(node.attrs["reverse"])),
        "has_bias": int("bias" in build.tensors),
    }
    return build.add("Recurrent", build.present(*_RECURRENT_TENSORS), node.outputs, **attrs)


def _real_attr(node: OpNode, name: str, default: float) -> float | None:
    """Return a real number among the attributes; None if the attribute is anything else."""
    value: Any = node.attrs.get(name, default)
    return float(value) if type(value) in (int, float) else None


def _unsupported_attrs(node: OpNode, *known: str) -> str:
    """Return the names of the attributes that are set, except the known ones."""
    return ", ".join(name for name, value in node.attrs.items() if name not in known and value is not None)


PRODUCT_RULES: Mapping[str, tuple[Rule, ...]] = {
    **dict.fromkeys((f"aten.{op}.default" for op in ("mm", "bmm", "matmul", "mv", "dot")), (_lower_matmul,)),
    "aten.linear.default": (_lower_linear,),
    "aten.addmm.default": (_lower_addmm,),
    "aten.baddbmm.default": (_lower_addmm,),
    "npu.linear.default": (_lower_linear,),
    "npu.pack_matrix.default": (_lower_pack_matrix,),
    "npu.packed_linear.default": (_lower_packed_linear,),
    "npu.quantized_linear.default": (_lower_quantized_linear,),
    "npu.dynamic_quantized_linear.default": (_lower_dynamic_quantized_linear,),
    "npu.lstm_layer.default": (_lower_recurrent,),
    "npu.rnn_layer.default": (_lower_recurrent,),
}

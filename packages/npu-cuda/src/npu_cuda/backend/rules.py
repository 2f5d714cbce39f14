"""Lowering rules: one for each op of PyTorch or npu-passes that has native kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from npu_cuda import _C
from npu_cuda.backend.attention_rules import ATTENTION_RULES
from npu_cuda.backend.batch_norm_rules import BATCH_NORM_RULES
from npu_cuda.backend.conv_rules import CONV_RULES
from npu_cuda.backend.copy_rules import COPY_RULES
from npu_cuda.backend.index_rules import INDEX_RULES
from npu_cuda.backend.loss_rules import LOSS_RULES
from npu_cuda.backend.optimizer_rules import OPTIMIZER_RULES
from npu_cuda.backend.pointwise_rules import ELEMENTWISE_RULES, Condition, ElementwiseRule, Pack, is_float32
from npu_cuda.backend.pool_rules import POOL_RULES
from npu_cuda.backend.recurrent_rules import RECURRENT_RULES
from npu_cuda.backend.reduction_rules import REDUCTION_RULES, lower_mse_loss
from npu_cuda.backend.row_rules import ROW_RULES
from npu_cuda.backend.tensor_views import tensor_type
from npu_cuda.backend.view_rules import VIEW_RULES
from npu_cuda.errors import InvalidArgumentError
from npu_ir import OpNode, ScalarType, TensorType, Value
from npu_ir.core.storage import has_overlapping_elements
from npu_ir.plugins.backend import BackendOp, Operand

# A rule returns the ops that compute a node, without kernels, or the reason why there are none. It looks at
# the node alone: dtypes, shapes and strides are checked by the kernels.
Rule = Callable[[OpNode, "Pack"], "list[BackendOp] | str"]


def lower_node(node: OpNode, pack: Pack) -> Iterator[list[BackendOp] | str]:
    """Yield the ops of each rule of ``node``, without kernels, or the reason why it does not compute it."""
    alternatives = RULES.get(node.op_type)
    if alternatives is None:
        yield f"no native op for {node.op_type}"
    elif reason := _unsupported_value(node):
        yield reason
    else:
        yield from (rule(node, pack) for rule in alternatives)


def _unsupported_value(node: OpNode) -> str | None:
    """Return why no native op takes the values of a node."""
    for value in (*node.inputs, *node.outputs):
        type = value.type
        if type == ScalarType("none") and not value.use_count:  # an output that the node need not compute
            continue
        if not isinstance(type, TensorType):
            return f"native ops take tensors, not a number of type {type}"
        if type.layout is not torch.strided:
            return f"native ops take strided tensors, not {type}"
        if type.symbols:
            return f"native ops take fixed sizes, not {type}"
        if has_overlapping_elements(type) and not _takes_expanded(node, value):
            return f"native ops take tensors whose elements share no memory, not {type}"
    return None


def _takes_expanded(node: OpNode, value: Value) -> bool:
    """Return whether the elements of an input or output may share memory.

    Such inputs come in any strides, not only in those of their type: a kernel must read them all, and views
    of them are not known. The result of a view has its strides.
    """
    return node.op_type in (ATTENTION_RULES if value in node.inputs else VIEW_RULES)


def lowering_rule(
    op_type: str,
    kind: str,
    *,
    numbers: Mapping[str, str] | None = None,
    condition: Condition | None = None,
) -> None:
    """Have nodes of an op computed by a native op: one of a library, of Python, or of npu-cuda.

    A later rule is asked before earlier ones, and before those of npu-cuda.

    Args:
        op_type: The op of the nodes: "aten.softplus.default".
        kind: The name of the native op, which is registered. Its inputs are the tensors of the node.
        numbers: Field of its attributes to argument of the node, for arguments that are numbers.
        condition: Returns why a node is not computed by it; None if it is.

    Raises:
        InvalidArgumentError: There is no such native op.
    """
    if kind not in _C.kinds():
        raise InvalidArgumentError(
            f"lowering_rule: there is no native op {kind!r}; npu_cuda.kinds() lists them"
        )
    rule = ElementwiseRule(kind, numbers or {}, condition=condition or (lambda _: None))
    RULES[op_type] = (rule, *RULES.get(op_type, ()))


def _lower_matmul(node: OpNode, pack: Pack) -> list[BackendOp] | str:
    if len(node.inputs) != 2 or len(node.outputs) != 1 or _unsupported_attrs(node):
        return "Gemm multiplies two tensors"
    return _gemm_ops(node, pack, *node.inputs)


def _lower_linear(node: OpNode, pack: Pack) -> list[BackendOp] | str:
    if len(node.inputs) not in (2, 3) or len(node.outputs) != 1 or _unsupported_attrs(node):
        return "Gemm takes an input, a weight and a bias"
    return _gemm_ops(node, pack, *node.inputs, tb=int(tensor_type(node.inputs[1]).rank == 2))


def _lower_addmm(node: OpNode, pack: Pack) -> list[BackendOp] | str:
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
    return _gemm_ops(node, pack, left, right, *([addend] if beta else []), alpha=alpha, beta=beta)


def _gemm_ops(node: OpNode, pack: Pack, *inputs: Operand, **given: float) -> list[BackendOp]:
    """Return the op of ``alpha * left @ right + beta * addend``, for any batches and strides."""
    schema_id, attrs = pack("GEMM", **{**given, "beta": given.get("beta", 1.0) if len(inputs) == 3 else 0.0})
    return [BackendOp("Gemm", inputs, node.outputs, (node,), schema_id=schema_id, attrs=attrs)]


def _lower_pack_matrix(node: OpNode, pack: Pack) -> list[BackendOp]:  # noqa: ARG001 - the result says the width
    return [BackendOp("PackMatrix", node.inputs, node.outputs, (node,))]


def _lower_packed_linear(node: OpNode, pack: Pack) -> list[BackendOp]:
    schema_id, attrs = pack("PGEM", has_bias=int(len(node.inputs) > 2))
    return [BackendOp("PackedGemm", node.inputs, node.outputs, (node,), schema_id=schema_id, attrs=attrs)]


def _lower_quantized_linear(node: OpNode, pack: Pack) -> list[BackendOp]:  # noqa: ARG001 - dtypes say the bits
    return [BackendOp("QuantizedGemm", node.inputs, node.outputs, (node,))]


def _lower_dynamic_quantized_linear(node: OpNode, pack: Pack) -> list[BackendOp]:
    # A call without the argument has the default of the schema, which is that of the attribute, too.
    given = {"block": int(node.attrs["block"])} if "block" in node.attrs else {}
    schema_id, attrs = pack("DQGM", **given)
    kind = "DynamicQuantizedGemm"
    return [BackendOp(kind, node.inputs, node.outputs, (node,), schema_id=schema_id, attrs=attrs)]


def _lower_rotary(node: OpNode, pack: Pack) -> list[BackendOp]:  # noqa: ARG001 - cos says how much is turned
    x, cos, sin = node.inputs
    return [BackendOp("Rotary", (cos, sin, x), node.outputs, (node,))]


def _real_attr(node: OpNode, name: str, default: float) -> float | None:
    """Return a real number among the attributes; None if the attribute is anything else."""
    value: Any = node.attrs.get(name, default)
    return float(value) if type(value) in (int, float) else None


def _unsupported_attrs(node: OpNode, *known: str) -> str:
    """Return the names of the attributes that are set, except the known ones."""
    return ", ".join(name for name, value in node.attrs.items() if name not in known and value is not None)


RULES: dict[str, tuple[Rule, ...]] = {
    **ELEMENTWISE_RULES,
    **VIEW_RULES,
    **REDUCTION_RULES,
    **BATCH_NORM_RULES,
    "aten.mse_loss.default": (*ELEMENTWISE_RULES["aten.mse_loss.default"], lower_mse_loss),
    **ROW_RULES,
    **LOSS_RULES,
    **INDEX_RULES,
    **CONV_RULES,
    **ATTENTION_RULES,
    **POOL_RULES,
    **OPTIMIZER_RULES,
    **RECURRENT_RULES,
    **COPY_RULES,
    # Elements that are not defined are zeros here.
    "aten.empty_like.default": ELEMENTWISE_RULES["aten.zeros_like.default"],
    "aten.new_empty.default": INDEX_RULES["aten.new_zeros.default"],
    # In the canonical form numbers are where tensors may be.
    "aten.floor_divide.default": ELEMENTWISE_RULES["aten.floor_divide.Scalar"],
    **dict.fromkeys((f"aten.{op}.default" for op in ("mm", "bmm", "matmul", "mv", "dot")), (_lower_matmul,)),
    "aten.linear.default": (_lower_linear,),
    "aten.addmm.default": (_lower_addmm,),
    "aten.baddbmm.default": (_lower_addmm,),
    "npu.linear.default": (_lower_linear,),
    "npu.pack_matrix.default": (_lower_pack_matrix,),
    "npu.packed_linear.default": (_lower_packed_linear,),
    "npu.quantized_linear.default": (_lower_quantized_linear,),
    "npu.dynamic_quantized_linear.default": (_lower_dynamic_quantized_linear,),
    "npu.rotary_embedding.default": (_lower_rotary,),
}

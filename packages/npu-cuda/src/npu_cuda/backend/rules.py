"""Lowering rules: one for each op of PyTorch or npu-passes that has native kernels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from npu_cuda import _C
from npu_cuda.backend.attention_rules import ATTENTION_RULES
from npu_cuda.backend.batch_norm_rules import BATCH_NORM_RULES
from npu_cuda.backend.conv_rules import CONV_RULES
from npu_cuda.backend.copy_rules import COPY_RULES
from npu_cuda.backend.index_rules import INDEX_RULES
from npu_cuda.backend.loss_rules import LOSS_RULES
from npu_cuda.backend.op_builder import Lowered, Rule, op_info
from npu_cuda.backend.optimizer_rules import OPTIMIZER_RULES
from npu_cuda.backend.pointwise_rules import (
    ELEMENTWISE_RULES,
    Condition,
    ElementwiseRule,
    counted,
    field_codes,
)
from npu_cuda.backend.pool_rules import POOL_RULES
from npu_cuda.backend.product_rules import PRODUCT_RULES
from npu_cuda.backend.reduction_rules import REDUCTION_RULES, lower_mse_loss
from npu_cuda.backend.row_rules import ROW_RULES
from npu_cuda.backend.view_rules import VIEW_RULES
from npu_cuda.errors import InvalidArgumentError
from npu_ir import OpNode, ScalarType, TensorType, Value
from npu_ir.core.storage import has_overlapping_elements
from npu_ir.ops.schema import ArgKind, absence_of, find_op, schema_of


def lower_node(node: OpNode) -> Iterator[Lowered]:
    """Yield the ops of each rule of ``node``, without kernels, or the reason why it does not compute it."""
    alternatives = RULES.get(node.op_type)
    if alternatives is None:
        yield f"no native op for {node.op_type}"
    elif reason := _unsupported_value(node):
        yield reason
    else:
        yield from (rule(node) for rule in alternatives)


def added_rules(node: OpNode) -> Iterator[ElementwiseRule]:
    """Yield the rules of ``node`` that users added, in the order in which they are asked."""
    for rule in RULES.get(node.op_type, ()):
        if isinstance(rule, ElementwiseRule) and rule.is_added:
            yield rule


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
        numbers: Field of its attributes to argument of the node, for arguments that are numbers: one that a
            node lacks is the default of its op.
        condition: Returns why a node is not computed by it; None if it is.

    Raises:
        InvalidArgumentError: The op, where others of its namespace are registered, the native op, a field or
            an argument does not exist; the native op takes another number of tensors than the op has; or
            the condition cannot be called.
    """
    if not isinstance(op_type, str):
        raise InvalidArgumentError(f"lowering_rule: op_type={op_type!r} is not the name of an op")
    if (absence := absence_of(op_type)) is not None:
        raise InvalidArgumentError(f"lowering_rule: {absence}")
    if numbers is not None and not isinstance(numbers, Mapping):
        raise InvalidArgumentError(f"lowering_rule: numbers={numbers!r} is not a dict of fields to arguments")
    if kind not in _C.kinds():
        raise InvalidArgumentError(
            f"lowering_rule: there is no native op {kind!r}; npu_cuda.kinds() lists them"
        )
    if condition is not None and not callable(condition):
        raise InvalidArgumentError(f"lowering_rule: condition={condition!r} is not a function of a node")
    _require_numbers(op_type, kind, numbers or {})
    _require_tensors(op_type, kind, numbers or {})
    rule = ElementwiseRule(kind, numbers or {}, condition=condition or (lambda _: None), is_added=True)
    RULES[op_type] = (rule, *RULES.get(op_type, ()))


def _require_numbers(op_type: str, kind: str, numbers: Mapping[str, str]) -> None:
    """Require that a native op has these fields, and an op, if PyTorch knows it, these arguments."""
    schema, op = op_info(kind)["schema"], find_op(op_type)
    fields = field_codes(schema) if schema else {}
    arguments = None if op is None else schema_of(op).by_name
    for name, argument in numbers.items():
        if name not in fields:
            raise InvalidArgumentError(
                f"lowering_rule: {kind} has no attribute {name!r}; it has {', '.join(fields) or 'none'}"
            )
        if arguments is not None and argument not in arguments:
            raise InvalidArgumentError(
                f"lowering_rule: {op_type} has no argument {argument!r}; it has {', '.join(arguments)}"
            )


def _require_tensors(op_type: str, kind: str, numbers: Mapping[str, str]) -> None:
    """Require that a native op takes and returns as many tensors as nodes of an op have, if that is known."""
    op, info = find_op(op_type), op_info(kind)
    schema = None if op is None else schema_of(op)
    if schema is None or not schema.is_flat or schema.writes:
        return
    least, most = info["inputs"]
    # A number of the attributes stands where a tensor may.
    required = [arg for arg in schema.args if arg.kind is ArgKind.TENSOR and arg.name not in numbers.values()]
    possible = [arg for arg in schema.args if arg.kind is not ArgKind.PLAIN]
    if len(required) > most or len(possible) < least:
        raise InvalidArgumentError(
            f"lowering_rule: {kind} takes {counted(least, most)}, and nodes of {op_type} have "
            f"{counted(len(required), len(possible))}"
        )
    count = len(schema.return_names)
    if count != info["outputs"]:
        raise InvalidArgumentError(
            f"lowering_rule: {kind} returns {counted(info['outputs'])}, and {op_type} {count}"
        )


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
    **PRODUCT_RULES,
    **COPY_RULES,
    # Elements that are not defined are zeros here.
    "aten.empty_like.default": ELEMENTWISE_RULES["aten.zeros_like.default"],
    "aten.new_empty.default": INDEX_RULES["aten.new_zeros.default"],
    # In the canonical form numbers are where tensors may be.
    "aten.floor_divide.default": ELEMENTWISE_RULES["aten.floor_divide.Scalar"],
}

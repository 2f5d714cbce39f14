"""Numbers known at compile time: static sizes, and arithmetic on them."""

from __future__ import annotations

from typing import Any

import torch

from npu_ir import ExecutionError, OpNode, ScalarType, TensorType, Value
from npu_ir.core.literals import Literal
from npu_ir.graph.specialize import known_number
from npu_ir.ops.execution import execute_node
from npu_ir.ops.schema import SCALAR_FUNCTIONS

_ASSERTION = "aten._assert_scalar.default"
_SIZES = ("aten.sym_size.int", "aten.size.int")
_COUNTS = ("aten.sym_numel.default", "aten.numel.default")
_CPU = torch.device("cpu")


def static_number(node: OpNode) -> Literal | None:
    """Return the number that a node computes, if it is known and computing it cannot fail."""
    if len(node.outputs) != 1 or not isinstance(node.outputs[0].type, ScalarType):
        return None
    is_function = node.op_type in SCALAR_FUNCTIONS
    if (
        not is_function
        and not node.op_type.startswith("aten.sym_")
        and node.op_type not in (*_SIZES, *_COUNTS)
    ):
        return None  # an op that reads a number from a tensor may fail, so it stays
    stated = known_number(node.outputs[0])
    if stated is not None:
        return stated
    return _evaluate(node) if is_function else _static_size(node)


def is_true_assertion(node: OpNode) -> bool:
    """Return whether a node only asserts a condition that is known to be true."""
    return node.op_type == _ASSERTION and not node.inputs and bool(node.attrs.get("self"))


def accepts_literal(value: Value) -> bool:
    """Return whether a use of ``value`` can be replaced by a literal."""
    is_result = any(node is None and isinstance(slot, int) for node, slot in value.uses)
    return is_result or bool(literal_uses(value))


def literal_uses(value: Value) -> list[tuple[OpNode, int]]:
    """Return the uses of ``value`` by nodes that record which argument each input is."""
    return [
        (node, slot)
        for node, slot in value.uses
        if node is not None and node.operands is not None and isinstance(slot, int)
    ]


def _static_size(node: OpNode) -> int | None:
    """Return the size that a node reads from a tensor."""
    type = node.inputs[0].type if node.inputs else None
    if not isinstance(type, TensorType):
        return None
    size: Any = None
    if node.op_type in _COUNTS:
        size = type.numel
    elif node.op_type in _SIZES and isinstance(node.attrs.get("dim"), int):
        size = type.shape[node.attrs["dim"]]
    return size if isinstance(size, int) else None


def _evaluate(node: OpNode) -> Literal | None:
    """Return the result of a function of literals; None if it has other arguments, or fails."""
    if node.inputs:
        return None
    try:
        return execute_node(node, [], _CPU)[0]
    except ExecutionError:
        return None  # it fails when the graph runs, too, and says why

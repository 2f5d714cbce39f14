"""Numbers known at compile time: static sizes, and arithmetic on them."""

from __future__ import annotations

from typing import Any

import torch

from npu_ir import ExecutionError, Graph, OpNode, ScalarType, TensorType, Value
from npu_ir.core.literals import Literal
from npu_ir.ops.execution import execute_node
from npu_ir.ops.scalar_functions import SCALAR_FUNCTIONS

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
    stated = number_in_type(node.outputs[0])
    if stated is not None:
        return stated
    return _evaluate(node) if is_function else _static_size(node)


def number_in_type(value: Value) -> int | None:
    """Return the number stated by the type of a value; None if the type states none."""
    known = value.type.value if isinstance(value.type, ScalarType) else None
    return known if isinstance(known, int) else None


def is_true_assertion(node: OpNode) -> bool:
    """Return whether a node only asserts a condition that is known to be true."""
    return node.op_type == _ASSERTION and not node.inputs and bool(node.attrs.get("self"))


def replace_by_literal(graph: Graph, value: Value, literal: Literal) -> None:
    """Replace the uses of ``value`` by a literal, wherever a literal is allowed."""
    for node, index in sorted(_literal_uses(value), key=lambda place: -place[1]):
        graph.set_literal(node, index, literal)
    if _is_result(value):
        structure, leaves = graph.results
        graph.set_results(structure, [literal if leaf is value else leaf for leaf in leaves])


def accepts_literal(value: Value) -> bool:
    """Return whether a use of ``value`` can be replaced by a literal."""
    return bool(_literal_uses(value)) or _is_result(value)


def _literal_uses(value: Value) -> list[tuple[OpNode, int]]:
    """Return the uses of ``value`` by nodes that record which argument each input is."""
    return [
        (node, slot)
        for node, slot in value.uses
        if node is not None and node.operands is not None and isinstance(slot, int)
    ]


def _is_result(value: Value) -> bool:
    return any(node is None and isinstance(slot, int) for node, slot in value.uses)


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

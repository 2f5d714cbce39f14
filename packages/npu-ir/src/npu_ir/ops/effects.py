"""Effects of nodes: purity, random numbers, views, and uninitialized memory."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch

from npu_ir._torch.ops import GETITEM, HigherOrderOperator, OpOverload, has_side_effects
from npu_ir.core.node import OpNode, Value
from npu_ir.ops.schema import SCALAR_FUNCTIONS, Op, find_op, is_permanent, schema_of

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

_GETITEM = str(GETITEM)
# Namespaces of collective ops, in which every process must take part.
_COMMUNICATION = ("_c10d_functional", "c10d_functional", "_dtensor", "symm_mem")
# An argument that orders an assertion relative to other nodes.
_TOKEN = "dep_token"
# If one of these arguments is off, an op that may draw random numbers does not.
_SWITCHES = ("train", "training", "p", "dropout", "dropout_p")

_MAKERS = frozenset({"empty", "empty_like", "empty_permuted", "empty_quantized", "empty_strided"})
# Ops that overwrite a part of their first input, and keep the rest.
_FILLERS = frozenset(
    {
        "as_strided_scatter",
        "diagonal_scatter",
        "index_copy",
        "index_put",
        "masked_scatter",
        "scatter",
        "select_scatter",
        "slice_scatter",
    }
)


def is_pure(node: OpNode) -> bool:
    """Return whether ``node`` only computes its outputs, and the same ones for the same inputs.

    A pure node may be dropped if nothing reads its outputs, run once for many calls, or run at another time.
    An op that is not registered with PyTorch is not known to be pure, even if it has an executor.
    """
    if not node.outputs:
        return False
    known = _purity(node.op_type)
    if known is not None:
        return known
    op = find_op(node.op_type)
    if op is None or _has_effects(op):
        return False
    if isinstance(op, HigherOrderOperator):
        return bool(node.regions) and all(map(is_pure, _inner_nodes(node)))
    return not _draws_random_numbers(node, op)


@functools.lru_cache(maxsize=4096)
def _purity(op_type: str) -> bool | None:
    """Return whether nodes of an op are pure; None if it depends on the node, or the op may change."""
    if op_type in SCALAR_FUNCTIONS or op_type == _GETITEM:
        return True
    op = find_op(op_type) if is_permanent(op_type) else None
    if not isinstance(op, OpOverload):
        return None
    if _has_effects(op):
        return False
    return None if _may_draw(op) else True


def is_random(node: OpNode) -> bool:
    """Return whether ``node``, or a node in its regions, draws random numbers.

    An op with dropout does not if the dropout is off: in evaluation mode, or with a probability of 0.
    """
    return _draws_random_numbers(node, find_op(node.op_type)) or any(map(is_random, _inner_nodes(node)))


def is_view(node: OpNode) -> bool:
    """Return whether an output of ``node`` may share memory with an input, according to the op's schema.

    An op that mutates its inputs is not a view.
    """
    op = find_op(node.op_type)
    return isinstance(op, OpOverload) and _returns_view(op)


def overwrites_part(node: OpNode) -> bool:
    """Return whether ``node`` returns its first input with a part of it overwritten."""
    return aten_name(node) in _FILLERS


def _inner_nodes(node: OpNode) -> Iterator[OpNode]:
    for region in node.regions.values():
        yield from region.nodes


@functools.cache
def _has_effects(op: Op) -> bool:
    """Return whether an op does more than compute its results and draw random numbers."""
    schema = schema_of(op)
    is_collective = isinstance(op, OpOverload) and op.namespace in _COMMUNICATION
    return schema.writes or _TOKEN in schema.by_name or is_collective or has_side_effects(op)


@functools.cache
def _returns_view(op: OpOverload) -> bool:
    shared = [item.alias_info for item in op._schema.returns if item.alias_info is not None]
    return bool(shared) and not schema_of(op).writes


@functools.cache
def _may_draw(op: OpOverload) -> bool:
    return torch.Tag.nondeterministic_seeded in op.tags


def _draws_random_numbers(node: OpNode, op: Any) -> bool:
    if not isinstance(op, OpOverload) or not _may_draw(op):
        return False
    return not any(_is_off(node, argument) for argument in op._schema.arguments)


def _is_off(node: OpNode, argument: Any) -> bool:
    """Return whether an argument is a switch that is off; one that is known only at run time may be on."""
    if argument.name not in _SWITCHES or argument.name in (node.operands or ()):
        return False
    value = node.attrs.get(argument.name, argument.default_value if argument.has_default_value() else None)
    return isinstance(value, (bool, int, float)) and value == 0


def find_uninitialized_values(graph: Graph) -> set[Value]:
    """Return the values that may contain uninitialized memory.

    It spreads through views and ops that overwrite only a part.
    """
    values: set[Value] = set()
    for node in graph.nodes:
        is_kept = overwrites_part(node) or is_view(node)
        is_passed_on = bool(node.inputs) and node.inputs[0] in values and is_kept
        if is_passed_on or returns_uninitialized(node):
            values.update(node.outputs)
    return values


def returns_uninitialized(node: OpNode) -> bool:
    """Return whether a node returns memory as it is allocated: ``empty``, ``new_empty`` and their kind."""
    return aten_name(node).removeprefix("new_") in _MAKERS


def aten_name(node: OpNode) -> str:
    """Return the name of an ATen op without its overload; "" of any other."""
    parts = node.op_type.split(".")
    return parts[1] if parts[0] == "aten" and len(parts) == 3 else ""

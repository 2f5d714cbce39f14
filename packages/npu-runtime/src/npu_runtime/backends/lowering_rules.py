"""Rules for the ops to which a backend lowers a graph, each with a name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.graph.partition import PartitionGraph
from npu_ir.plugins.backend import BackendOp, Operand, Temporary

_FIELDS = {
    "kind": str,
    "kernel": str,
    "schema_id": int,
    "attrs": bytes,
    "overwrites": tuple,
    **dict.fromkeys(("inputs", "outputs", "nodes"), tuple),
}


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """The first rule that the ops of a backend break.

    Attributes:
        rule: Its name. *fields* have their types; *nodes* of an op are those of the graph, and its outputs
            are theirs; *order*: an op reads what is there; *single assignment*: nothing is made twice;
            *overwriting*: inputs that may be overwritten are, at their last use; *coverage*: each node has an
            op, and each result is made; *unchanged graph*: `Backend.lower` only reads it.
        problem: How it is broken.
        nodes: The nodes that it is about; none if that is unknown.
    """

    rule: str
    problem: str
    nodes: tuple[OpNode, ...] = ()


def lowering_problem(graph: Graph, ops: Sequence[BackendOp]) -> str | None:
    """Return the first problem of the ops from `Backend.lower` for ``graph``; None if there is none."""
    broken = find_broken_rule(graph, ops)
    return None if broken is None else broken.problem


def find_broken_rule(graph: Graph, ops: Sequence[BackendOp]) -> BrokenRule | None:
    """Return the first rule that the ops from `Backend.lower` for ``graph`` break; None if there is none."""
    if not isinstance(ops, Sequence):
        return BrokenRule("fields", f"lower returns a sequence of BackendOp, not {type(ops).__name__}")
    defined: set[Operand] = set(graph.inputs)
    overwritten: set[Operand] = set()
    covered: set[OpNode] = set()
    for index, op in enumerate(ops):
        broken = (
            _broken_field(op)
            or _broken_nodes(graph, op)
            or _broken_flow(op, defined)
            or _broken_overwriting(graph, op, overwritten)
        )
        if broken is not None:
            rule, problem = broken
            nodes = getattr(op, "nodes", ()) if rule not in ("fields", "nodes") else ()
            return BrokenRule(rule, f"op {index} ({getattr(op, 'kind', op)}) {problem}", nodes)
        defined.update(op.outputs)
        overwritten.update(op.overwrites)
        covered.update(op.nodes)
    for node in graph.nodes:
        if node not in covered:
            return BrokenRule("coverage", f"no op computes node {node.name!r}", (node,))
    for value in graph.outputs:
        if value not in defined:
            maker = () if value.producer is None else (value.producer,)
            return BrokenRule("coverage", f"no op makes the result %{value.name}", maker)
    return None


# The name of a rule, and how an op breaks it.
_Broken = tuple[str, str]


def _broken_field(op: Any) -> _Broken | None:
    if not isinstance(op, BackendOp):
        return "fields", "is not a BackendOp"
    for name, kind in _FIELDS.items():
        if type(getattr(op, name)) is not kind:
            return "fields", f"has {name} of type {type(getattr(op, name)).__name__}: it is {kind.__name__}"
    if not op.kind:
        return "fields", "has no kind"
    for item in (*op.inputs, *op.outputs, *op.overwrites):
        if not isinstance(item, (Value, Temporary)):
            verb = "reads or makes" if item in (*op.inputs, *op.outputs) else "overwrites"
            return "fields", f"{verb} {item!r}, which is neither a value nor a temporary"
        if isinstance(item, Temporary) and not isinstance(item.type, TensorType):
            return "fields", f"has a temporary {item.name!r} of type {item.type!r}: it is a tensor"
    return None


def _broken_nodes(graph: Graph, op: BackendOp) -> _Broken | None:
    if not op.nodes:
        return "nodes", "stands for no node"
    foreign = next(
        (node for node in op.nodes if not isinstance(node, OpNode) or node.graph is not graph), None
    )
    if foreign is not None:
        return "nodes", f"stands for {foreign!r}, which is not a node of the graph"
    own = {value for node in op.nodes for value in node.outputs}
    stray = next((item for item in op.outputs if isinstance(item, Value) and item not in own), None)
    return None if stray is None else ("nodes", f"makes %{stray.name}, which none of its nodes does")


def _broken_flow(op: BackendOp, defined: set[Operand]) -> _Broken | None:
    undefined = next((item for item in op.inputs if item not in defined), None)
    if undefined is not None:
        return "order", f"reads %{undefined.name} before anything makes it"
    for index, item in enumerate(op.outputs):
        if item in defined or item in op.outputs[:index]:
            return "single assignment", f"makes %{item.name}, which is there already"
    return None


def _broken_overwriting(graph: Graph, op: BackendOp, overwritten: set[Operand]) -> _Broken | None:
    late = next((item for item in (*op.inputs, *op.overwrites) if item in overwritten), None)
    if late is not None:
        return "overwriting", f"reads or overwrites %{late.name}, which an op before it has overwritten"
    allowed = graph.overwritable_inputs if isinstance(graph, PartitionGraph) else frozenset[Value]()
    needed = next((item for item in op.overwrites if item not in allowed), None)
    if needed is not None:
        return "overwriting", f"overwrites {needed!r}, which is not among graph.overwritable_inputs"
    return None

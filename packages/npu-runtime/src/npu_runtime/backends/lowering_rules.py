"""Rules for the ops to which a backend lowers a graph."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.plugins.backend import BackendOp, Operand, Temporary


def lowering_problem(graph: Graph, ops: Sequence[BackendOp]) -> str | None:
    """Return the first problem of the ops from `Backend.lower` for ``graph``; None if there is none."""
    return next(_problems(graph, ops), None)


def _problems(graph: Graph, ops: Sequence[BackendOp]) -> Iterator[str]:
    if not isinstance(ops, Sequence):
        yield f"lower returns a sequence of BackendOp, not {type(ops).__name__}"
        return
    defined: set[Operand] = set(graph.inputs)
    covered: set[OpNode] = set()
    for index, op in enumerate(ops):
        problem = _field_problem(op) or _node_problem(graph, op) or _flow_problem(op, defined)
        if problem is not None:
            yield f"op {index} ({getattr(op, 'kind', op)}) {problem}"
            return
        defined.update(op.outputs)
        covered.update(op.nodes)
    yield from (f"no op computes node {node.name!r}" for node in graph.nodes if node not in covered)
    yield from (f"no op makes the result %{value.name}" for value in graph.outputs if value not in defined)


def _field_problem(op: Any) -> str | None:
    if not isinstance(op, BackendOp):
        return "is not a BackendOp"
    kinds = {"kind": str, "kernel": str, "schema_id": int, "attrs": bytes, "inputs": tuple, "outputs": tuple}
    for name, kind in {**kinds, "nodes": tuple}.items():
        if type(getattr(op, name)) is not kind:
            return f"has {name} of type {type(getattr(op, name)).__name__}: it is {kind.__name__}"
    if not op.kind:
        return "has no kind"
    for item in (*op.inputs, *op.outputs):
        if not isinstance(item, (Value, Temporary)):
            return f"reads or makes {item!r}, which is neither a value nor a temporary"
        if isinstance(item, Temporary) and not isinstance(item.type, TensorType):
            return f"has a temporary {item.name!r} of type {item.type!r}: it is a tensor"
    return None


def _node_problem(graph: Graph, op: BackendOp) -> str | None:
    if not op.nodes:
        return "stands for no node"
    foreign = next(
        (node for node in op.nodes if not isinstance(node, OpNode) or node.graph is not graph), None
    )
    if foreign is not None:
        return f"stands for {foreign!r}, which is not a node of the graph"
    own = {value for node in op.nodes for value in node.outputs}
    stray = next((item for item in op.outputs if isinstance(item, Value) and item not in own), None)
    return None if stray is None else f"makes %{stray.name}, which none of its nodes does"


def _flow_problem(op: BackendOp, defined: set[Operand]) -> str | None:
    undefined = next((item for item in op.inputs if item not in defined), None)
    if undefined is not None:
        return f"reads %{undefined.name} before anything makes it"
    so_far = set(defined)
    for item in op.outputs:
        if item in so_far:
            return f"makes %{item.name}, which is there already"
        so_far.add(item)
    return None

"""Copies of a graph: clones, and subgraphs extracted as separate graphs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from npu_ir.core.literals import to_literal
from npu_ir.core.node import InputKind, OpNode, Value
from npu_ir.core.paused_gc import pause_gc
from npu_ir.errors import GraphError
from npu_ir.graph.rules.prologue import call_dependence

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


def clone(graph: Graph, name: str) -> Graph:
    """Return a graph equal to ``graph``, named ``name``."""
    copy = type(graph)(name)
    copy._symbols = dict(graph.symbols)
    copy._constraints = list(graph.constraints)
    values = {value: copy_argument(copy, value) for value in graph.arguments}
    with pause_gc():
        for node in graph._iterate():
            copied = copy_node(copy, node, values)
            if node not in graph._edited:
                del copy._edited[copied]  # a checked node needs no check in the copy either

    def map_leaf(leaf: Any) -> Any:
        return values[leaf] if isinstance(leaf, Value) else leaf

    if graph._call is not None:
        copy._call = graph._call[0], tuple(map(map_leaf, graph._call[1]))
    copy._results = graph.results[0], tuple(map(map_leaf, graph.results[1]))
    for index, leaf in enumerate(copy._results[1]):
        if isinstance(leaf, Value):
            leaf._uses[None, index] = None
    for target, value in graph.updates.items():
        copy.set_update(values[target], values[value], replaces=True)
    if graph.tracks_origins:
        copy.track_origins()
    return copy


def copy_argument(graph: Graph, value: Value) -> Value:
    """Add an argument equal to that of ``value`` to ``graph`` and return the new value."""
    assert value.argument is not None
    return _copy_origins(graph._add_argument(value.name, value.type, value.argument), value)


def _copy_origins(copied: Value, value: Value) -> Value:
    copied._origins = value._origins if copied._name == value._name else value.origins
    return copied


def copy_node(graph: Graph, node: OpNode, values: dict[Value, Value]) -> OpNode:
    """Append a copy of ``node``, with its inputs mapped by ``values``, and add its outputs to ``values``.

    A copy of a prologue node joins the prologue of ``graph`` if all its inputs are known when weights are
    bound.

    Raises:
        GraphError: ``values`` lacks an input: the node that produces it comes later.
    """
    for value in node.inputs:
        if value not in values:
            raise GraphError(
                f"node {node.name!r} reads %{value.name} before it is produced", fix="sort the graph first"
            )
    copied = (
        _copy_node_with_regions(graph, node, values)
        if node.regions
        else _copy_plain_node(graph, node, values)
    )
    for value, other in zip(node.outputs, copied.outputs, strict=True):
        values[value] = _copy_origins(other, value)
    if node.in_prologue and all(call_dependence(graph, value) is None for value in copied.inputs):
        graph._append_to_prologue(copied)
    return copied


def _copy_plain_node(graph: Graph, node: OpNode, values: dict[Value, Value]) -> OpNode:
    """Append a copy of a node without regions, unchecked: the node was checked when it was inserted."""
    # to_literal copies lists and dicts; types and provenance are immutable, and shared.
    attrs = {name: to_literal(attr) for name, attr in node.attrs.items()}
    inputs = tuple([values[value] for value in node.inputs])
    name = graph._unique_name(graph._nodes, node.name)
    copied = OpNode(name, node.op_type, inputs, node.operands, attrs, node.provenance)
    graph._attach(copied, graph._root, [(value.name, value.type) for value in node.outputs])
    return copied


def _copy_node_with_regions(graph: Graph, node: OpNode, values: dict[Value, Value]) -> OpNode:
    return graph.insert(
        node.op_type,
        [values[value] for value in node.inputs],
        node.attrs,
        types=[value.type for value in node.outputs],
        operands=node.operands,
        regions={argument: clone(region, region.name) for argument, region in node.regions.items()},
        name=node.name,
        output_names=[value.name for value in node.outputs],
        provenance=node.provenance,
    )


def extract_subgraph(graph: Graph, nodes: Iterable[OpNode], name: str) -> Graph:
    """Return ``nodes`` of ``graph`` as a separate graph, in the order of ``graph``.

    A prologue node stays in the prologue unless it reads a node that is not among them.

    Raises:
        GraphError: A node is not in ``graph``, or precedes the producer of one of its inputs.
    """
    chosen = set(nodes)
    for node in chosen:
        if node._graph is not graph:
            raise GraphError(f"node {node.name!r} is not in graph {graph.name!r}")
    produced = {value for node in chosen for value in node.outputs}
    part = type(graph)(name)
    part._symbols = dict(graph.symbols)
    values: dict[Value, Value] = {}
    results: list[Value] = []
    for node in graph.nodes:
        if node not in chosen:
            continue
        for value in node.inputs:
            if value not in values and value not in produced:
                values[value] = _add_outside_value(part, value)
        copy_node(part, node, values)
        results += [value for value in node.outputs if any(user not in chosen for user, _ in value.uses)]
    part.set_outputs(tuple(values[value] for value in results))
    if graph.tracks_origins:
        part.track_origins()
    return part


def _add_outside_value(part: Graph, value: Value) -> Value:
    if value.argument is not None and value.argument.kind is not InputKind.INPUT:
        return copy_argument(part, value)
    return _copy_origins(part.add_input(value.name, value.type), value)

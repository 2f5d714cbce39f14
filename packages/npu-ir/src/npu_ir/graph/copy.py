"""Copies of a graph: clones, subgraphs as separate graphs, and the records in which a graph is pickled.

Values, nodes and graphs refer to each other, so pickle would recurse along the whole chain of nodes and
exceed Python's recursion limit. In records, references to values are numbers.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from npu_ir.core.isolation import pause_gc
from npu_ir.core.literals import to_literal
from npu_ir.core.node import Argument, InputKind, OpNode, Origin, Value
from npu_ir.core.structure import Structure
from npu_ir.core.types import Type
from npu_ir.errors import GraphError
from npu_ir.graph.rules.prologue import call_dependence
from npu_ir.symbolic.constraints import Constraint, Range

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

Nest: TypeAlias = "tuple[Structure, tuple[Any, ...]]"
Origins: TypeAlias = "tuple[Origin, ...] | None"


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
    call = None if graph._call is None else _map_leaves(graph._call, Value, values.__getitem__)
    results = _map_leaves(graph.results, Value, values.__getitem__)
    updates = [(values[target], values[value]) for target, value in graph.updates.items()]
    _set_signature(copy, call, results, updates)
    if graph.tracks_origins:
        copy.track_origins()
    return copy


def _set_signature(
    graph: Graph, call: Nest | None, results: Nest, updates: Iterable[tuple[Value, Value]]
) -> None:
    graph._call = call
    graph.set_results(*results)
    for target, value in updates:
        graph.set_update(target, value, replaces=True)


def _map_leaves(nest: Nest, kind: type, function: Callable[[Any], Any]) -> Nest:
    """Return ``nest`` with ``function`` applied to the leaves of type ``kind``; literals are unchanged."""
    structure, leaves = nest
    return structure, tuple([function(leaf) if isinstance(leaf, kind) else leaf for leaf in leaves])


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
    _require_produced(node, values)
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


def _require_produced(node: OpNode, values: Container[Value]) -> None:
    for value in node.inputs:
        if value not in values:
            raise GraphError(
                f"node {node.name!r} reads %{value.name} before it is produced", fix="sort the graph first"
            )


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
    inputs = [values[value] for value in node.inputs]
    regions = {argument: clone(region, region.name) for argument, region in node.regions.items()}
    return graph.insert(inputs=inputs, regions=regions, **_insertion_of(node))


def _insertion_of(node: OpNode) -> dict[str, Any]:
    """Return the arguments of `Graph.insert` for a copy of ``node``, without its inputs and regions."""
    return {
        "op_type": node.op_type,
        "attrs": dict(node.attrs),
        "types": tuple([value.type for value in node.outputs]),
        "operands": node.operands,
        "name": node.name,
        "output_names": tuple([value.name for value in node.outputs]),
        "provenance": node.provenance,
    }


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
    if value.kind not in (None, InputKind.INPUT):
        return copy_argument(part, value)
    return _copy_origins(part.add_input(value.name, value.type), value)


class ValueNumber(int):
    """The number of a value as a leaf of a structure, distinct from an integer literal."""


class NodeRecord(NamedTuple):
    """The record of one node; ``inputs`` are numbers of values."""

    inputs: tuple[int, ...]
    insertion: dict[str, Any]
    origins: tuple[Origins, ...]
    regions: dict[str, GraphRecord]
    in_prologue: bool


class GraphRecord(NamedTuple):
    """The record of one graph; values are numbered in order: the arguments, then the outputs of the nodes."""

    type: type[Graph]
    name: str
    symbols: dict[str, Range]
    constraints: tuple[Constraint, ...]
    arguments: tuple[tuple[str, Type, Argument, Origins], ...]
    nodes: tuple[NodeRecord, ...]
    call: Nest | None
    results: Nest
    updates: tuple[tuple[int, int], ...]
    tracks_origins: bool


def record_of(graph: Graph) -> GraphRecord:
    """Return the record of ``graph``, from which `graph_of` restores an equal graph with equal provenance.

    Raises:
        GraphError: A node precedes the producer of one of its inputs.
    """
    # Values are numbered in definition order, so a reader resolves inputs in one pass over the nodes.
    numbers = {value: ValueNumber(number) for number, value in enumerate(graph.arguments)}
    return GraphRecord(
        type(graph),
        graph.name,
        dict(graph.symbols),
        graph.constraints,
        tuple((v.name, v.type, v.argument, v._origins) for v in graph.arguments if v.argument is not None),
        tuple(_node_record(node, numbers) for node in graph._iterate()),
        None if graph._call is None else _map_leaves(graph._call, Value, numbers.__getitem__),
        _map_leaves(graph.results, Value, numbers.__getitem__),
        tuple((numbers[target], numbers[value]) for target, value in graph.updates.items()),
        graph.tracks_origins,
    )


def _node_record(node: OpNode, numbers: dict[Value, ValueNumber]) -> NodeRecord:
    _require_produced(node, numbers)
    inputs = tuple([int(numbers[value]) for value in node.inputs])
    for value in node.outputs:
        numbers[value] = ValueNumber(len(numbers))
    origins = tuple([value._origins for value in node.outputs])
    regions = {argument: record_of(region) for argument, region in node.regions.items()}
    return NodeRecord(inputs, _insertion_of(node), origins, regions, node.in_prologue)


def graph_of(record: GraphRecord) -> Graph:
    """Return the graph that ``record`` describes."""
    graph = record.type(record.name)
    graph._symbols = dict(record.symbols)
    graph._constraints = list(record.constraints)
    values = []  # by number
    for name, type, argument, origins in record.arguments:
        values.append(graph._add_argument(name, type, argument))
        values[-1]._origins = origins
    with pause_gc():
        for row in record.nodes:
            values += _insert_node(graph, row, values).outputs
    call = None if record.call is None else _map_leaves(record.call, ValueNumber, values.__getitem__)
    results = _map_leaves(record.results, ValueNumber, values.__getitem__)
    updates = [(values[target], values[value]) for target, value in record.updates]
    _set_signature(graph, call, results, updates)
    if record.tracks_origins:
        graph.track_origins()
    return graph


def _insert_node(graph: Graph, row: NodeRecord, values: list[Value]) -> OpNode:
    regions = {argument: graph_of(region) for argument, region in row.regions.items()}
    node = graph.insert(inputs=[values[number] for number in row.inputs], regions=regions, **row.insertion)
    for value, origins in zip(node.outputs, row.origins, strict=True):
        value._origins = origins
    if row.in_prologue:
        graph._append_to_prologue(node)
    return node


def reduce_graph(graph: Graph) -> tuple[Callable[..., Graph], tuple[Any, ...]]:
    """Return the ``__reduce__`` pair of ``graph``: a function and its arguments.

    A region is pickled as a reference to the node that owns it, and thereby with the whole program.
    """
    node = graph.owner
    if node is None:
        return graph_of, (record_of(graph),)
    argument = next(argument for argument, region in node.regions.items() if region is graph)
    return region_of, (node, argument)


def region_of(node: OpNode, argument: str) -> Graph:
    """Return the region of ``node`` that fills ``argument``."""
    return node.regions[argument]

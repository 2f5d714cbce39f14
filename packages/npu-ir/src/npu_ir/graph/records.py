"""Flat records of a graph, the form in which it is pickled.

Values, nodes and graphs refer to each other, so pickle would recurse along the whole chain of nodes and
exceed Python's recursion limit. In records, references to values are numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from npu_ir.core.literals import Literal
from npu_ir.core.node import Argument, OpNode, Origin, Provenance, Value
from npu_ir.core.paused_gc import pause_gc
from npu_ir.core.structure import Structure
from npu_ir.core.types import Type
from npu_ir.errors import GraphError
from npu_ir.symbolic.constraints import Constraint, Range

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

Nest: TypeAlias = "tuple[Structure, tuple[Any, ...]]"
Origins: TypeAlias = "tuple[Origin, ...] | None"


class ValueNumber(int):
    """The number of a value as a leaf of a structure, distinct from an integer literal."""


class NodeRecord(NamedTuple):
    """The record of one node; ``inputs`` are numbers of values."""

    name: str
    op_type: str
    inputs: tuple[int, ...]
    operands: tuple[str, ...] | None
    attrs: dict[str, Literal]
    output_names: tuple[str, ...]
    output_types: tuple[Type, ...]
    output_origins: tuple[Origins, ...]
    regions: dict[str, GraphRecord]
    in_prologue: bool
    provenance: Provenance


class GraphRecord(NamedTuple):
    """The record of one graph; values are numbered in order: the arguments, then the outputs of the nodes.

    Attributes:
        type: `npu_ir.graph.graph.Graph`, or a subclass.
        name: The name of the graph.
        symbols: Its symbols; those of the program if the graph is a region.
        constraints: Its constraints.
        arguments: The name, type, argument and origins of each.
        nodes: In order.
        call: Structure and leaves; None if it was not set.
        results: Structure and leaves.
        updates: Pairs of the numbers of target and new content.
        tracks_origins: True if the graph maintains the origins of its values.
    """

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
    for value in node.inputs:
        if value not in numbers:
            raise GraphError(
                f"node {node.name!r} reads %{value.name} before it is produced", fix="sort the graph first"
            )
    inputs = tuple([int(numbers[value]) for value in node.inputs])
    for value in node.outputs:
        numbers[value] = ValueNumber(len(numbers))
    return NodeRecord(
        node.name,
        node.op_type,
        inputs,
        node.operands,
        dict(node.attrs),
        tuple([value.name for value in node.outputs]),
        tuple([value.type for value in node.outputs]),
        tuple([value._origins for value in node.outputs]),
        {argument: record_of(region) for argument, region in node.regions.items()},
        node.in_prologue,
        node.provenance,
    )


def _map_leaves(nest: Nest, kind: type, function: Callable[[Any], Any]) -> Nest:
    """Return ``nest`` with ``function`` applied to the leaves of type ``kind``; literals are unchanged."""
    structure, leaves = nest
    return structure, tuple(function(leaf) if isinstance(leaf, kind) else leaf for leaf in leaves)


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
    if record.call is not None:
        graph._call = _map_leaves(record.call, ValueNumber, values.__getitem__)
    graph.set_results(*_map_leaves(record.results, ValueNumber, values.__getitem__))
    for target, value in record.updates:
        graph.set_update(values[target], values[value], replaces=True)
    if record.tracks_origins:
        graph.track_origins()
    return graph


def _insert_node(graph: Graph, row: NodeRecord, values: list[Value]) -> OpNode:
    node = graph.insert(
        row.op_type,
        [values[number] for number in row.inputs],
        row.attrs,
        types=row.output_types,
        operands=row.operands,
        regions={argument: graph_of(region) for argument, region in row.regions.items()},
        name=row.name,
        output_names=row.output_names,
        provenance=row.provenance,
    )
    for value, origins in zip(node.outputs, row.output_origins, strict=True):
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

"""Partitioning: the backend of each node, the refusals of the others, and partitions as graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npu_ir import Graph, OpNode, Value
from npu_ir.errors import BackendError
from npu_ir.graph.copy import copy_node
from npu_ir.plugins.backend import Backend


@dataclass(frozen=True, slots=True)
class Assignment:
    """The backend of a node.

    Attributes:
        backend: The first one that supports the node.
        refusals: The reasons of those of higher preference, by name.
    """

    backend: Backend
    refusals: Mapping[str, str]


def assign_backends(graph: Graph, backends: Sequence[Backend]) -> dict[OpNode, Assignment]:
    """Return the backend of each node of the body, in order.

    Args:
        graph: The program.
        backends: The backends in order of preference; the last one supports every node.

    Raises:
        BackendError: ``supports`` of a backend raises, or returns neither None nor a reason.
    """
    return {node: _assign_node(node, backends) for node in graph.body}


def _assign_node(node: OpNode, backends: Sequence[Backend]) -> Assignment:
    refusals: dict[str, str] = {}
    for backend in backends[:-1]:
        try:
            reason = backend.supports(node)
        except Exception as error:
            raise BackendError(
                f"the backend {backend.name!r} raised an error where it was asked about a node: {error}",
                where=f"node {node.name!r} ({node.op_type})",
                fix="supports() returns None or a reason in words, for any node",
            ) from error
        if reason is None:
            return Assignment(backend, refusals)
        if not isinstance(reason, str) or not reason:
            raise BackendError(
                f"the backend {backend.name!r} answers {reason!r} where it should say why it cannot run"
                " a node",
                where=f"node {node.name!r} ({node.op_type})",
                fix="supports() returns None or a reason in words",
            )
        refusals[backend.name] = reason
    return Assignment(backends[-1], refusals)


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition: consecutive nodes of one backend, as a graph of their own.

    Attributes:
        graph: The partition; values defined outside are its inputs, values used outside its results.
        nodes: Its nodes in the whole graph.
        inputs: The values of the whole graph for its inputs.
        outputs: The values of the whole graph for its results.
    """

    graph: Graph
    nodes: tuple[OpNode, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def extract_partition(nodes: Sequence[OpNode], name: str) -> Partition:
    """Return consecutive nodes as a partition."""
    inside = set(nodes)
    produced = {value for node in nodes for value in node.outputs}
    outside = dict.fromkeys(value for node in nodes for value in node.inputs if value not in produced)
    outputs = [
        value
        for node in nodes
        for value in node.outputs
        if any(user is None or user not in inside for user, _ in value.uses)
    ]
    graph = Graph(name)
    values = {value: graph.add_input(value.name, value.type) for value in outside}
    for node in nodes:
        copy_node(graph, node, values)
    graph.set_outputs(tuple(values[value] for value in outputs))
    return Partition(graph, tuple(nodes), tuple(outside), tuple(outputs))

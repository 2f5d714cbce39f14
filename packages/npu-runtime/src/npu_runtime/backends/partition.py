"""Which backend runs which node, and why the others do not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npu_ir import Graph, OpNode, Value
from npu_ir.errors import BackendError
from npu_ir.graph.copy import copy_node
from npu_ir.plugins.backend import Backend


@dataclass(frozen=True, slots=True)
class Choice:
    """Who runs a node.

    Attributes:
        backend: The first one that can.
        refusals: The reason of each that was asked before, by name.
    """

    backend: Backend
    refusals: Mapping[str, str]


def assign(graph: Graph, backends: Sequence[Backend]) -> dict[OpNode, Choice]:
    """Return who runs each node of the body, in order.

    Args:
        graph: The program.
        backends: In order of preference; the last one takes everything.

    Raises:
        BackendError: A backend gives no proper answer.
    """
    return {node: _choice(node, backends) for node in graph.body}


def _choice(node: OpNode, backends: Sequence[Backend]) -> Choice:
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
            return Choice(backend, refusals)
        if not isinstance(reason, str) or not reason:
            raise BackendError(
                f"the backend {backend.name!r} answers {reason!r} where it should say why it cannot run a node",
                where=f"node {node.name!r} ({node.op_type})",
                fix="supports() returns None or a reason in words",
            )
        refusals[backend.name] = reason
    return Choice(backends[-1], refusals)


@dataclass(frozen=True, slots=True)
class Segment:
    """Consecutive nodes that one backend runs, as a graph of their own.

    Attributes:
        graph: Everything from outside is an input, everything that is read outside a result.
        nodes: The nodes of the whole graph that it stands for.
        inputs: What to give it: values of the whole graph.
        outputs: What comes out.
    """

    graph: Graph
    nodes: tuple[OpNode, ...]
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]


def segment_of(nodes: Sequence[OpNode], name: str) -> Segment:
    """Return consecutive nodes of a graph as a graph of their own."""
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
    return Segment(graph, tuple(nodes), tuple(outside), tuple(outputs))

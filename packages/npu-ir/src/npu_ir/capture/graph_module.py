"""From an FX graph that is no exported program to a graph: AOTAutograd and make_fx make such graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from npu_ir import _torch
from npu_ir.capture.bodies import nodes
from npu_ir.capture.convert import Converter
from npu_ir.capture.functionalize import FunctionalProgram
from npu_ir.capture.provenance import place
from npu_ir.capture.sizes import Sizes
from npu_ir.capture.writes import hides_a_write, written
from npu_ir.core.node import Argument, Value
from npu_ir.core.types import TensorType
from npu_ir.errors import ConversionError
from npu_ir.graph.graph import Graph

_COPY = torch.ops.aten.copy_.default


def convert_graph_module(
    module: GraphModule, *, name: str | None = None, arguments: Sequence[Argument] | None = None
) -> Graph:
    """Return an FX graph of ATen ops as a graph whose arguments are its placeholders; the module is not changed.

    The graph takes and returns what the module does: positional arguments, and the nest of its output node. What
    functionalization writes into a placeholder behind everything else (``copy_``) is an update of the graph. Sizes that
    are open have the names ``s0``, ``s1``, ... What was assumed of them while they were traced is not among the
    constraints of the graph: whoever traced the module guards it.

    Args:
        module: Functional, with FakeTensors and symbolic numbers as ``meta["val"]`` of its nodes.
        name: Name of the graph.
        arguments: What each placeholder stands for; inputs of the same names if not given.

    Raises:
        ConversionError: A node writes in place, or is of a kind that has no place in a graph; names node and source
            line.
    """
    functional, updated = _without_final_copies(module)
    _require_functional(functional)
    program: Any = _Program(functional.graph, functional, _torch.traced_ranges(functional.graph))
    converter = Converter(Sizes(Graph(name or "graph"), program), FunctionalProgram(program))
    results, contents = converter.convert_module(functional, arguments)
    graph = converter.graph
    graph.set_outputs(results)
    placeholders = [node for node in functional.graph.nodes if node.op == "placeholder"]
    for node, content in zip(updated, contents, strict=True):
        target = converter.value(placeholders[node])
        graph.set_update(target, _of_type(graph, target, content))
    graph.check()
    graph.track_origins()
    return graph


def _without_final_copies(module: GraphModule) -> tuple[GraphModule, list[int]]:
    """Return a copy that returns its results and what it writes into placeholders; and the numbers of these."""
    graph = FxGraph()
    copies: dict[Node, Node] = {}
    placeholders: dict[Node, int] = {}
    written: dict[int, Node] = {}
    for node in module.graph.nodes:
        if node.op == "placeholder":
            placeholders[node] = len(placeholders)
        is_final = node.target is _COPY and node.args[0] in placeholders and not node.users
        if is_final and len(node.args) == 2:
            written[placeholders[node.args[0]]] = copies[node.args[1]]
        elif node.op == "output":
            results = torch.fx.map_arg(node.args[0], copies.__getitem__)
            graph.output((results, tuple(written.values())))
        else:
            copies[node] = graph.node_copy(node, copies.__getitem__)
    return GraphModule(module, graph), list(written)


def _of_type(graph: Graph, target: Value, content: Value) -> Value:
    """Return the new content of ``target`` as a value of its type: writing into it keeps dtype and strides."""
    if content.type == target.type:
        return content
    assert isinstance(target.type, TensorType)
    return graph.insert(
        "aten.copy.default", (target, content), {}, operands=("self", "src"), types=target.type
    ).outputs[0]


@dataclass(frozen=True, slots=True)
class _Program:
    """What a conversion asks of an exported program, for an FX graph that is none."""

    graph: FxGraph
    graph_module: GraphModule
    range_constraints: Mapping[Any, Any]


def _require_functional(module: GraphModule) -> None:
    for node in nodes(module):
        if node.op == "placeholder" and "val" not in node.meta:
            raise ConversionError(
                f"nothing is known of what the module takes as {node.name!r}",
                fix="trace it with FakeTensors: make_fx(..., tracing_mode='fake')",
            )
        if written(node) or hides_a_write(node):
            raise ConversionError(
                f"{node.target} writes in place: the FX graph is not functional",
                where=place(node),
                fix="trace it with functionalization, or export the model",
            )

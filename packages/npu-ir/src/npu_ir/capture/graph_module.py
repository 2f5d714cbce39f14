"""Conversion of an FX graph that is not an exported program, such as those of AOTAutograd and make_fx."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

from npu_ir._torch.export import traced_ranges
from npu_ir.capture.convert import Converter
from npu_ir.capture.functionalize import FunctionalProgram
from npu_ir.capture.fx_nodes import location_of, nodes
from npu_ir.capture.sizes import Sizes
from npu_ir.capture.writes import mutates
from npu_ir.core.node import Argument, Value
from npu_ir.core.types import TensorType
from npu_ir.errors import ConversionError
from npu_ir.graph.graph import Graph

_COPY = torch.ops.aten.copy_.default


def convert_graph_module(
    module: GraphModule, *, name: str | None = None, arguments: Sequence[Argument] | None = None
) -> Graph:
    """Return an FX graph of ATen ops as a graph whose arguments are its placeholders.

    The module is not changed. The graph has the signature of the module: positional arguments, and the
    structure of its output node. A final ``copy_`` into a placeholder, as functionalization appends it,
    becomes an update of the graph. Symbolic sizes have the names ``s0``, ``s1``, ... Guards on them from
    the trace are not among the constraints of the graph: the caller who traced the module has to check
    them.

    Args:
        module: Functional, with FakeTensors and symbolic numbers as ``meta["val"]`` of its nodes.
        name: Name of the graph.
        arguments: The argument of the graph for each placeholder; by default inputs of the same names.

    Raises:
        ConversionError: A node writes in place, or is of a kind that a graph cannot represent; names node
            and source line.
    """
    functional, updated = _strip_final_copies(module)
    _require_functional(functional)
    program: Any = _Program(functional.graph, functional, traced_ranges(functional.graph))
    converter = Converter(Sizes(Graph(name or "graph"), program), FunctionalProgram(program))
    results, contents = converter.convert_module(functional, arguments)
    graph = converter.graph
    graph.set_outputs(results)
    placeholders = functional.graph.find_nodes(op="placeholder")
    for node, content in zip(updated, contents, strict=True):
        target = converter.value(placeholders[node])
        graph.set_update(target, _cast_to_type(graph, target, content))
    graph.check()
    graph.track_origins()
    return graph


def _strip_final_copies(module: GraphModule) -> tuple[GraphModule, list[int]]:
    """Return a copy that returns its results and the updates of placeholders, and the numbers of these."""
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


def _cast_to_type(graph: Graph, target: Value, content: Value) -> Value:
    """Return the new content of ``target`` cast to its type: a write keeps dtype and strides."""
    if content.type == target.type:
        return content
    assert isinstance(target.type, TensorType)
    return graph.insert(
        "aten.copy.default", (target, content), {}, operands=("self", "src"), types=target.type
    ).outputs[0]


@dataclass(frozen=True, slots=True)
class _Program:
    """The part of an ExportedProgram's interface that a conversion uses, for a bare FX graph."""

    graph: FxGraph
    graph_module: GraphModule
    range_constraints: Mapping[Any, Any]


def _require_functional(module: GraphModule) -> None:
    for node in nodes(module):
        if node.op == "placeholder" and "val" not in node.meta:
            raise ConversionError(
                f"the placeholder {node.name!r} of the module has no meta['val']",
                fix="trace it with FakeTensors: make_fx(..., tracing_mode='fake')",
            )
        if mutates(node):
            raise ConversionError(
                f"{node.target} writes in place: the FX graph is not functional",
                where=location_of(node),
                fix="trace it with functionalization, or export the model",
            )

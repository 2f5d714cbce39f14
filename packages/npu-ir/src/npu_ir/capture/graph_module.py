"""Conversion of an FX graph that is not an exported program, such as those of AOTAutograd and make_fx."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
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
    updates = _find_final_copies(module)
    _require_functional(module, updates)
    program: Any = _Program(module.graph, module, traced_ranges(module.graph))
    converter = Converter(
        Sizes(Graph(name or "graph"), program), FunctionalProgram(program, replaced=updates)
    )
    results = converter.convert_module(module, arguments)
    graph = converter.graph
    graph.set_outputs(results)
    contents = dict(updates.values())  # of several copies into a placeholder the last one stays
    for placeholder, node in contents.items():
        target = converter.value(placeholder)
        graph.set_update(target, _cast_to_type(graph, target, converter.value(node)))
    graph.check()
    graph.track_origins()
    return graph


def _find_final_copies(module: GraphModule) -> dict[Node, tuple[Node, Any]]:
    """Return the copies into placeholders that nothing reads: the placeholder of each, and what it gets."""
    return {
        node: (target, node.args[1])
        for node in module.graph.find_nodes(op="call_function", target=_COPY)
        if isinstance(target := node.args[0], Node) and target.op == "placeholder"
        if len(node.args) == 2 and not node.users
    }


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


def _require_functional(module: GraphModule, updates: Collection[Node]) -> None:
    for node in nodes(module):
        if node.op == "placeholder" and "val" not in node.meta:
            raise ConversionError(
                f"the placeholder {node.name!r} of the module has no meta['val']",
                fix="trace it with FakeTensors: make_fx(..., tracing_mode='fake')",
            )
        if mutates(node) and node not in updates:
            raise ConversionError(
                f"{node.target} writes in place: the FX graph is not functional",
                where=location_of(node),
                fix="trace it with functionalization, or export the model",
            )

"""From an FX graph that is no exported program to a graph: AOTAutograd and make_fx make such graphs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from torch.fx import Graph as FxGraph
from torch.fx import GraphModule

from npu_ir import _torch
from npu_ir.capture.bodies import nodes
from npu_ir.capture.convert import Converter
from npu_ir.capture.functionalize import FunctionalProgram
from npu_ir.capture.provenance import place
from npu_ir.capture.sizes import Sizes
from npu_ir.capture.writes import hides_a_write, written
from npu_ir.errors import ConversionError
from npu_ir.graph import Graph


def convert_graph_module(module: GraphModule, *, name: str | None = None) -> Graph:
    """Return an FX graph of ATen ops as a graph whose inputs are its placeholders; the module is not changed.

    The graph takes and returns what the module does: positional arguments, and the nest of its output node. Sizes that
    are open have the names ``s0``, ``s1``, ... What was assumed of them while they were traced is not among the
    constraints of the graph: whoever traced the module guards it.

    Args:
        module: Functional, with FakeTensors and symbolic numbers as ``meta["val"]`` of its nodes.
        name: Name of the graph.

    Raises:
        ConversionError: A node writes in place, or is of a kind that has no place in a graph; names node and source
            line.
    """
    _require_functional(module)
    program: Any = _Program(module.graph, module, _torch.traced_ranges(module.graph))
    converter = Converter(Sizes(Graph(name or "graph"), program), FunctionalProgram(program))
    converter.convert_body(module)
    converter.graph.check()
    return converter.graph


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

"""Sequential execution of nodes of a graph on given values."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch

from npu_ir.core.node import OpNode, Value
from npu_ir.core.structure import unflatten
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.errors import ExecutionError
from npu_ir.graph.binding import bind_inputs, bind_weights
from npu_ir.graph.graph import Graph
from npu_ir.ops.execution import execute_node

Observer = Callable[[OpNode, "list[Any]"], None]


def run_nodes(
    nodes: Sequence[OpNode],
    values: dict[Value, Any],
    device: torch.device,
    symbols: SymbolValues,
    observe: Observer | None = None,
) -> None:
    """Run ``nodes``, consecutive nodes of a graph; extends ``values``.

    A value is removed from ``values`` after its last use, if only these nodes read it.

    Raises:
        ExecutionError: A node fails.
    """
    # Reference counts: a value that other nodes or the results use, too, never drops to 0 here.
    remaining = {value: value.use_count for node in nodes for value in (*node.inputs, *node.outputs)}
    for node in nodes:
        regions = {
            argument: functools.partial(_run_region, region, device, symbols)
            for argument, region in node._regions.items()
        }
        inputs = [values[value] for value in node.inputs]
        outputs = execute_node(node, inputs, device, symbols, regions)
        values.update(zip(node.outputs, outputs, strict=True))
        if observe is not None:
            observe(node, outputs)
        _release(node, values, remaining)


def results_of(graph: Graph, values: dict[Value, Any], symbols: SymbolValues) -> list[Any]:
    """Return the results of a graph, flat, after its nodes have run; errors as for `require_in_range`."""
    require_in_range(graph, symbols)
    return [values[leaf] if isinstance(leaf, Value) else leaf for leaf in graph.results[1]]


def require_in_range(graph: Graph, symbols: SymbolValues) -> None:
    """Require that the sizes that the nodes of a graph determined are in the ranges of their symbols."""
    misfit = symbols.out_of_range()
    if misfit is not None:
        raise ExecutionError(str(misfit), where=f"graph {graph.name!r}")


def _run_region(region: Graph, device: torch.device, around: SymbolValues, *args: Any) -> Any:
    """Run a region and return its results; it inherits the values of symbols that are known around it."""
    symbols = SymbolValues(region.symbols, around)
    values = {**bind_weights(region, None), **bind_inputs(region, args, {}, symbols)}
    run_nodes(region.nodes, values, device, symbols)
    return unflatten(region.results[0], results_of(region, values, symbols))


def _release(node: OpNode, values: dict[Value, Any], remaining: dict[Value, int]) -> None:
    for value in node.inputs:
        remaining[value] -= 1
    for value in {*node.inputs, *node.outputs}:
        if remaining[value] == 0:
            del values[value]

"""Running nodes of a graph in order, on values that are given."""

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
    """Run ``nodes``, which make up a part of a graph without gaps; extends ``values``.

    Values that only these nodes read are taken out of ``values`` again.

    Raises:
        ExecutionError: A node fails.
    """
    remaining = {value: len(value.uses) for node in nodes for value in (*node.inputs, *node.outputs)}
    for node in nodes:
        regions = {
            argument: functools.partial(_run_region, region, device, symbols)
            for argument, region in node.regions.items()
        }
        inputs = [values[value] for value in node.inputs]
        outputs = execute_node(node, inputs, device, symbols, regions)
        values.update(zip(node.outputs, outputs, strict=True))
        if observe is not None:
            observe(node, outputs)
        _release(node, values, remaining)


def results_of(graph: Graph, values: dict[Value, Any], symbols: SymbolValues) -> list[Any]:
    """Return what a graph returns, flat, once its nodes have been run.

    Raises:
        ExecutionError: A size that its nodes told is out of its range.
    """
    require_in_range(graph, symbols)
    return [values[leaf] if isinstance(leaf, Value) else leaf for leaf in graph.results[1]]


def require_in_range(graph: Graph, symbols: SymbolValues) -> None:
    """Refuse what the nodes of a graph have told of its sizes, where that is not what it was made for.

    Raises:
        ExecutionError: A size is out of its range.
    """
    misfit = symbols.out_of_range()
    if misfit is not None:
        raise ExecutionError(str(misfit), where=f"graph {graph.name!r}")


def _run_region(region: Graph, device: torch.device, around: SymbolValues, *args: Any) -> Any:
    """Return what a region returns; its symbols are its own, but for those known around it."""
    symbols = SymbolValues(region.symbols, around)
    values = {**bind_weights(region, None), **bind_inputs(region, args, {}, symbols)}
    run_nodes(region.nodes, values, device, symbols)
    return unflatten(region.results[0], results_of(region, values, symbols))


def _release(node: OpNode, values: dict[Value, Any], remaining: dict[Value, int]) -> None:
    """Forget the values that nothing reads any more."""
    for value in node.inputs:
        remaining[value] -= 1
    for value in {*node.inputs, *node.outputs}:
        if remaining[value] == 0:
            del values[value]

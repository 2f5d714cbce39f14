"""What a graph means: run its nodes in order, one by one.

Everything else that runs a graph is measured against this.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from npu_ir.binding import bind_inputs, bind_weights
from npu_ir.default_dtype import float32_by_default
from npu_ir.errors import ExecutionError
from npu_ir.graph import Graph
from npu_ir.node import OpNode, Value, outside_names
from npu_ir.ops.execution import execute_node
from npu_ir.structure import unflatten
from npu_ir.symbol_values import SymbolValues
from npu_ir.weights import load_weights

Observer = Callable[[OpNode, "list[Any]"], None]


def execute_ir(
    graph: Graph,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
    return_mutations: bool = False,
) -> Any:
    """Return what ``model(*args, **kwargs)`` returns, computed node by node.

    Neither the arguments nor the weights are changed. No gradients are recorded, and the caller's
    autocast, default device and default dtype have no influence. Tensors with other strides than the
    graph states are laid out anew first.

    Args:
        graph: The program.
        args: Positional arguments, nested as when the model was captured.
        kwargs: Keyword arguments.
        weights: Parameters and buffers by ``state_dict`` key, or the path of a file of them. Not
            needed for a graph without parameters and persistent buffers.
        constants: Tensors by name that take the place of the graph's constants, or of
            non-persistent buffers.
        return_mutations: Return a pair: the results, and the new content of every buffer,
            parameter or input that the model would have changed, by name.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        ExecutionError: The arguments are not what the graph was made for, or a node fails.
        WeightError: Weights are missing, unexpected, or of another shape or dtype.
    """
    interpreter = Interpreter(graph, weights, constants)
    leaves, mutations = interpreter.run_flat(args, kwargs)
    results = unflatten(graph.results[0], leaves)
    return (results, mutations) if return_mutations else results


class Interpreter:
    """A graph with its weights bound, ready to be run.

    Args:
        graph: The program; it must not be edited while this exists.
        weights: As for `execute_ir`.
        constants: As for `execute_ir`.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        WeightError: As for `execute_ir`.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
    ) -> None:
        graph.check()
        self.graph = graph
        if isinstance(weights, (str, os.PathLike)):
            weights = load_weights(weights, graph)
        self._weights = bind_weights(graph, weights, constants)

    def run(self, *args: Any, **kwargs: Any) -> Any:
        """Return what the model returns on these arguments."""
        return unflatten(self.graph.results[0], self.run_flat(args, kwargs)[0])

    def run_flat(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        observe: Observer | None = None,
    ) -> tuple[list[Any], dict[str, torch.Tensor]]:
        """Return the results as a flat list, and the new content of what the model updates, by name.

        Args:
            args: Positional arguments.
            kwargs: Keyword arguments.
            observe: Called after each node, with the node and its outputs; not inside of regions.
        """
        symbols = SymbolValues(self.graph.symbols)
        values = {**self._weights, **bind_inputs(self.graph, args, kwargs or {}, symbols)}
        device = next(
            (tensor.device for tensor in values.values() if isinstance(tensor, torch.Tensor)),
            torch.device("cpu"),
        )
        with _no_outside_influence(device):
            leaves = _run(self.graph, values, device, symbols, observe)
        mutations = {
            name: values[value]
            for target, value in self.graph.updates.items()
            for name in outside_names(target)
        }
        return leaves, mutations


def _run(
    graph: Graph,
    values: dict[Value, Any],
    device: torch.device,
    symbols: SymbolValues,
    observe: Observer | None = None,
) -> list[Any]:
    """Run the nodes of a graph in order; return its results, flat."""
    remaining = {value: len(value.uses) for value in graph.values}
    for node in graph.nodes:
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
    misfit = symbols.out_of_range()
    if misfit is not None:
        raise ExecutionError(str(misfit), where=f"graph {graph.name!r}")
    return [values[leaf] if isinstance(leaf, Value) else leaf for leaf in graph.results[1]]


def _run_region(region: Graph, device: torch.device, around: SymbolValues, *args: Any) -> Any:
    """Return what a region returns; its symbols are its own, but for those known around it."""
    symbols = SymbolValues(region.symbols, around)
    values = {**bind_weights(region, None), **bind_inputs(region, args, {}, symbols)}
    return unflatten(region.results[0], _run(region, values, device, symbols))


def _release(node: OpNode, values: dict[Value, Any], remaining: dict[Value, int]) -> None:
    """Forget the values that nothing reads any more."""
    for value in node.inputs:
        remaining[value] -= 1
    for value in {*node.inputs, *node.outputs}:
        if remaining[value] == 0:
            del values[value]


@contextlib.contextmanager
def _no_outside_influence(device: torch.device) -> Iterator[None]:
    """Shut out what would change the meaning of an op: autograd, autocast, the default device and dtype."""
    accelerated = device.type not in ("cpu", "meta")
    autocast = torch.autocast(device.type, enabled=False) if accelerated else contextlib.nullcontext()
    with (
        torch.no_grad(),
        torch.device("cpu"),
        torch.autocast("cpu", enabled=False),
        autocast,
        float32_by_default(),
    ):
        yield

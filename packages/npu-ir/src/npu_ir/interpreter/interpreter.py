"""The reference interpreter: runs the nodes of a graph in order, one by one.

It defines the meaning of a graph; every other runner is compared with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from npu_ir.core.isolation import isolated_torch_state
from npu_ir.core.node import InputKind, external_names
from npu_ir.core.structure import dict_keys, unflatten
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.errors import ExecutionError
from npu_ir.graph.binding import bind_inputs, bind_weights
from npu_ir.graph.graph import Graph
from npu_ir.graph.requirement import require_graph
from npu_ir.interpreter.prologue import Prologue
from npu_ir.interpreter.run_nodes import Observer, results_of, run_nodes
from npu_ir.serial.checkpoints import load_weights

_CPU = torch.device("cpu")
_MOST_NAMES = 5


def execute_ir(
    graph: Graph,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None,
    constants: Mapping[str, torch.Tensor] | None = None,
    return_mutations: bool = False,
) -> Any:
    """Return the results of ``model(*args, **kwargs)``, computed node by node.

    Neither the arguments nor the weights are modified. No gradients are recorded, and the caller's
    autocast, default device and default dtype have no effect. Tensors with other strides than the graph
    states are copied first.

    Args:
        graph: The graph to run.
        args: Positional arguments, nested as when the model was captured.
        kwargs: Keyword arguments.
        weights: Parameters and buffers by ``state_dict`` key, or the path of a file of them. Not
            needed for a graph without parameters and persistent buffers.
        constants: Tensors by name that replace the graph's constants, or non-persistent buffers.
        return_mutations: Return a pair: the results, and the new content of every buffer,
            parameter or input that the model would have mutated, by name.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        ExecutionError: The arguments do not fit the graph, or a node fails.
        WeightError: Weights are missing, unexpected, or of another shape or dtype.
    """
    _require_no_weights(graph, kwargs)
    interpreter = Interpreter(graph, weights, constants)
    leaves, mutations = interpreter.run_flat(args, kwargs)
    results = unflatten(graph.results[0], leaves)
    return (results, mutations) if return_mutations else results


def _require_no_weights(graph: Graph, kwargs: Mapping[str, Any] | None) -> None:
    """Raise if the keyword arguments of a call are weights, which are given by name, too."""
    if not isinstance(graph, Graph) or not isinstance(kwargs, Mapping) or not kwargs:
        return
    names = {
        name
        for value in graph.arguments
        if value.argument is not None and value.argument.kind is not InputKind.INPUT
        for name in external_names(value)
    }
    taken = names.difference(dict_keys(graph.call[0].children[1].context))
    if taken.issuperset(kwargs):
        raise ExecutionError(
            f"these keyword arguments are weights: {', '.join(list(kwargs)[:_MOST_NAMES])}",
            where="kwargs",
            fix="pass weights=...: execute_ir(graph, args, weights=model.state_dict())",
        )


class Interpreter:
    """A runnable graph: its weights are bound, and its prologue has been evaluated.

    Weights that only the prologue reads are released. Changing weights later does not affect the results
    of the prologue.

    Args:
        graph: The graph to run; it must not be edited during the lifetime of the interpreter.
        weights: As for `execute_ir`.
        constants: As for `execute_ir`.
        observe: Called after each node of the prologue, with the node and its outputs.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        WeightError: As for `execute_ir`.
        ExecutionError: A node of the prologue fails.
    """

    def __init__(
        self,
        graph: Graph,
        weights: Mapping[str, torch.Tensor] | str | os.PathLike[str] | None = None,
        constants: Mapping[str, torch.Tensor] | None = None,
        *,
        observe: Observer | None = None,
    ) -> None:
        require_graph(graph)
        graph.check()
        self.graph = graph
        if isinstance(weights, (str, os.PathLike)):
            weights = load_weights(weights, graph)
        bound = bind_weights(graph, weights, constants)
        self._device = _first_device(bound.values())
        self._prologue = Prologue(graph, bound, self._device or _CPU, observe)
        self._body = graph.body

    def __repr__(self) -> str:
        return f"<Interpreter {self.graph.name!r}: {len(self.graph)} nodes>"

    def run(self, *args: Any, **kwargs: Any) -> Any:
        return unflatten(self.graph.results[0], self.run_flat(args, kwargs)[0])

    def run_flat(
        self,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
        *,
        observe: Observer | None = None,
    ) -> tuple[list[Any], dict[str, torch.Tensor]]:
        """Return the results as a flat list, and the new content of mutated state by name.

        ``observe`` is called after each node of the body, with the node and its outputs; not inside regions.
        """
        symbols = SymbolValues(self.graph.symbols)
        inputs = bind_inputs(self.graph, args, kwargs or {}, symbols)
        device = self._device or _first_device(inputs.values()) or _CPU
        values = {**self._prologue.values_on(device), **inputs}
        with isolated_torch_state(device):
            run_nodes(self._body, values, device, symbols, observe)
            leaves = results_of(self.graph, values, symbols)
            contents = [values[value] for value in self.graph.updates.values()]
            outputs = self._prologue.copy_shared_results([*leaves, *contents])
        mutations = {
            name: content
            for target, content in zip(self.graph.updates, outputs[len(leaves) :], strict=True)
            for name in external_names(target)
        }
        return outputs[: len(leaves)], mutations


def _first_device(values: Iterable[Any]) -> torch.device | None:
    return next((tensor.device for tensor in values if isinstance(tensor, torch.Tensor)), None)

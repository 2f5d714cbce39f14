"""The interface of a side of a comparison, and its implementations for graphs and executors."""

from __future__ import annotations

import abc
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import (
    ExecutionError,
    Graph,
    Interpreter,
    Value,
    VerificationError,
)
from npu_ir.core.node import external_names
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs, bind_weights
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.verify.reference import clone_tensors
from npu_runtime.executor.executor import IRExecutor

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run.

    Attributes:
        results: The flat results.
        updates: The new contents of mutated state, by name.
        notes: Notes for the reader of the comparison.
    """

    results: list[Any]
    updates: dict[str, torch.Tensor]
    notes: tuple[str, ...] = ()


class Side(abc.ABC):
    """One side of a comparison.

    Attributes:
        graph: The graph with the names and the provenance of its values.
        label: A description in a few words.
        is_exact: Whether it computes in float64 whatever the graph declares.
        shows_strides: Whether values have the strides that the graph declares.
        backends: The backends of an executor, in order of preference; None for other sides.
    """

    graph: Graph
    label: str
    is_exact = False
    shows_strides = True
    backends: tuple[str, ...] | None = None

    @abc.abstractmethod
    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        """Run the side without changing it; the run may change the arguments."""

    @abc.abstractmethod
    def weights(self) -> dict[Value, Any]:
        """Return the tensor of every parameter, buffer and constant of the graph."""

    def bind_arguments(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[Value, Any]:
        """Return the values of all arguments of the graph: weights, constants and inputs.

        Raises:
            VerificationError: The arguments of the call do not match the graph.
        """
        try:
            inputs = bind_inputs(self.graph, args, kwargs, SymbolValues(self.graph.symbols))
        except ExecutionError as error:
            raise VerificationError(
                f"{self.label} does not take these inputs: {error.message}", where=error.where, fix=error.fix
            ) from error
        return {**self.weights(), **inputs}


class GraphSide(Side):
    """A graph run by the interpreter, as a side."""

    def __init__(self, graph: Graph, weights: Weights) -> None:
        self.graph = graph
        self.label = f"interpreter of {graph.name!r}"
        self._weights = weights

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        # A new interpreter runs the prologue again, which is observed, too.
        interpreter = Interpreter(self.graph, self._weights, observe=observe)
        return Outcome(*interpreter.run_flat(args, kwargs, observe=observe))

    def weights(self) -> dict[Value, Any]:
        return bind_weights(self.graph, self._weights)


class ExecutorSide(Side):
    """An executor with its weights, as a side: run node by node for inner values, and whole for results."""

    def __init__(self, executor: IRExecutor) -> None:
        self.executor = executor
        self.graph = executor.graph
        self.label = f"executor of {executor.graph.name!r}"
        self.backends = tuple(backend.name for backend in executor.backends)
        native = self.backends[:-1]  # ATen is always the last one
        self.label += f" on {', '.join(native)}" if native else ""

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        random_state = torch.get_rng_state()
        if observe is not None:
            with self.executor.unchanged():
                self.executor.run_flat(*clone_tensors((tuple(args), dict(kwargs))), observe=observe)
        torch.set_rng_state(random_state)
        with self.executor.unchanged():
            return Outcome(*self.executor.run_flat(args, kwargs))

    def weights(self) -> dict[Value, Any]:
        return dict(self.executor.weights())


def select_weights(graph: Graph, weights: Weights) -> dict[str, torch.Tensor]:
    """Return the weights whose names the graph has."""
    names = {name for value in (*graph.weights, *graph.constants.values()) for name in external_names(value)}
    return {name: tensor.detach() for name, tensor in weights.items() if name in names}


def device_of(bound: Mapping[Value, Any]) -> torch.device:
    """Return the device of the first tensor; the CPU where there is none."""
    tensors = (item for item in bound.values() if isinstance(item, torch.Tensor))
    return next((tensor.device for tensor in tensors), torch.device("cpu"))

"""The sides of a comparison: graphs, executors, modules, and graphs in float64."""

from __future__ import annotations

import abc
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import (
    ExecutionError,
    Graph,
    InputKind,
    Interpreter,
    Value,
    VerificationError,
    extract_ir,
)
from npu_ir.core.node import external_names
from npu_ir.core.structure import flatten_like
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs, bind_weights
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.verify import compare as compare_values
from npu_ir.verify.reference import clone_tensors, model_tensors, node_values, run_eagerly
from npu_runtime.diagnostics.compare.float64_run import Float64Run, Missing
from npu_runtime.diagnostics.compare.metrics import to_dense
from npu_runtime.executor.executor import IRExecutor

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one run: flat results, new contents of mutated state by name, notes for the reader."""

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


class ModuleSide(GraphSide):
    """A module run eagerly, as a side; PyTorch computes its inner values for the nodes of its captured graph.

    All of these are in memory at once. Executors registered for ops are not used.
    """

    shows_strides = False  # inner values are copies, and torch.export may declare other strides of results

    def __init__(
        self, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], weights: Weights
    ) -> None:
        graph = extract_ir(model, tuple(args), dict(kwargs))
        self._model = model
        own = model_tensors(model)
        self._unknown = [name for name in weights if name not in own]
        self._tensors = {**own, **weights}
        super().__init__(graph, select_weights(graph, self._tensors))
        self.label = f"eager {type(model).__name__}"

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        random_state, call = torch.get_rng_state(), clone_tensors((tuple(args), dict(kwargs)))
        try:
            with torch.no_grad():  # PyTorch runs other kernels for some ops when it records gradients
                tree, tensors = run_eagerly(self._model, self._tensors, *call)
        except Exception as error:
            raise VerificationError(
                f"the model fails on these inputs: {type(error).__name__}: {error}",
                where=self.label,
                fix=f"the model has no {self._unknown[0]}: give a model of these weights"
                if self._unknown
                else None,
            ) from error
        results = flatten_like(tree, self.graph.results[0], "result")
        updates = self._read_updates(tensors, call)
        if observe is None:
            return Outcome(results, updates)
        torch.set_rng_state(random_state)
        values = node_values(self._model, self._tensors, args, kwargs)
        notes = tuple(self._capture_differences(results, updates, values))
        for node in self.graph.nodes:
            observe(node, [values.pop(value.name, None) for value in node.outputs])
        return Outcome(results, updates, notes)

    def _read_updates(self, tensors: Weights, call: Any) -> dict[str, torch.Tensor]:
        """Return the contents of updated parameters, buffers and inputs after the call, by name.

        Raises:
            VerificationError: The model has no tensor of such a name.
        """
        structure, leaves = self.graph.call
        items = flatten_like(call, structure, "call")
        inputs = {leaf: item for leaf, item in zip(leaves, items, strict=True) if isinstance(leaf, Value)}
        contents = {}
        for target in self.graph.updates:
            is_input = target.argument is not None and target.argument.kind is InputKind.INPUT
            for name in external_names(target):
                if not is_input and name not in tensors:
                    raise VerificationError(
                        f"the graph updates {name!r}, and the model has no parameter or buffer of this name",
                        where=self.label,
                        fix="in forward, read the tensor from the module that registers it, "
                        "not from another object",
                    )
                contents[name] = inputs[target] if is_input else tensors[name]
        return contents

    def _capture_differences(
        self, results: Sequence[Any], updates: Weights, values: Mapping[str, Any]
    ) -> Iterator[str]:
        """Yield notes on results that the captured graph computes otherwise than the module."""
        structure, leaves = self.graph.results
        pairs = list(zip(structure.leaf_paths("result"), leaves, results, strict=True))
        pairs += [
            (f"update of {target.name}", value, updates[external_names(target)[0]])
            for target, value in self.graph.updates.items()
        ]
        for name, leaf, item in pairs:
            if isinstance(leaf, Value) and leaf.name in values:
                found = compare_values(name, to_dense(values[leaf.name]), to_dense(item))
                if not found.ok:
                    yield f"{self.label} is not what its captured graph computes: {found}"


@dataclass(frozen=True)
class Float64:
    """A request to run a graph in float64, with weights, inputs and constants promoted; see `float64`."""

    graph: Graph


def float64(graph: Graph) -> Float64:
    """Return a side that runs ``graph`` in float64, whatever floating-point dtypes it declares."""
    return Float64(graph)


class Float64Side(GraphSide):
    """A graph run in float64, as a side."""

    is_exact = True
    shows_strides = False

    def __init__(self, graph: Graph, weights: Weights) -> None:
        super().__init__(graph, weights)
        self.label = f"float64 run of {graph.name!r}"

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        bound = self.bind_arguments(args, kwargs)
        run = Float64Run(self.graph, bound, (), device_of(bound))
        run.run_remaining(observe)
        results = [run.take(leaf) if isinstance(leaf, Value) else leaf for leaf in self.graph.results[1]]
        updates = {
            name: run.take(value)
            for target, value in self.graph.updates.items()
            for name in external_names(target)
        }
        lost = next((item for item in (*results, *updates.values()) if isinstance(item, Missing)), None)
        if lost is not None:
            raise VerificationError(
                f"{self.label} has no result: {lost.reason}",
                fix="compare with another side; in other comparisons float64 only judges what it can compute",
            )
        return Outcome(results, updates)

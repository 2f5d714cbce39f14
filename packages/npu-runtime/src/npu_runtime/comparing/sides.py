"""What can be compared: modules, graphs, executors and float64 references, all run and observed alike."""

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
from npu_ir.binding import bind_inputs, bind_weights
from npu_ir.node import outside_names
from npu_ir.running import Observer
from npu_ir.structure import flatten_like
from npu_ir.symbol_values import SymbolValues
from npu_ir.verify import compare as compare_values
from npu_ir.verify.reference import copied, model_tensors, node_values, run_eagerly
from npu_runtime.comparing.float64_run import Float64Run, Missing
from npu_runtime.comparing.metrics import dense
from npu_runtime.executor import IRExecutor

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run gave.

    Attributes:
        results: What is returned, flat.
        updates: The new content of what the model changes in place, by name.
        notes: What a reader of the comparison should know.
    """

    results: list[Any]
    updates: dict[str, torch.Tensor]
    notes: tuple[str, ...] = ()


class Side(abc.ABC):
    """One side of a comparison.

    Attributes:
        graph: What its values are called, and where they are from.
        label: What it is, in a few words.
        is_exact: Whether it computes in float64 whatever the graph says.
        shows_strides: Whether values have the strides that the graph promises.
    """

    graph: Graph
    label: str
    is_exact = False
    shows_strides = True

    @abc.abstractmethod
    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        """Run it; the arguments are the run's own, the side stays as it is."""

    @abc.abstractmethod
    def weights(self) -> dict[Value, Any]:
        """Return the tensor of every parameter, buffer and constant of the graph."""

    def bound(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[Value, Any]:
        """Return what comes into the graph from outside.

        Raises:
            VerificationError: The arguments are not what it takes.
        """
        try:
            inputs = bind_inputs(self.graph, args, kwargs, SymbolValues(self.graph.symbols))
        except ExecutionError as error:
            raise VerificationError(
                f"{self.label} does not take these inputs: {error.message}", where=error.where, fix=error.fix
            ) from error
        return {**self.weights(), **inputs}


class GraphSide(Side):
    """A graph, run by the interpreter."""

    def __init__(self, graph: Graph, weights: Weights) -> None:
        self.graph = graph
        self.label = f"interpreter of {graph.name!r}"
        self._weights = weights

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        # Made anew: the prologue is observed, too.
        interpreter = Interpreter(self.graph, self._weights, observe=observe)
        return Outcome(*interpreter.run_flat(args, kwargs, observe=observe))

    def weights(self) -> dict[Value, Any]:
        return bind_weights(self.graph, self._weights)


class ModuleSide(GraphSide):
    """A module, run eagerly; values inside of it are what PyTorch computes for the nodes of its captured graph.

    All of these are in memory at once. Executors that are registered for ops play no part.
    """

    shows_strides = False  # values inside are copies, and results may have others than torch.export says

    def __init__(
        self, model: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], weights: Weights
    ) -> None:
        graph = extract_ir(model, tuple(args), dict(kwargs))
        self._model = model
        self._tensors = {**model_tensors(model), **weights}
        super().__init__(graph, known_to(graph, self._tensors))
        self.label = f"eager {type(model).__name__}"

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        random_state, call = torch.get_rng_state(), copied((tuple(args), dict(kwargs)))
        try:
            with torch.no_grad():  # where gradients are recorded, PyTorch runs other kernels for some ops
                tree, tensors = run_eagerly(self._model, self._tensors, *call)
        except Exception as error:
            raise VerificationError(
                f"the model fails on these inputs: {type(error).__name__}: {error}", where=self.label
            ) from error
        results = flatten_like(tree, self.graph.results[0], "result")
        updates = self._updates(tensors, call)
        if observe is None:
            return Outcome(results, updates)
        torch.set_rng_state(random_state)
        values = node_values(self._model, self._tensors, args, kwargs)
        notes = tuple(self._departures(results, updates, values))
        for node in self.graph.nodes:
            observe(node, [values.pop(value.name, None) for value in node.outputs])
        return Outcome(results, updates, notes)

    def _updates(self, tensors: Weights, call: Any) -> dict[str, torch.Tensor]:
        """Return what parameters, buffers and inputs hold behind the call, of those that the graph updates."""
        structure, leaves = self.graph.call
        given = flatten_like(call, structure, "call")
        inputs = {leaf: item for leaf, item in zip(leaves, given, strict=True) if isinstance(leaf, Value)}
        found = {}
        for target in self.graph.updates:
            is_input = target.argument is not None and target.argument.kind is InputKind.INPUT
            for name in outside_names(target):
                found[name] = inputs[target] if is_input else tensors[name]
        return found

    def _departures(
        self, results: Sequence[Any], updates: Weights, values: Mapping[str, Any]
    ) -> Iterator[str]:
        """Say where the captured graph gives something else than the module: values inside may mislead then."""
        structure, leaves = self.graph.results
        pairs = list(zip(structure.leaf_paths("result"), leaves, results, strict=True))
        pairs += [
            (f"update of {target.name}", value, updates[outside_names(target)[0]])
            for target, value in self.graph.updates.items()
        ]
        for name, leaf, item in pairs:
            if isinstance(leaf, Value) and leaf.name in values:
                found = compare_values(name, dense(values[leaf.name]), dense(item))
                if not found.ok:
                    yield f"{self.label} is not what its captured graph computes: {found}"


class ExecutorSide(Side):
    """An executor, with the weights it has: its program for the results, and node by node for the values inside."""

    def __init__(self, executor: IRExecutor) -> None:
        self.executor = executor
        self.graph = executor.graph
        self.label = f"executor of {executor.graph.name!r}"

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        random_state = torch.get_rng_state()
        if observe is not None:
            with self.executor.unchanged():
                self.executor.run_flat(*copied((tuple(args), dict(kwargs))), observe=observe)
        torch.set_rng_state(random_state)
        with self.executor.unchanged():
            return Outcome(*self.executor.run_flat(args, kwargs))

    def weights(self) -> dict[Value, Any]:
        return dict(self.executor.weights())


@dataclass(frozen=True)
class Float64:
    """A graph that is to be run in float64: weights, inputs and constants promoted; see `float64`.

    Attributes:
        graph: The graph.
    """

    graph: Graph


def float64(graph: Graph) -> Float64:
    """Return a side that runs ``graph`` in float64, whatever dtypes of floats it states."""
    return Float64(graph)


class Float64Side(GraphSide):
    """A graph, run in float64."""

    is_exact = True
    shows_strides = False

    def __init__(self, graph: Graph, weights: Weights) -> None:
        super().__init__(graph, weights)
        self.label = f"float64 run of {graph.name!r}"

    def run(self, args: Sequence[Any], kwargs: Mapping[str, Any], observe: Observer | None) -> Outcome:
        bound = self.bound(args, kwargs)
        run = Float64Run(self.graph, bound, (), device_of(bound))
        run.observed(observe)
        results = [run.take(leaf) if isinstance(leaf, Value) else leaf for leaf in self.graph.results[1]]
        updates = {
            name: run.take(value)
            for target, value in self.graph.updates.items()
            for name in outside_names(target)
        }
        lost = next((item for item in (*results, *updates.values()) if isinstance(item, Missing)), None)
        if lost is not None:
            raise VerificationError(
                f"{self.label} has no result: {lost.reason}",
                fix="compare with another side; in other comparisons float64 only judges what it can compute",
            )
        return Outcome(results, updates)


def known_to(graph: Graph, weights: Weights) -> dict[str, torch.Tensor]:
    """Return those of the weights that ``graph`` has a name for."""
    names = {
        name
        for value in (*graph.parameters.values(), *graph.buffers.values(), *graph.constants.values())
        for name in outside_names(value)
    }
    return {name: tensor.detach() for name, tensor in weights.items() if name in names}


def device_of(bound: Mapping[Value, Any]) -> torch.device:
    """Return the device of the first tensor; the CPU where there is none."""
    tensors = (item for item in bound.values() if isinstance(item, torch.Tensor))
    return next((tensor.device for tensor in tensors), torch.device("cpu"))

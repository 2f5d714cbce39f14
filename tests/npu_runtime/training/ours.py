"""The same step on everything of ours that runs one, behind the interface of the eager step."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import torch
from torch import nn, optim

from npu_ir import Graph, Interpreter, Value
from npu_ir.core.structure import unflatten
from npu_runtime import IRExecutor, TrainStep
from npu_runtime.training import TracedStep, trace_step
from tests.support.training.cases import Case
from tests.support.training.eager import EagerStep, MakeStep, State, full_state


class InterpretedStep:
    """The graph of a step on the interpreter; its weights are kept beside the model."""

    def __init__(self, case: Case, model: nn.Module, optimizer: optim.Optimizer) -> None:
        self._case, self._model, self._optimizer = case, model, optimizer
        self._first = EagerStep(case, model, optimizer) if starts_by_hand(optimizer) else None
        self._graph: Graph | None = None
        self._held: dict[str, torch.Tensor] = {}

    def __call__(self, *batch: Any) -> Any:
        if self._first is not None:
            result, self._first = self._first(*batch), None
            return result
        if self._graph is None:
            step = trace_step(self._model, self._optimizer, self._case.loss, batch, **self._case.options)
            self._graph, self._held = step.graph, held_by(step)
        numbers = hyperparameters(self._graph, self._optimizer)
        leaves, changes = self._run(self._graph, batch, {"hyperparameters": numbers})
        self._held |= {name: item for name, item in changes.items() if name in self._held}
        self._optimizer._opt_called = True  # schedulers warn otherwise: the graph does not call the optimizer
        return unflatten(self._graph.results[0], leaves)

    def _run(self, graph: Graph, batch: Any, named: Mapping[str, Any]) -> Any:
        kept = not_persistent(graph)
        weights = {name: item for name, item in self._held.items() if name not in kept}
        constants = {name: item for name, item in self._held.items() if name in kept}
        return Interpreter(graph, weights, constants).run_flat(batch, named)

    def state(self) -> State:
        held = {name: item.detach().clone() for name, item in self._held.items()}
        # The graph has no part in the state of what has no gradient: the optimizer keeps that.
        return {**full_state(self._model, self._optimizer), **held}


class ExecutedStep(InterpretedStep):
    """The graph of a step on the executor, which keeps the state itself."""

    passes: str | None = None
    _executor: IRExecutor | None = None

    def _run(self, graph: Graph, batch: Any, named: Mapping[str, Any]) -> Any:
        kept = not_persistent(graph)
        if self._executor is None:
            weights = {name: item for name, item in self._held.items() if name not in kept}
            self._executor = IRExecutor(graph, weights, passes=self.passes)
        leaves, _ = self._executor.run_flat(batch, named)
        held = {
            value.argument.target: item for value, item in self._executor.weights().items() if value.argument
        }
        return leaves, held


class OptimizedStep(ExecutedStep):
    passes = "train"


class ReplayedStep:
    """`TrainStep`: changes model and optimizer themselves."""

    options: Mapping[str, Any] = MappingProxyType({"capture": "require"})

    def __init__(self, case: Case, model: nn.Module, optimizer: optim.Optimizer) -> None:
        self._model, self._optimizer = model, optimizer
        self.step = TrainStep(model, optimizer, case.loss, **{**case.options, **self.options})

    def __call__(self, *batch: Any) -> Any:
        return self.step(*batch)

    def state(self) -> State:
        return full_state(self._model, self._optimizer)


class PlainReplay(ReplayedStep):
    """`TrainStep` without passes: the kernels are those of the interpreter."""

    options: Mapping[str, Any] = MappingProxyType({"capture": "require", "passes": None})


class NativeReplay(ReplayedStep):
    """`TrainStep` on the native ops of the host."""

    options: Mapping[str, Any] = MappingProxyType({"capture": "require", "backend": "host"})


WAYS: Mapping[str, MakeStep] = {
    "interpreter": InterpretedStep,
    "executor": ExecutedStep,
    "executor, train": OptimizedStep,
    "replay": PlainReplay,
    "replay, train": ReplayedStep,
    "replay, host": NativeReplay,
}


# It makes parameters orthogonal by products of bfloat16: other sums of these round to other last bits, which
# both forms of eager have in common.
NOT_NATIVE = "Muon"


def ways_of(recipe: str) -> Mapping[str, MakeStep]:
    """Return the ways that an optimizer is judged on."""
    return {way: make for way, make in WAYS.items() if (way, recipe) != ("replay, host", NOT_NATIVE)}


def starts_by_hand(optimizer: optim.Optimizer) -> bool:
    """Return whether a first step must initialise the state: with dampening, SGD starts from a gradient."""
    return any(group.get("momentum") and group.get("dampening") for group in optimizer.param_groups)


def held_by(step: TracedStep) -> dict[str, torch.Tensor]:
    return {name: item.detach().clone() for name, item in step.weights().items()}


def not_persistent(graph: Graph) -> set[str]:
    """Return the buffers of a graph that come as constants."""
    arguments = [value.argument for value in graph.buffers.values() if value.argument]
    return {argument.target for argument in arguments if not argument.persistent}


def hyperparameters(graph: Graph, optimizer: optim.Optimizer) -> dict[str, Any]:
    """Return what a graph reads from an optimizer, and the numbers it was specialized for."""
    structure, leaves = graph.call
    known: Mapping[str, Any] = unflatten(structure, list(leaves))[1]["hyperparameters"]
    return {
        name: _entry(optimizer, name) if isinstance(item, Value) else item for name, item in known.items()
    }


def _entry(optimizer: optim.Optimizer, name: str) -> float:
    group, key, *index = name.removeprefix("group").split(".")
    item = optimizer.param_groups[int(group)][key]
    return float(item[int(index[0])] if index else item)

"""Runners of a compiled step: the planned program, its recording on a device, or the executor op by op."""

from __future__ import annotations

import abc
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import torch

from npu_ir import Graph, TensorType, Value
from npu_ir.core.node import external_names
from npu_ir.core.structure import unflatten
from npu_ir.plugins.backend import StepLoop
from npu_runtime._torch.fast_calls import copy_all
from npu_runtime._torch.state import below_autograd
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.lowering.lowered_graph import LoweredGraph
from npu_runtime.planned import PlannedProgram
from npu_runtime.planned.load_inputs import copy_tensors
from npu_runtime.planned.uninterrupted_call import UninterruptedCall
from npu_runtime.training.capture.capture_state import interrupted
from npu_runtime.training.capture.cuda_graphs import GraphCapture

# The values of `CompileArtifact.capture_state`.
CUDA_GRAPH, PLANNED, OFF = "cuda-graph", "planned", "off"


class Runner(Protocol):
    """The interface of a runner: it takes steps over tensors with fixed addresses.

    Attributes:
        inputs: The fixed tensor of each input of the graph; None for a scalar.
        state: The tensors that a step mutates, by name.
        tensors: All tensors with fixed addresses, by name of their value.
        lowered: The lowered graph that it runs.
        steps: How many steps have changed the state; None as for `PlannedProgram.steps`.
    """

    inputs: tuple[torch.Tensor | None, ...]
    state: Mapping[str, torch.Tensor]
    tensors: Mapping[str, torch.Tensor]
    lowered: LoweredGraph

    @property
    def steps(self) -> int | None: ...

    def load(self, batch: Sequence[torch.Tensor]) -> None:
        """Copy a batch, a tensor for each input that is one, into the fixed inputs."""

    def run(
        self,
        batch: Sequence[torch.Tensor],
        numbers: Sequence[Any],
        borrow: bool = True,
        in_default_state: bool = False,
    ) -> Sequence[Any]:
        """Take one step on a batch, or on the contents of the inputs if it is empty.

        Args:
            batch: As for `load`.
            numbers: The scalar inputs of the graph, in order.
            borrow: The next step may overwrite the results.
            in_default_state: As for `PlannedProgram.step`.

        Returns:
            The flat results.
        """


@dataclass(frozen=True, slots=True)
class BoundStep:
    """A step bound to weights; the fields are the attributes of `CompileArtifact` of the same names."""

    capture_state: str
    reason: str
    program: PlannedProgram | None
    runner: Runner


class NumberTensors:
    """The 0-d tensors in a program that stand for scalar inputs of the graph that the caller sees.

    A fill is a call of a kernel: only scalars that changed are filled, such as a scheduled learning rate.

    Attributes:
        inputs: The fixed tensor of each input of the graph; None for a scalar.
        other_places: The places, among the scalars, of those that are numbers in the program, too.
    """

    def __init__(self, graph: Graph, tensors: Mapping[str, torch.Tensor]) -> None:
        inputs = [(value, tensors.get(value.name)) for value in graph.inputs]
        self.inputs = tuple(item if isinstance(value.type, TensorType) else None for value, item in inputs)
        scalars = [item for value, item in inputs if not isinstance(value.type, TensorType)]
        self._tensors = [(place, item) for place, item in enumerate(scalars) if item is not None]
        self._filled: list[Any] = [None] * len(self._tensors)
        self.other_places = [place for place, item in enumerate(scalars) if item is None]
        self._numbers: Sequence[Any] | None = None

    def __bool__(self) -> bool:
        return bool(self._tensors)

    def fill(self, numbers: Sequence[Any]) -> None:
        """Give the tensors the values of these scalars."""
        if numbers == self._numbers:
            return
        for index, (place, item) in enumerate(self._tensors):
            number = numbers[place]
            if number != self._filled[index]:
                item.fill_(number)
                self._filled[index] = number
        self._numbers = list(numbers)

    def others(self, numbers: Sequence[Any]) -> Sequence[Any]:
        """Return the scalars that are numbers in the program, too."""
        return [numbers[place] for place in self.other_places]


class PlannedRunner:
    """A runner of the planned program: calls of kernels over fixed memory.

    Args:
        graph: The graph with scalar inputs, as the caller sees it.
        program: The planned program of the graph, in which some of them may be 0-d tensors.
        numbers: The scalar inputs now, in order; None if they are not known.
    """

    def __init__(self, graph: Graph, program: PlannedProgram, numbers: Sequence[Any] | None) -> None:
        self.state: Mapping[str, torch.Tensor] = state_of(program)
        self.tensors: Mapping[str, torch.Tensor] = tensors_of(program)
        self.lowered = program.plan.lowered
        self._numbers = NumberTensors(graph, self.tensors)
        self.inputs = self._numbers.inputs
        self._fixed = [item for item in self.inputs if item is not None]
        self._program = program
        self._step = program.step
        self.run = self._run_with_numbers if self._numbers else program.step
        if numbers is not None:
            self._numbers.fill(numbers)

    @property
    def steps(self) -> int | None:
        return self._program.steps

    def load(self, batch: Sequence[torch.Tensor]) -> None:
        copy_tensors(self._fixed, batch)

    def make_loop(self, numbers: Sequence[Any], slots: Sequence[Sequence[torch.Tensor]]) -> StepLoop | None:
        """Return the loop of `CompiledStep.make_loop`."""
        self._numbers.fill(numbers)
        return self._program.make_loop(self._fixed, slots)

    def write_step(self, given: Sequence[str], borrow: bool) -> tuple[list[str], dict[str, Any]]:
        """Return statements of `run`, as `PlannedProgram.write_step`; ``numbers`` are those of `run`."""
        numbers = [f"numbers[{place}]" for place in self._numbers.other_places]
        if not self._numbers:
            return self._program.write_step(given, numbers, borrow)
        lines, space = self._program.write_step((), numbers, borrow)
        if given:
            lines.insert(0, f"copy_all(batch, ({''.join(f'{name}, ' for name in given)}))")
        lines.insert(0, "fill(numbers)")
        return lines, {**space, "fill": self._numbers.fill, "batch": self._fixed}

    def explain(self, error: Exception) -> None:
        """Raise an error that names the failed node; see `PlannedProgram.explain`."""
        self._program.explain(error)

    def _run_with_numbers(
        self,
        batch: Sequence[torch.Tensor],
        numbers: Sequence[Any],
        borrow: bool = True,
        in_default_state: bool = False,
    ) -> Sequence[Any]:
        self._numbers.fill(numbers)
        if batch:
            with below_autograd():  # a tensor of the batch may require a gradient
                copy_all(self._fixed, batch)
        return self._step((), self._numbers.others(numbers), borrow, in_default_state)


class _LoadingRunner(abc.ABC):
    """Base of runners that copy a batch in, then launch a step."""

    @abc.abstractmethod
    def load(self, batch: Sequence[torch.Tensor]) -> None: ...

    @abc.abstractmethod
    def launch(self, numbers: Sequence[Any]) -> Sequence[Any]:
        """Take one step on the contents of the inputs; return the flat results, which are not copied."""

    def run(
        self,
        batch: Sequence[torch.Tensor],
        numbers: Sequence[Any],
        borrow: bool = True,
        in_default_state: bool = False,  # noqa: ARG002 - a launch asks itself, or does not depend on it
    ) -> Sequence[Any]:
        """Take one step; see `Runner.run`."""
        if batch:
            self.load(batch)
        results = self.launch(numbers)
        if borrow:
            return results
        return [item.clone() if isinstance(item, torch.Tensor) else item for item in results]


class RecordedRunner(_LoadingRunner):
    """A runner of a recorded program.

    Scalars that are 0-d tensors there are filled before each replay. The others are part of the recording:
    where one of them changes, the step is recorded again.

    Args:
        graph: The graph with scalar inputs, as the caller sees it.
        program: The planned program of the graph in which they are tensors, where that is possible.
        record: Records the program, given the other numbers.
        numbers: The scalar inputs of the graph now, in order; unused where all of them are tensors.
    """

    def __init__(
        self,
        graph: Graph,
        program: PlannedProgram,
        record: Callable[[Sequence[Any]], GraphCapture],
        numbers: Sequence[Any],
    ) -> None:
        self.state: Mapping[str, torch.Tensor] = state_of(program)
        self.tensors: Mapping[str, torch.Tensor] = tensors_of(program)
        self._numbers = NumberTensors(graph, self.tensors)
        self.inputs = self._numbers.inputs
        self._fixed = [item for item in self.inputs if item is not None]
        self._record = record
        self._recorded_numbers = self._numbers.others(numbers) if self._numbers.other_places else []
        self.capture = record(self._recorded_numbers)
        self._replay = UninterruptedCall(self._replay_recording)
        self._outputs = program.outputs
        self.lowered = program.plan.lowered

    def load(self, batch: Sequence[torch.Tensor]) -> None:
        copy_tensors(self._fixed, batch)

    def launch(self, numbers: Sequence[Any]) -> Sequence[Any]:
        if self._numbers.other_places:
            recorded = self._numbers.others(numbers)
            if recorded != self._recorded_numbers:
                with interrupted():
                    self.capture = self._record(recorded)
                self._recorded_numbers = recorded
        self._numbers.fill(numbers)
        self._replay()
        return self._outputs

    def _replay_recording(self) -> None:
        self.capture.replay()

    @property
    def steps(self) -> int:
        return self._replay.count


class ExecutorRunner(_LoadingRunner):
    """A runner of an uncaptured step: the executor allocates its results, and state is updated in place.

    Args:
        graph: The graph; it may have symbolic sizes.
        weights: The weights by name, updated in place.
        executor: The executor of the graph.
    """

    def __init__(self, graph: Graph, weights: Mapping[str, torch.Tensor], executor: IRExecutor) -> None:
        self._graph = graph
        self._weights = weights
        self._executor = executor
        self.lowered = executor.lowered
        self._store = UninterruptedCall(partial(store_mutations, graph))
        self._batch = [value for value in graph.inputs if isinstance(value.type, TensorType)]
        self._numbers = [value for value in graph.inputs if not isinstance(value.type, TensorType)]
        self._held: dict[Value, Any] = {
            value: torch.zeros(value.type.static_shape, dtype=value.type.dtype, device=executor.device)
            for value in graph.inputs
            if isinstance(value.type, TensorType) and not value.type.symbols
        }
        self.inputs = tuple(self._held.get(value) for value in graph.inputs)
        self.state: Mapping[str, torch.Tensor] = {
            target.name: self._tensor_of(target)
            for target in graph.updates
            if target in self._held or target not in graph.inputs
        }
        self.tensors: Mapping[str, torch.Tensor] = {
            **self.state,
            **{value.name: item for value, item in self._held.items()},
        }

    def _tensor_of(self, target: Value) -> torch.Tensor:
        if target in self._held:
            tensor: torch.Tensor = self._held[target]
            return tensor
        return find_weight(target, self._weights).detach()

    def load(self, batch: Sequence[torch.Tensor]) -> None:
        """Copy a batch into the fixed inputs; tensors with symbolic sizes are not copied."""
        for value, item in zip(self._batch, batch, strict=True):
            if value.type.symbols:
                self._held[value] = item
            else:
                self._held[value].copy_(item.detach())

    def launch(self, numbers: Sequence[Any]) -> Sequence[Any]:
        """Take one step; the state is updated after all of it has been computed."""
        arguments = {**self._held, **dict(zip(self._numbers, numbers, strict=True))}
        structure, leaves = self._graph.call
        args, kwargs = unflatten(
            structure, [arguments[leaf] if isinstance(leaf, Value) else leaf for leaf in leaves]
        )
        self._executor.load_state_dict(self._weights)
        results, mutations = self._executor.run_flat(args, kwargs)
        self._store(mutations, self._tensor_of)
        return results

    @property
    def steps(self) -> int:
        return self._store.count


def tensors_of(program: PlannedProgram) -> dict[str, torch.Tensor]:
    """Return the tensors of a program with fixed addresses, by name."""
    return {name: item for name, item in program.tensors.items() if isinstance(item, torch.Tensor)}


def state_of(program: PlannedProgram) -> dict[str, torch.Tensor]:
    """Return the tensors that a program mutates, by name."""
    return {target.name: program.tensors[target.name] for target in program.plan.graph.updates}


def find_weight(target: Value, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the tensor of a parameter, buffer or optimizer state, under any of its names."""
    return next(weights[name] for name in external_names(target) if name in weights)


def select_weights(graph: Graph, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights that the graph has arguments for: passes may have dropped some."""
    names = {name for value in graph.arguments for name in external_names(value)}
    return {name: item for name, item in weights.items() if name in names}


def store_mutations(graph: Graph, mutations: Mapping[str, torch.Tensor], tensor_of: Any) -> None:
    """Copy the new state that a run has computed into the tensors of the state."""
    with torch.no_grad():
        for target in graph.updates:
            assert target.argument is not None
            tensor_of(target).copy_(mutations[target.argument.target])

"""Runners of a compiled step: the planned program, its recording on a device, or the executor op by op."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from npu_ir import Graph, TensorType, Value
from npu_ir.core.node import external_names
from npu_ir.core.structure import unflatten
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs
from npu_runtime.codegen.call_binder import positional_tuple
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.planned import PlannedProgram
from npu_runtime.planned.load_inputs import make_loader
from npu_runtime.training.capture.capture_state import REPLAYING
from npu_runtime.training.capture.graph_capture import GraphCapture

# The values of `CompileArtifact.capture_state`.
CUDA_GRAPH, PLANNED, OFF = "cuda-graph", "planned", "off"


class Runner(Protocol):
    """The interface of a runner: it runs a step over tensors with fixed addresses.

    Attributes:
        inputs: The fixed tensor of each input of the graph; None for a scalar.
        state: The tensors that a step mutates, by name.
        tensors: All tensors with fixed addresses, by name of their value.
    """

    inputs: tuple[torch.Tensor | None, ...]

    @property
    def state(self) -> Mapping[str, torch.Tensor]: ...

    @property
    def tensors(self) -> Mapping[str, torch.Tensor]: ...

    def load(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Copy the tensors of a call into the fixed inputs; return its scalars."""

    def run(self, *numbers: Any) -> Sequence[Any]:
        """Take one step; return its flat results, which the next step overwrites."""


@dataclass(frozen=True, slots=True)
class BoundStep:
    """A step bound to weights; the fields are the attributes of `CompileArtifact` of the same names."""

    capture_state: str
    reason: str
    program: PlannedProgram | None
    runner: Runner


class PlannedRunner:
    """A runner of the planned program: calls of kernels over fixed memory."""

    def __init__(self, program: PlannedProgram) -> None:
        self.program = program
        self.inputs = program.inputs
        self.tensors = tensors_of(program)
        self.state = state_of(program)
        self.load = program.load
        self._run = program.run

    def run(self, *numbers: Any) -> Sequence[Any]:
        """Take one step."""
        with REPLAYING:
            return self._run(*numbers)


class RecordedRunner:
    """A runner of a recorded program; its scalars are 0-d tensors, which are filled before each replay.

    Args:
        graph: The graph with scalar inputs, as the caller sees it.
        program: The planned program of the graph in which they are tensors.
        capture: The recording of that program.
    """

    def __init__(self, graph: Graph, program: PlannedProgram, capture: GraphCapture) -> None:
        self.capture = capture
        self.tensors = tensors_of(program)
        self.state = state_of(program)
        fixed = dict(zip((value.name for value in program.plan.graph.inputs), program.inputs, strict=True))
        is_tensor = {value: isinstance(value.type, TensorType) for value in graph.inputs}
        self.inputs = tuple(fixed[value.name] if is_tensor[value] else None for value in graph.inputs)
        self.load = make_loader(
            graph,
            {value: fixed[value.name] for value in graph.inputs if is_tensor[value]},
            program.plan.device,
        )
        self._number_tensors = [fixed[value.name] for value in graph.inputs if not is_tensor[value]]
        self._filled_numbers: list[Any] = [None] * len(self._number_tensors)
        self._outputs = program.outputs

    def run(self, *numbers: Any) -> Sequence[Any]:
        """Take one step."""
        # A fill is a kernel launch: only scalars that changed are filled, such as a scheduled learning rate.
        for index, (number, before) in enumerate(zip(numbers, self._filled_numbers, strict=True)):
            if number != before:
                tensor = self._number_tensors[index]
                assert tensor is not None
                tensor.fill_(number)
                self._filled_numbers[index] = number
        self.capture.replay()
        return self._outputs


class ExecutorRunner:
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
        self._input_tensors: dict[Value, Any] = {
            value: torch.zeros(value.type.static_shape, dtype=value.type.dtype, device=executor.device)
            for value in graph.inputs
            if isinstance(value.type, TensorType) and not value.type.symbols
        }
        self.inputs = tuple(self._input_tensors.get(value) for value in graph.inputs)
        self.state = {
            target.name: self._tensor_of(target)
            for target in graph.updates
            if target in self._input_tensors or target not in graph.inputs
        }
        self.tensors = {**self.state, **{value.name: item for value, item in self._input_tensors.items()}}

    def _tensor_of(self, target: Value) -> torch.Tensor:
        if target in self._input_tensors:
            tensor: torch.Tensor = self._input_tensors[target]
            return tensor
        return find_weight(target, self._weights).detach()

    def load(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Copy the tensors of a call into the fixed inputs; those with symbolic sizes are not copied."""
        bound = bind_inputs(self._graph, positional_tuple(args), kwargs, SymbolValues(self._graph.symbols))
        for value, item in bound.items():
            if value.type.symbols:
                self._input_tensors[value] = item
            elif value in self._input_tensors:
                self._input_tensors[value].copy_(item.detach())
        return tuple(bound[value] for value in self._graph.inputs if not isinstance(value.type, TensorType))

    def run(self, *numbers: Any) -> Sequence[Any]:
        """Take one step; the state is updated after all of it has been computed."""
        named = [value for value in self._graph.inputs if not isinstance(value.type, TensorType)]
        arguments = {**self._input_tensors, **dict(zip(named, numbers, strict=True))}
        structure, leaves = self._graph.call
        args, kwargs = unflatten(
            structure, [arguments[leaf] if isinstance(leaf, Value) else leaf for leaf in leaves]
        )
        with REPLAYING:
            self._executor.load_state_dict(self._weights)
            results, mutations = self._executor.run_flat(args, kwargs)
            store_mutations(self._graph, mutations, self._tensor_of)
        return results


def tensors_of(program: PlannedProgram) -> dict[str, torch.Tensor]:
    """Return the tensors of a program with fixed addresses, by name."""
    return {name: item for name, item in program.tensors.items() if isinstance(item, torch.Tensor)}


def state_of(program: PlannedProgram) -> dict[str, torch.Tensor]:
    """Return the tensors that a program mutates, by name."""
    return {target.name: program.tensors[target.name] for target in program.plan.graph.updates}


def find_weight(target: Value, weights: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Return the tensor of a parameter, buffer or optimizer state, under any of its names."""
    return next(weights[name] for name in external_names(target) if name in weights)


def store_mutations(graph: Graph, mutations: Mapping[str, torch.Tensor], tensor_of: Any) -> None:
    """Copy the new state that a run has computed into the tensors of the state."""
    with torch.no_grad():
        for target in graph.updates:
            assert target.argument is not None
            tensor_of(target).copy_(mutations[target.argument.target])

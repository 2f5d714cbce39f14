"""`CompiledStep`: a training step bound to memory, which takes steps, and is bound again to other memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from npu_ir import Graph, InputKind, TensorType
from npu_ir.core.structure import make_unflatten, unflatten
from npu_ir.ops.effects import is_random
from npu_ir.plugins.backend import StepLoop
from npu_runtime.codegen.call_binder import make_binder
from npu_runtime.errors import CaptureError
from npu_runtime.executor.input_updates import require_writable
from npu_runtime.planned.load_inputs import CallInputs, copy_tensors
from npu_runtime.training.capture.capture_state import (
    STATE,
    activity,
    require_outside_capture,
    require_untraced,
)
from npu_runtime.training.capture.runners import PlannedRunner, find_weight, select_weights
from npu_runtime.training.capture.select_runner import CapturePolicy
from npu_runtime.training.capture.snapshots import Snapshot
from npu_runtime.training.shared_state import SharedState
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.hyperparameters import make_reader
from npu_runtime.training.tracing.traced_step import HYPERPARAMETERS, TracedStep


class CompiledStep:
    """A compiled step with the best runner that works, over the memory of its weights.

    Args:
        policy: How the step is captured.
        weights: Parameters, buffers and optimizer state by name; those that passes have dropped are ignored.
        traced: The step as it was traced; None for a plain graph, which has no optimizers.

    Attributes:
        graph: The graph, after the passes.
        backends: The backends, in order of preference.
        device: The device that it runs on.
        report: The report of the capture check; None without one.
        generators: Further generators that the step draws from, besides PyTorch's default ones.
        weights: Parameters, buffers and optimizer state by name, in their own memory.
        capture_state: ``"cuda-graph"``: recorded by the device; ``"planned"``: the planned program over fixed
            memory; ``"off"``: the executor, op by op.
        reason: Why it is not captured, or not recorded by the device; empty otherwise.
        program: The planned program over fixed memory; None where the step is not captured.
        runner: What takes the steps.
        unflatten: Returns the results of a step, given the flat ones.
        lock: Held by whoever takes a step, or binds.
        batch: A graph without nodes, which takes the tensors of a batch. Of traced steps only.
        bind_batch: Returns the tensors of a batch, first in a tuple, if it needs no other check; else None.
            Of traced steps only.
        numbers: The scalar inputs of the last step; None before the first.
    """

    def __init__(
        self, policy: CapturePolicy, weights: Mapping[str, torch.Tensor], traced: TracedStep | None
    ) -> None:
        self.graph = policy.graph
        self.backends = policy.backends
        self.report = policy.report
        self.generators = tuple(policy.options.generators)
        self.lock = threading.RLock()
        self.numbers: Sequence[Any] | None = None
        self._policy = policy
        self.device = policy.device
        self._traced = traced
        self._call_inputs = CallInputs(self.graph, policy.device)
        self.unflatten = make_unflatten(self.graph.results[0])
        self._is_random = any(map(is_random, self.graph.nodes))
        tensors = [value for value in self.graph.inputs if isinstance(value.type, TensorType)]
        # Of each tensor of a batch that a step writes to: its place in the batch, and among all inputs.
        self._written = [
            (value, index, self.graph.inputs.index(value))
            for index, value in enumerate(tensors)
            if value in self.graph.updates
        ]
        self._scalars = [
            value.argument.target
            for value in self.graph.inputs
            if not isinstance(value.type, TensorType) and value.argument is not None
        ]
        if traced is not None:
            self.batch = _batch_signature(self.graph)
            self.bind_batch = make_binder(self.batch, policy.device)
            self._switches = hyperparameters.switches(traced.components.optimizers)
        self._bind(weights)

    def _bind(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Bind to tensors; if that fails, nothing has changed."""
        own = select_weights(self.graph, weights)
        shared = None if self._traced is None else SharedState(self._traced, weights)
        bound = self._policy.bind(own, None if self._traced is None else self.example_numbers)
        self.weights, self._shared = own, shared
        self.capture_state, self.reason = bound.capture_state, bound.reason
        self.program, self.runner = bound.program, bound.runner
        self._bound_addresses = [
            (target.argument.target, find_weight(target, own), self.runner.state[target.name].data_ptr())
            for target in self.graph.updates
            if target.argument is not None and target.argument.kind is not InputKind.INPUT
        ]
        if self._traced is not None:
            self._read_optimizers(self._traced)
            self._values = self._read_numbers()

    def _read_optimizers(self, traced: TracedStep) -> None:
        """Prepare to read the scalar inputs of the graph, and other numbers that branches compare."""
        compared = {name for branch in traced.branches for name in branch.names}.difference(self._scalars)
        self._names = [*self._scalars, *sorted(compared)]
        self._read_numbers = make_reader(traced.components.optimizers, self._names)

    # Steps

    def step(
        self,
        batch: Sequence[torch.Tensor],
        numbers: Sequence[Any],
        borrow: bool = False,
        in_default_state: bool = False,
    ) -> Any:
        """Take a step; if that fails, everything is as it was, random generators included.

        Args:
            batch: A tensor of the same type for each input of the graph that is one, in order; or none, to
                run on the contents of the inputs. The step writes into those that it mutates.
            numbers: A number for each other input.
            borrow: Return the tensors that the next step overwrites, instead of new ones.
            in_default_state: As for `PlannedProgram.step`.
        """
        if STATE.activity:
            require_outside_capture("a replay")
        require_untraced("a replay")
        written = self._written if batch else ()
        for target, index, _ in written:
            require_writable(self.graph, target, batch[index])
        before = Snapshot((), self.generators, [self.device]) if self._is_random else None
        steps = self.runner.steps
        # Set directly: a context manager takes ten times as long. By position: keywords cost 50 ns per call.
        STATE.activity = "replay"
        try:
            results = self.runner.run(batch, numbers, borrow, in_default_state)
        except BaseException:
            if before is not None and self.runner.steps == steps:
                before.restore()
            raise
        finally:
            STATE.activity = ""
        self.numbers = numbers
        if self._shared is not None and not self._shared.is_installed:
            self._shared.install()
        for _, index, place in written:
            fixed = self.runner.inputs[place]
            if fixed is not None:  # else the step has worked on the tensor itself
                copy_tensors([batch[index]], [fixed])
        return self.unflatten(results)

    def try_step(self, numbers: Sequence[Any]) -> Sequence[Any]:
        """Take a step on the contents of the inputs, and return its flat results.

        Its state is not given to the optimizers, so that it can be undone.
        """
        with self.lock, activity("replay"):
            self.numbers = numbers
            return self.runner.run((), numbers)

    def make_loop(self, numbers: Sequence[Any], slots: Sequence[Sequence[torch.Tensor]]) -> StepLoop | None:
        """Return a loop that takes steps without Python, on slots for batches; None if some part needs it.

        Args:
            numbers: As for `step`; the same for all steps.
            slots: Of each slot the tensors of a batch, as for `step`.
        """
        # To restore random generators after a failure takes Python.
        if self._is_random or not isinstance(self.runner, PlannedRunner):
            return None
        return self.runner.make_loop(numbers, slots)

    @property
    def is_steady(self) -> bool:
        """The claim that a step runs its program alone, once the first one has been taken."""
        is_plain = not self._is_random and not self._written and isinstance(self.runner, PlannedRunner)
        return is_plain and self._shared is not None and self._shared.is_installed

    # The numbers of the optimizers

    def current_numbers(self) -> list[float] | None:
        """Return the scalar inputs of the graph, now; None if Python would take other branches by them."""
        values = self._read_numbers()
        if values is not self._values:
            if values != self._values and self._changed_branch(values) is not None:
                return None
            self._values = values
        return values if len(values) == len(self._scalars) else values[: len(self._scalars)]

    def write_numbers(self) -> tuple[list[str], dict[str, Any]]:
        """Return expressions of all that `current_numbers` depends on, and the groups that they name."""
        assert self._traced is not None
        return hyperparameters.write_entries(self._traced.components.optimizers, self._names)

    def changed_condition(self) -> str | None:
        """Return what held for the numbers and switches of the optimizers in the trace, and does not now."""
        if self._traced is None:
            return None
        now = hyperparameters.switches(self._traced.components.optimizers)
        for name, value in self._switches.items():
            if now.get(name) is not value:
                return f"{name} is {value}"
        self._read_optimizers(self._traced)  # a loaded state replaces the groups
        return self._changed_branch(self._read_numbers())

    def _changed_branch(self, values: Sequence[float]) -> str | None:
        assert self._traced is not None
        current = dict(zip(self._names, values, strict=True))
        changed = {name for name, old in zip(self._names, self._values, strict=True) if current[name] != old}
        # A scheduler may change the learning rate at each step: only branches on it are evaluated.
        affected = (branch for branch in self._traced.branches if not changed.isdisjoint(branch.names))
        return next((branch.text for branch in affected if not branch.holds(current)), None)

    @property
    def example_numbers(self) -> Sequence[Any]:
        """The scalars of the last step; before the first one those of the optimizers, or zeros."""
        if self.numbers is not None:
            return self.numbers
        current = {} if self._traced is None else self._traced.hyperparameters()
        return [current.get(name, 0.0) for name in self._scalars]

    @property
    def program_numbers(self) -> Sequence[Any]:
        """Those of `example_numbers` that are numbers for `program`, too, not tensors among its inputs."""
        if self.program is None or not self.program.numbers:
            return ()
        scalars = [value.name for value in self.graph.inputs if not isinstance(value.type, TensorType)]
        taken = set(self.program.numbers)
        return [number for name, number in zip(scalars, self.example_numbers, strict=True) if name in taken]

    # Arguments and memory

    def bind_call(
        self, args: tuple[Any, ...], kwargs: Mapping[str, Any]
    ) -> tuple[list[torch.Tensor], list[Any]]:
        """Return the tensors and the numbers of a call, as `step` takes them, after a full check.

        ``hyperparameters`` are by default the current ones of the optimizers.

        Raises:
            ExecutionError: The arguments do not fit the graph.
        """
        return self._call_inputs.of(args, self.add_hyperparameters(kwargs))

    def add_hyperparameters(self, named: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return named arguments with the current hyperparameters of the optimizers, unless they have any."""
        if self._traced is None or HYPERPARAMETERS in named:
            return named
        return {**named, HYPERPARAMETERS: self._traced.hyperparameters()}

    def pointers(self) -> dict[str, int]:
        """Return the address of every fixed buffer by name: only `rebind` changes one."""
        return {name: item.data_ptr() for name, item in self.runner.tensors.items()}

    def moved(self) -> list[str]:
        """Return the names of mutated tensors whose memory was replaced since the step was bound."""
        return [name for name, tensor, address in self._bound_addresses if tensor.data_ptr() != address]

    def has_foreign_state(self) -> bool:
        """Return whether the optimizers hold other state than the step works on."""
        return self._shared is not None and self._shared.is_replaced()

    def rebind(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Bind the step to other tensors of the same types; nothing is traced, lowered or planned again."""
        with self.lock:
            self._bind(weights)

    def rebind_replaced_state(self) -> None:
        """Bind to the state that the optimizers hold, if it is other state than the step works on.

        Raises:
            CaptureError: Some of it is missing, or of another type.
        """
        if self._shared is not None and self._shared.is_replaced():
            self.rebind({**self.weights, **self._shared.current()})

    def rebind_components(self) -> bool:
        """Bind to the tensors of modules and optimizers; return False if state is missing or unfit."""
        assert self._traced is not None
        assert self._shared is not None
        components = self._traced.components
        try:
            state = self._shared.current()
        except CaptureError:
            return False
        self.rebind({**components.parameters(), **components.buffers(), **state})
        return True


def _batch_signature(graph: Graph) -> Graph:
    """Return a graph without nodes and results, which takes the tensors of a step, and no hyperparameters."""
    batch = Graph(f"{graph.name}-batch")
    inputs = {
        value: batch.add_input(value.name, value.type)
        for value in graph.inputs
        if isinstance(value.type, TensorType)
    }
    structure, leaves = graph.call
    args, kwargs = unflatten(structure, [inputs.get(leaf, leaf) for leaf in leaves])
    batch.set_call(args, {name: item for name, item in kwargs.items() if name != HYPERPARAMETERS})
    for value in filter(graph.updates.__contains__, inputs):
        batch.set_update(inputs[value], inputs[value])  # no other tensor may overlap with it
    return batch

"""`CompileArtifact`: a step that has been compiled and captured, with everything that is known of it."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from npu_ir import Graph, TensorType
from npu_ir.backend import Backend
from npu_ir.ops.effects import is_random
from npu_ir.structure import LEAF, unflatten
from npu_runtime.errors import CaptureError
from npu_runtime.executor import IRExecutor
from npu_runtime.planned import Plan, PlannedProgram
from npu_runtime.training.buffer_pool import BufferPool
from npu_runtime.training.dumps import dump_stages, graph_dump, lowered_dumps, plan_dump, trace_dump
from npu_runtime.training.lowering import Lowered, lower_to_backend_ops
from npu_runtime.training.recording import record_trace
from npu_runtime.training.runners import Runner, named_weight, store
from npu_runtime.training.snapshots import Snapshot, unchanged
from npu_runtime.training.trace import Trace
from npu_runtime.training.violations import CaptureReport

CUDA_GRAPH, PLANNED, OFF = "cuda-graph", "planned", "off"


@dataclass(frozen=True, slots=True)
class Running:
    """How a step runs; as the attributes of `CompileArtifact` of the same names."""

    capture_state: str
    reason: str
    program: PlannedProgram | None
    runner: Runner


@dataclass(eq=False)
class CompileArtifact:
    """A step over the memory of its model: `replay` takes a step, `run_ir` computes the same on the executor.

    Made by `compile_and_capture`. It is not for two threads at once: calls of `replay` wait for each other.

    Attributes:
        name: What `get_artifact` finds it by.
        graph: After the passes.
        weights: What a step works on, by name: parameters, buffers, optimizer state, in their own memory.
        backends: Who was asked to run nodes, in order of preference.
        capture_state: ``"cuda-graph"``: recorded by the device; ``"planned"``: the planned program over fixed memory;
            ``"off"``: the executor, op by op.
        reason: Why it is not captured, or not recorded by the device; empty otherwise.
        report: Of the capture check; None where it was not asked for.
        program: Over fixed memory; None where the step is not captured.
    """

    name: str
    graph: Graph
    weights: Mapping[str, torch.Tensor]
    backends: Sequence[Backend]
    capture_state: str
    reason: str
    report: CaptureReport | None
    program: PlannedProgram | None
    _runner: Runner
    _run_on: Callable[[Mapping[str, torch.Tensor]], Running]
    _hyperparameters: Callable[[], Mapping[str, Any]] | None = None
    _require_branches: Callable[[], None] | None = None
    _generators: Sequence[torch.Generator] = ()
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _numbers: Sequence[Any] | None = None
    _trace: Trace | None = None

    # Running

    def replay(self, *batch: Any, borrow: bool = False, **named: Any) -> Any:
        """Take a step, and return what it returns.

        Args:
            batch: As the step was traced for.
            borrow: Return the memory that the next step overwrites, in place of copies.
            named: Further arguments. ``hyperparameters`` are those of the optimizers, now, if they are not given.

        Raises:
            ExecutionError: The arguments are not what the step was made for, or an op fails. No state has changed
                then, random generators included.
            CaptureError: This is a replay already; or hyperparameters have changed such that Python would go another way.
        """
        with self._lock:
            if self._require_branches is not None and "hyperparameters" not in named:
                self._require_branches()
            numbers = self._runner.load(batch, self._with_hyperparameters(named))
            results = self._launched_safely(numbers)
            kept = results if borrow else list(map(_apart, results))
        return self._in_structure(kept)

    def prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Copy a batch into the fixed inputs; no step is taken."""
        with self._lock:
            self._numbers = self._runner.load(args, self._with_hyperparameters(kwargs))

    def launch(self, numbers: Sequence[Any] = ()) -> Sequence[Any]:
        """Take a step on what `inputs` hold; return its results, flat: memory that the next step overwrites.

        Args:
            numbers: A number for each input that is one, in the order of ``graph.inputs``.
        """
        with self._lock:
            self._numbers = numbers
            return self._runner.run(*numbers)

    def run_ir(self, *batch: Any, commit: bool = False, **named: Any) -> Any:
        """Compute a step by `IRExecutor` on the same graph and the same state, and return what it returns.

        Args:
            batch: As for `replay`.
            commit: Change the state, as `replay` does; if not, all is as before, random generators included.
            named: As for `replay`.
        """
        with self._lock:
            if commit:
                results, mutations = self._executed(batch, named)
                store(self.graph, mutations, lambda target: named_weight(target, self.weights).detach())
            else:
                with unchanged(self.weights.values(), self._generators):
                    results, _ = self._executed(batch, named)
        return self._in_structure(results)

    def mutations(self, *batch: Any, **named: Any) -> dict[str, torch.Tensor]:
        """Return what `run_ir` computes for the state, by name; nothing changes."""
        with self._lock, unchanged(self.weights.values(), self._generators):
            return self._executed(batch, named)[1]

    def _executed(self, batch: Sequence[Any], named: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        executor = IRExecutor(self.graph, self.weights, backend=list(self.backends), passes=None)
        return executor.run_flat(batch, self._with_hyperparameters(named))

    def rebind(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Work on other tensors of the same types; nothing is traced, lowered or planned again."""
        with self._lock:
            other = self._run_on(weights)
            self.weights, self.program, self._runner = weights, other.program, other.runner
            self.capture_state, self.reason = other.capture_state, other.reason
            self._trace = None
            self.__dict__.pop("pool", None)

    # What is known of it

    @property
    def inputs(self) -> tuple[torch.Tensor | None, ...]:
        """The fixed tensor of each input of the graph; None for a number."""
        return self._runner.inputs

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """What a step changes, by name."""
        return self._runner.state

    @property
    def plan(self) -> Plan | None:
        """Where each value lies; None where the step is not captured."""
        return None if self.program is None else self.program.plan

    @functools.cached_property
    def lowered(self) -> Lowered:
        """The ops that run the step, in order."""
        return lower_to_backend_ops(self._lowered_graph, list(self.backends))

    @property
    def _lowered_graph(self) -> Graph:
        return self.graph if self.program is None else self.program.plan.graph

    @functools.cached_property
    def pool(self) -> BufferPool:
        """All fixed memory, by the name of the value."""
        device = next((item.device for item in self._runner.tensors.values()), torch.device("cpu"))
        return BufferPool(self._runner.tensors, device)

    def pointers(self) -> dict[str, int]:
        """Return the address of everything that has a fixed place: it never changes, but by `rebind`."""
        return {name: item.data_ptr() for name, item in self._runner.tensors.items()}

    @property
    def trace(self) -> Trace:
        """What a step calls: recorded once, on what the inputs hold, on a snapshot of the state.

        Raises:
            CaptureError: The step is not captured.
        """
        if self._trace is None:
            if self.program is None:
                raise CaptureError(
                    f"{self.name!r} has no trace: it is not captured",
                    where=self.reason,
                    fix='capture="require" says what stands against it',
                )
            with self._lock:
                numbers = self.example_numbers if self.program.numbers else ()
                self._trace = record_trace(self.program, self.lowered, numbers, self._generators)
        return self._trace

    def assert_trace_has(self, kind: str, count: int | None = None) -> None:
        """Refuse a step that does not run an op of this kind, or not so often; see `Trace.require`."""
        self.trace.require(kind, count)

    def assert_trace_matches_lowering(self) -> None:
        """Refuse a step that does not run what it was lowered to; see `Trace.require_lowering`."""
        self.trace.require_lowering(self.lowered)

    def dump(self, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Write ``20_ir``, ``30_lowered``, ``31_op_attrs``, ``40_plan`` and ``50_runtime_trace``, as text and as JSON.

        The last two are there where the step is captured.
        """
        dumps = [graph_dump(self._lowered_graph), *lowered_dumps(self.lowered)]
        if self.program is not None:
            dumps += [plan_dump(self.program.plan), trace_dump(self.trace)]
        return dump_stages(folder, tuple(dumps))

    def __str__(self) -> str:
        counts = f"{len(self.graph)} nodes, {len(self.graph.updates)} updates"
        lines = [f"{self.name}: {counts}; {self.capture_state}"]
        if self.reason:
            lines.append(f"  because: {self.reason}")
        if self.plan is not None:
            totals = self.plan.totals().items()
            lines.append("  memory: " + ", ".join(f"{name} {size:,}" for name, size in totals))
        return "\n".join(lines)

    # Inside

    def _launched_safely(self, numbers: Sequence[Any]) -> Sequence[Any]:
        if not self._draws:
            return self.launch(numbers)
        before = Snapshot([], self._generators, [self.pool.device])
        try:
            return self.launch(numbers)
        except BaseException:
            before.restore()
            raise

    @functools.cached_property
    def _draws(self) -> bool:
        return any(map(is_random, self.graph.nodes))

    def _with_hyperparameters(self, named: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._hyperparameters is None or "hyperparameters" in named:
            return named
        return {**named, "hyperparameters": self._hyperparameters()}

    @property
    def example_numbers(self) -> Sequence[Any]:
        """The numbers of the last step; those of the optimizers, or zeros, where there was none."""
        if self._numbers is not None:
            return self._numbers
        known = {} if self._hyperparameters is None else self._hyperparameters()
        numbers = [value for value in self.graph.inputs if not isinstance(value.type, TensorType)]
        return [known.get(value.name, 0.0) for value in numbers]

    def _in_structure(self, leaves: Sequence[Any]) -> Any:
        structure = self.graph.results[0]
        return leaves[0] if structure.kind == LEAF else unflatten(structure, list(leaves))


def _apart(item: Any) -> Any:
    return item.clone() if isinstance(item, torch.Tensor) else item

"""`CompileArtifact`: a compiled and captured training step, ready for replay."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from npu_ir import Graph, InputKind, TensorType
from npu_ir.core.structure import make_unflatten
from npu_ir.ops.effects import is_random
from npu_ir.plugins.backend import Backend
from npu_runtime.errors import CaptureError
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.lowering.lowered_graph import LoweredGraph
from npu_runtime.planned import Plan, PlannedProgram
from npu_runtime.training.capture.buffer_pool import BufferPool
from npu_runtime.training.capture.runners import BoundStep, Runner, find_weight, store_mutations
from npu_runtime.training.capture.snapshots import Snapshot, preserve_state
from npu_runtime.training.checks.violations import CaptureReport
from npu_runtime.training.dumps.call_log import CallLog, record_call_log
from npu_runtime.training.dumps.write_dumps import (
    call_log_dump,
    graph_dump,
    lowered_dumps,
    plan_dump,
    write_dumps,
)
from npu_runtime.training.shared_state import SharedState


@dataclass(eq=False)
class CompileArtifact:
    """A compiled step bound to its model: `replay` takes a step, `run_ir` computes it on the executor.

    `compile_and_capture` returns one. It shares its state with the optimizer: the state is in
    ``optimizer.state_dict()``, eager steps continue from it, and a state loaded there is the one the next
    replay works on. Calls from several threads wait for each other.

    Attributes:
        name: The name that `get_artifact` takes.
        graph: The graph, after the passes.
        weights: Parameters, buffers and optimizer state by name, in their own memory.
        backends: The backends, in order of preference.
        capture_state: ``"cuda-graph"``: recorded by the device; ``"planned"``: the planned program over fixed
            memory; ``"off"``: the executor, op by op.
        reason: Why it is not captured, or not recorded by the device; empty otherwise.
        report: The report of the capture check; None without one.
        program: The planned program over fixed memory; None where the step is not captured.
        generators: Further generators that the step draws from, besides PyTorch's default ones.
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
    _bind: Callable[[Mapping[str, torch.Tensor]], BoundStep]
    _read_hyperparameters: Callable[[], Mapping[str, Any]] | None = None
    _require_branches: Callable[[], None] | None = None
    _make_shared_state: Callable[[Mapping[str, torch.Tensor]], SharedState] | None = None
    generators: Sequence[torch.Generator] = ()
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _numbers: Sequence[Any] | None = None
    _call_log: CallLog | None = None

    @property
    def inputs(self) -> tuple[torch.Tensor | None, ...]:
        """The fixed tensor of each input of the graph; None for a scalar."""
        return self._runner.inputs

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """The tensors that a step mutates, by name."""
        return self._runner.state

    @property
    def plan(self) -> Plan | None:
        """The buffer assignment of each value; None where the step is not captured."""
        return None if self.program is None else self.program.plan

    @property
    def example_numbers(self) -> Sequence[Any]:
        """The scalars of the last step; before the first one those of the optimizers, or zeros."""
        if self._numbers is not None:
            return self._numbers
        current = {} if self._read_hyperparameters is None else self._read_hyperparameters()
        numbers = [value for value in self.graph.inputs if not isinstance(value.type, TensorType)]
        return [current.get(value.name, 0.0) for value in numbers]

    @functools.cached_property
    def pool(self) -> BufferPool:
        """The fixed buffers, by the name of the value."""
        device = next((item.device for item in self._runner.tensors.values()), torch.device("cpu"))
        return BufferPool(self._runner.tensors, device)

    def pointers(self) -> dict[str, int]:
        """Return the address of every fixed buffer by name: only `rebind` changes one."""
        return {name: item.data_ptr() for name, item in self._runner.tensors.items()}

    def moved(self) -> list[str]:
        """Return the names of mutated tensors whose memory was replaced since the step was bound."""
        return [name for name, tensor, address in self._bound_addresses if tensor.data_ptr() != address]

    def has_foreign_state(self) -> bool:
        """Return whether the optimizers hold other state than the step works on."""
        return self._shared is not None and self._shared.is_replaced()

    def replay(self, *batch: Any, borrow: bool = False, **named: Any) -> Any:
        """Take a step, and return its results.

        Args:
            batch: The batch, of the types that the step was traced for.
            borrow: Return the tensors that the next step overwrites, instead of copies.
            named: Further arguments. ``hyperparameters`` are by default the current ones of the optimizers.

        Raises:
            ExecutionError: The arguments do not match the graph, or an op fails. No state has changed then,
                random generators included.
            CaptureError: This thread is replaying already; or hyperparameters have changed such that Python
                would take another branch; or a tensor of the model has been given other memory.
        """
        with self._lock:
            self._rebind_replaced_state()
            self._require_same_memory()
            if self._require_branches is not None and "hyperparameters" not in named:
                self._require_branches()
            numbers = self._runner.load(batch, self._add_hyperparameters(named))
            results = self._launch_or_restore_rng(numbers)
            owned = results if borrow else list(map(_clone, results))
        return self._unflatten_results(owned)

    def prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Copy a batch into the fixed inputs; no step is taken."""
        with self._lock:
            self._rebind_replaced_state()
            self._numbers = self._runner.load(args, self._add_hyperparameters(kwargs))

    def launch(self, numbers: Sequence[Any] = ()) -> Sequence[Any]:
        """Take a step on the contents of `inputs`; return its flat results, which the next step overwrites.

        Args:
            numbers: A number for each scalar input, in the order of ``graph.inputs``.
        """
        with self._lock:
            results = self.run_unshared(numbers)
            if self._shared is not None:
                self._shared.install()
            return results

    def run_unshared(self, numbers: Sequence[Any] = ()) -> Sequence[Any]:
        """Take a step as `launch` does, without giving its state to the optimizers, so it can be undone."""
        with self._lock:
            self._numbers = numbers
            return self._runner.run(*numbers)

    def run_ir(self, *batch: Any, commit: bool = False, **named: Any) -> Any:
        """Compute a step by `IRExecutor` on the same graph and the same state, and return its results.

        Args:
            batch: As for `replay`.
            commit: Update the state, as `replay` does; otherwise restore it, random generators included.
            named: As for `replay`.
        """
        with self._lock:
            self._rebind_replaced_state()
            if commit:
                results, mutations = self._run_executor(batch, named)
                store_mutations(
                    self.graph, mutations, lambda target: find_weight(target, self.weights).detach()
                )
                if self._shared is not None:
                    self._shared.install()
            else:
                with preserve_state(self.weights.values(), self.generators):
                    results, _ = self._run_executor(batch, named)
        return self._unflatten_results(results)

    def mutations(self, *batch: Any, **named: Any) -> dict[str, torch.Tensor]:
        """Return the new state that `run_ir` computes, by name, without updating anything."""
        with self._lock:
            self._rebind_replaced_state()
            with preserve_state(self.weights.values(), self.generators):
                return self._run_executor(batch, named)[1]

    def _run_executor(
        self, batch: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        executor = IRExecutor(self.graph, self.weights, backend=list(self.backends), passes=None)
        return executor.run_flat(batch, self._add_hyperparameters(named))

    def rebind(self, weights: Mapping[str, torch.Tensor]) -> None:
        """Bind the step to other tensors of the same types; nothing is traced, lowered or planned again."""
        with self._lock:
            other = self._bind(weights)
            self.weights, self.program, self._runner = weights, other.program, other.runner
            self.capture_state, self.reason = other.capture_state, other.reason
            self._call_log = None
            for name in ("pool", "_bound_addresses", "_shared"):
                self.__dict__.pop(name, None)  # cached properties, computed from the old tensors

    @property
    def lowered(self) -> LoweredGraph:
        """The lowered graph that the step runs."""
        return self._runner.lowered

    @property
    def trace(self) -> CallLog:
        """The call log of one step: recorded once, on the contents of the inputs and a snapshot of the state.

        Raises:
            CaptureError: The step is not captured.
        """
        if self._call_log is None:
            if self.program is None:
                raise CaptureError(
                    f"{self.name!r} has no trace: it is not captured",
                    where=self.reason,
                    fix='capture="require" reports what prevents it',
                )
            with self._lock:
                numbers = self.example_numbers if self.program.numbers else ()
                self._call_log = record_call_log(self.program, numbers, self.generators)
        return self._call_log

    def assert_trace_has(self, kind: str, count: int | None = None) -> None:
        """Raise unless the step runs an op of this kind, ``count`` times if given; see `CallLog.require`."""
        self.trace.require(kind, count)

    def assert_trace_matches_lowering(self) -> None:
        """Raise unless the step runs exactly the ops of its lowered graph; see `CallLog.require_lowering`."""
        self.trace.require_lowering(self.lowered)

    def dump(self, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Write the dumps of the step into a folder, as text and as JSON; return the files.

        They are ``20_ir``, ``30_lowered``, ``31_op_attrs``, ``40_plan`` and ``50_runtime_trace``; the last
        two only where the step is captured.
        """
        dumps = [graph_dump(self.lowered.graph), *lowered_dumps(self.lowered)]
        if self.program is not None:
            dumps += [plan_dump(self.program.plan), call_log_dump(self.trace)]
        return write_dumps(folder, tuple(dumps))

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

    @functools.cached_property
    def _shared(self) -> SharedState | None:
        """The state shared with the optimizers; None for a plain graph, which has none."""
        return None if self._make_shared_state is None else self._make_shared_state(self.weights)

    def _rebind_replaced_state(self) -> None:
        """Rebind to the state of the optimizers, if it was replaced since the last step."""
        replaced = {} if self._shared is None else self._shared.replacements()
        if replaced:
            self.rebind({**self.weights, **replaced})

    @functools.cached_property
    def _bound_addresses(self) -> list[tuple[str, torch.Tensor, int]]:
        """Name, tensor in the model, and address in the step, of each mutated weight."""
        state = self._runner.state
        return [
            (target.argument.target, find_weight(target, self.weights), state[target.name].data_ptr())
            for target in self.graph.updates
            if target.argument is not None and target.argument.kind is not InputKind.INPUT
        ]

    def _require_same_memory(self) -> None:
        # A replay writes to the captured addresses, even if the model's tensors have other memory since.
        moved = self.moved()
        if moved:
            raise CaptureError(
                f"{moved[0]!r} was given other memory after the step was captured: "
                "a replay would update the old one",
                where=f"graph {self.graph.name!r}",
                fix="bind the artifact to the current tensors: artifact.rebind({**model.state_dict(), ...})",
            )

    def _launch_or_restore_rng(self, numbers: Sequence[Any]) -> Sequence[Any]:
        """Launch a step; if it fails, restore the random generators it may have advanced."""
        if not self._is_random:
            return self.launch(numbers)
        before = Snapshot([], self.generators, [self.pool.device])
        try:
            return self.launch(numbers)
        except BaseException:
            before.restore()
            raise

    @functools.cached_property
    def _is_random(self) -> bool:
        return any(map(is_random, self.graph.nodes))

    def _add_hyperparameters(self, named: Mapping[str, Any]) -> Mapping[str, Any]:
        if self._read_hyperparameters is None or "hyperparameters" in named:
            return named
        return {**named, "hyperparameters": self._read_hyperparameters()}

    @functools.cached_property
    def _unflatten_results(self) -> Callable[[Sequence[Any]], Any]:
        return make_unflatten(self.graph.results[0])


def _clone(item: Any) -> Any:
    return item.clone() if isinstance(item, torch.Tensor) else item

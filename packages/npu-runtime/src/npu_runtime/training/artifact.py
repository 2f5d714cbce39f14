"""`CompileArtifact`: a compiled and captured training step, ready for replay."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from npu_passes.library.training.recompute import MemoryTable
from npu_runtime._torch.opaque_calls import opaque
from npu_runtime.diagnostics.explain import Explanation, explain_lowered
from npu_runtime.errors import CaptureError
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.lowering.lowered_graph import LoweredGraph
from npu_runtime.planned import Plan
from npu_runtime.training.capture.runners import find_weight, store_mutations
from npu_runtime.training.capture.select_runner import CapturePolicy
from npu_runtime.training.capture.snapshots import preserve_state
from npu_runtime.training.compiled_step import CompiledStep
from npu_runtime.training.dumps.call_log import CallLog, record_call_log
from npu_runtime.training.dumps.write_dumps import (
    call_log_dump,
    graph_dump,
    lowered_dumps,
    plan_dump,
    write_dumps,
)
from npu_runtime.training.tracing.traced_step import HYPERPARAMETERS, TracedStep


class CompileArtifact(CompiledStep):
    """A compiled step bound to its model: `replay` takes a step, `run_ir` computes it on the executor.

    `compile_and_capture` returns one. It shares its state with the optimizer: the state is in
    ``optimizer.state_dict()``, eager steps continue from it, and a state loaded there is the one the next
    replay works on. Calls from several threads wait for each other. Its attributes are those of
    `CompiledStep`.

    Attributes:
        name: The name that `get_artifact` takes.
        memory_table: What is kept and what is recomputed under a memory budget; None without one.
        cache_note: Where the cache of steps has it, or why it does not; empty if it was not asked.
    """

    def __init__(
        self,
        name: str,
        policy: CapturePolicy,
        weights: Mapping[str, torch.Tensor],
        traced: TracedStep | None,
        memory_table: MemoryTable | None = None,
    ) -> None:
        super().__init__(policy, weights, traced)
        self.name = name
        self.memory_table = memory_table
        self.cache_note = ""

    def __reduce__(self) -> Any:
        raise CaptureError(
            "a CompileArtifact cannot be copied or pickled: it is bound to the memory of its model",
            where=self.name,
            fix="copy model and optimizer, and compile these; cache=True keeps the compiled step on disk",
        )

    def _bind(self, weights: Mapping[str, torch.Tensor]) -> None:
        super()._bind(weights)
        self._call_log: CallLog | None = None

    @property
    def inputs(self) -> tuple[torch.Tensor | None, ...]:
        """The fixed tensor of each input of the graph; None for a scalar.

        A call may read its batch in the memory of the caller, and leave the content of these as it was.
        """
        return self.runner.inputs

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """The tensors that a step mutates, by name."""
        return self.runner.state

    @property
    def plan(self) -> Plan | None:
        """The buffer assignment of each value; None where the step is not captured."""
        return None if self.program is None else self.program.plan

    def explain(self) -> Explanation:
        """Explain which backend runs each node, with the shares of each, and why the others do not."""
        return explain_lowered(self.lowered)

    @opaque
    def replay(self, *batch: Any, borrow: bool = False, **named: Any) -> Any:
        """Take a step, and return its results.

        Args:
            batch: The batch, of the types that the step was traced for.
            borrow: Return the tensors that the next step overwrites, instead of new ones.
            named: Further arguments. ``hyperparameters`` are by default the current ones of the optimizers.

        Raises:
            ExecutionError: The arguments do not match the graph, or an op fails. No state has changed then,
                random generators included.
            CaptureError: This thread is replaying already; or hyperparameters have changed such that Python
                would take another branch; or a tensor of the model has been given other memory.
        """
        with self.lock:
            self.rebind_replaced_state()
            self._require_same_memory()
            if HYPERPARAMETERS not in named:
                self._require_same_branches()
            return self.step(*self.bind_call(batch, named), borrow=borrow)

    @opaque
    def prepare(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        """Copy a batch into the fixed inputs; no step is taken."""
        with self.lock:
            self.rebind_replaced_state()
            given, self.numbers = self.bind_call(args, kwargs)
            self.runner.load(given)

    @opaque
    def run_ir(self, *batch: Any, commit: bool = False, **named: Any) -> Any:
        """Compute a step by `IRExecutor` on the same graph and the same state, and return its results.

        Args:
            batch: As for `replay`.
            commit: Update the state, as `replay` does; otherwise restore it, random generators included.
            named: As for `replay`.
        """
        with self.lock:
            self.rebind_replaced_state()
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
        return self.unflatten(results)

    @opaque
    def mutations(self, *batch: Any, **named: Any) -> dict[str, torch.Tensor]:
        """Return the new state that `run_ir` computes, by name, without updating anything."""
        with self.lock:
            self.rebind_replaced_state()
            with preserve_state(self.weights.values(), self.generators):
                return self._run_executor(batch, named)[1]

    def _run_executor(
        self, batch: Sequence[Any], named: Mapping[str, Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        executor = IRExecutor(self.graph, self.weights, backend=list(self.backends), passes=None)
        return executor.run_flat(batch, self.add_hyperparameters(named))

    @property
    def lowered(self) -> LoweredGraph:
        """The lowered graph that the step runs."""
        return self.runner.lowered

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
            with self.lock:
                self._call_log = record_call_log(self.program, self.program_numbers, self.generators)
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

    def __repr__(self) -> str:
        counts = f"{len(self.graph)} nodes, {len(self.graph.updates)} updates"
        backends = ", ".join(backend.name for backend in self.backends)
        return (
            f"<CompileArtifact {self.name!r}: {counts}, {self.capture_state} on {self.device} by {backends}>"
        )

    def __str__(self) -> str:
        counts = f"{len(self.graph)} nodes, {len(self.graph.updates)} updates"
        lines = [f"{self.name}: {counts}; {self.capture_state}"]
        if self.reason:
            lines.append(f"  because: {self.reason}")
        if self.cache_note:
            lines.append(f"  cache: {self.cache_note}")
        if self.plan is not None:
            totals = self.plan.totals().items()
            lines.append("  memory: " + ", ".join(f"{name} {size:,}" for name, size in totals))
        if self.memory_table is not None:
            lines += [f"  {line}" for line in self.memory_table.summary()]
        lines += [f"  {line}" for line in self.explain().summary()]
        return "\n".join(lines)

    # Inside

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

    def _require_same_branches(self) -> None:
        condition = self.changed_condition()
        if condition is not None:
            raise CaptureError(
                f"the step was traced where {condition}, which is not so now",
                where="the hyperparameters of the optimizers",
                fix="compile the step again; TrainStep does so by itself",
            )

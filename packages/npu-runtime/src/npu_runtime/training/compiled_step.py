"""A compiled step: its runner, its lowered graph, its memory plan and its call log."""

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
from npu_ir.plugins.backend import Backend
from npu_runtime.errors import CaptureError
from npu_runtime.lowering.lowered_graph import Lowered, lower_to_backend_ops
from npu_runtime.planned import Plan, PlannedProgram
from npu_runtime.training.capture.buffer_pool import BufferPool
from npu_runtime.training.capture.runners import Runner, find_weight
from npu_runtime.training.checks.violations import CaptureReport
from npu_runtime.training.dumps.call_log import CallLog
from npu_runtime.training.dumps.record_calls import record_call_log
from npu_runtime.training.dumps.write_dumps import (
    call_log_dump,
    graph_dump,
    lowered_dumps,
    plan_dump,
    write_dumps,
)
from npu_runtime.training.shared_state import SharedState

CUDA_GRAPH, PLANNED, OFF = "cuda-graph", "planned", "off"


@dataclass(frozen=True, slots=True)
class BoundStep:
    """A step bound to weights; the fields are the attributes of `CompileArtifact` of the same names."""

    capture_state: str
    reason: str
    program: PlannedProgram | None
    runner: Runner


@dataclass(eq=False)
class CompiledStep:
    """A compiled step and its diagnostics; `CompileArtifact` also runs it, and documents the fields."""

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

    @functools.cached_property
    def _shared(self) -> SharedState | None:
        """The state shared with the optimizers; None for a plain graph, which has none."""
        return None if self._make_shared_state is None else self._make_shared_state(self.weights)

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

    @functools.cached_property
    def lowered(self) -> Lowered:
        """The ops that run the step, in order."""
        return lower_to_backend_ops(self._lowered_graph, list(self.backends))

    @property
    def _lowered_graph(self) -> Graph:
        return self.graph if self.program is None else self.program.plan.graph

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

    @functools.cached_property
    def _bound_addresses(self) -> list[tuple[str, torch.Tensor, int]]:
        """Name, tensor in the model, and address in the step, of each mutated weight."""
        state = self._runner.state
        return [
            (target.argument.target, find_weight(target, self.weights), state[target.name].data_ptr())
            for target in self.graph.updates
            if target.argument is not None and target.argument.kind is not InputKind.INPUT
        ]

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
                self._call_log = record_call_log(self.program, self.lowered, numbers, self.generators)
        return self._call_log

    def assert_trace_has(self, kind: str, count: int | None = None) -> None:
        """Raise unless the step runs an op of this kind, ``count`` times if given; see `Trace.require`."""
        self.trace.require(kind, count)

    def assert_trace_matches_lowering(self) -> None:
        """Raise unless the step runs exactly the ops of its lowered graph; see `Trace.require_lowering`."""
        self.trace.require_lowering(self.lowered)

    def dump(self, folder: str | os.PathLike[str]) -> tuple[Path, ...]:
        """Write the dumps of the step into a folder, as text and as JSON; return the files.

        They are ``20_ir``, ``30_lowered``, ``31_op_attrs``, ``40_plan`` and ``50_runtime_trace``; the last
        two only where the step is captured.
        """
        dumps = [graph_dump(self._lowered_graph), *lowered_dumps(self.lowered)]
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

    @property
    def example_numbers(self) -> Sequence[Any]:
        """The scalars of the last step; before the first one those of the optimizers, or zeros."""
        if self._numbers is not None:
            return self._numbers
        current = {} if self._read_hyperparameters is None else self._read_hyperparameters()
        numbers = [value for value in self.graph.inputs if not isinstance(value.type, TensorType)]
        return [current.get(value.name, 0.0) for value in numbers]

"""How a step is to run: recorded by a device, planned, or op by op, and why not better."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from npu_ir import Graph, NpuError, TensorType
from npu_ir.plugins.backend import Backend
from npu_runtime.errors import CaptureError
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.planned import Plan, PlannedProgram, plan
from npu_runtime.training.capture.cuda_graphs import GraphDevice, TorchCuda
from npu_runtime.training.capture.graph_capture import GraphCapture
from npu_runtime.training.capture.runners import OpByOpRunner, PlannedRunner, RecordedRunner, state_of
from npu_runtime.training.checks.violations import CaptureReport
from npu_runtime.training.compiled_step import CUDA_GRAPH, OFF, PLANNED, Running


@dataclass(frozen=True)
class Capturing:
    """What a step is captured from; it is planned once, and bound to weights as often as one likes.

    Attributes:
        graph: With numbers.
        backends: In order of preference.
        device: Where it runs.
        mode: ``"require"``, ``"prefer"`` or ``"off"``.
        report: Of the capture check.
        warmup_runs: Before a device records.
        generators: Those that the step draws from, besides the default ones.
        graph_device: What records, if not CUDA.
    """

    graph: Graph
    backends: Sequence[Backend]
    device: torch.device
    mode: str
    report: CaptureReport | None
    warmup_runs: int
    generators: tuple[torch.Generator, ...]
    graph_device: GraphDevice | None

    def on(self, weights: Mapping[str, torch.Tensor]) -> Running:
        """Return what runs the step on these weights.

        Raises:
            CaptureError: It cannot be captured, and has to be.
        """
        if self.mode == "off":
            return self._op_by_op(weights, 'capture="off"')
        if self.report is not None and not self.report.ok:
            if self.mode == "require":
                self.report.require()
            first = self.report.errors[0]
            return self._op_by_op(weights, f"{first.kind}: {first.message} ({first.where})")
        try:
            program = PlannedProgram(self._plan, weights)
        except NpuError as error:
            self._refuse(error)
            return self._op_by_op(weights, error.message)
        _zero(program)
        device = self._recording_device()
        if device is None:
            return Running(PLANNED, "", program, PlannedRunner(program))
        try:
            return self._recorded(weights, device)
        except NpuError as error:
            self._refuse(error)
            return Running(PLANNED, error.message, program, PlannedRunner(program))

    @functools.cached_property
    def _plan(self) -> Plan:
        return plan(self.graph, device=self.device, backend=list(self.backends))

    @functools.cached_property
    def _recorded_plan(self) -> Plan:
        graph = _with_tensors(self.graph)
        return plan(graph, device=self.device, backend=list(self.backends))

    def _recording_device(self) -> GraphDevice | None:
        if self.graph_device is not None:
            return self.graph_device
        return TorchCuda(self.device) if self.device.type == "cuda" else None

    def _recorded(self, weights: Mapping[str, torch.Tensor], device: GraphDevice) -> Running:
        program = PlannedProgram(self._recorded_plan, weights)
        _zero(program)
        capture = GraphCapture(
            _Recordable(program), device, warmup_runs=self.warmup_runs, generators=self.generators
        )
        return Running(CUDA_GRAPH, "", program, RecordedRunner(self.graph, program, capture))

    def _op_by_op(self, weights: Mapping[str, torch.Tensor], reason: str) -> Running:
        executor = IRExecutor(
            self.graph, weights, backend=list(self.backends), device=self.device, passes=None
        )
        return Running(OFF, reason, None, OpByOpRunner(self.graph, weights, executor))

    def _refuse(self, error: NpuError) -> None:
        if self.mode == "require":
            raise CaptureError(
                f"{self.graph.name!r} cannot be captured: {error.message}",
                where=error.where,
                fix=error.fix or 'capture="prefer" runs it otherwise',
            ) from error


class _Recordable:
    """A program whose numbers are tensors, and its state."""

    def __init__(self, program: PlannedProgram) -> None:
        self.state = state_of(program)
        self.run = program.run


def _with_tensors(graph: Graph) -> Graph:
    """Return a graph that takes 0-d tensors in place of numbers, so that one recording serves all of them.

    Raises:
        CaptureError: An op needs a number.
    """
    if all(isinstance(value.type, TensorType) for value in graph.inputs):
        return graph
    from npu_passes import PassManager
    from npu_passes.library.training.scalars_to_tensors import tensor_inputs

    found = tensor_inputs(PassManager(["scalars-to-tensors"]).run(graph).graph)
    for value in found.inputs:
        if not isinstance(value.type, TensorType):
            reader = next(iter(value.users), None)
            raise CaptureError(
                f"%{value.name} has to stay a number of Python, which a recording would freeze",
                where=f"graph {graph.name!r}"
                if reader is None
                else f"node {reader.name!r} ({reader.op_type})",
                fix="make the argument a tensor in the step function, or use an optimizer with capturable=True",
            )
    return found


def _zero(program: PlannedProgram) -> None:
    """Let the inputs begin with zeros, which are indices and labels of anything."""
    with torch.no_grad():
        for item in program.inputs:
            if item is not None:
                item.zero_()

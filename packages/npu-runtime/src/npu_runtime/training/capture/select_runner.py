"""Selection of the runner of a step: recorded by a device, planned, or op by op."""

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
from npu_runtime.training.capture.cuda_graphs import GraphCapture, GraphDevice, TorchCuda
from npu_runtime.training.capture.options import CaptureOptions
from npu_runtime.training.capture.runners import (
    CUDA_GRAPH,
    OFF,
    PLANNED,
    BoundStep,
    ExecutorRunner,
    PlannedRunner,
    RecordedRunner,
)
from npu_runtime.training.checks.violations import CaptureReport


@dataclass(frozen=True)
class CapturePolicy:
    """The settings of a capture; the graph is planned once, and can be bound to weights many times."""

    graph: Graph
    backends: Sequence[Backend]
    device: torch.device
    report: CaptureReport | None
    options: CaptureOptions

    def bind(self, weights: Mapping[str, torch.Tensor]) -> BoundStep:
        """Return the step bound to these weights, with the best runner that works.

        Raises:
            CaptureError: It cannot be captured, and the mode is ``"require"``.
        """
        if self.options.capture == "off":
            return self._bind_executor(weights, 'capture="off"')
        if self.report is not None and not self.report.ok:
            if self.options.capture == "require":
                self.report.require()
            first = self.report.errors[0]
            return self._bind_executor(weights, f"{first.kind}: {first.message} ({first.where})")
        try:
            program = PlannedProgram(self._plan, weights)
        except NpuError as error:
            self._raise_if_required(error)
            return self._bind_executor(weights, error.message)
        _zero_inputs(program)
        device = self._recording_device()
        if device is None:
            return BoundStep(PLANNED, "", program, PlannedRunner(program))
        try:
            return self._record(weights, device)
        except NpuError as error:
            self._raise_if_required(error)
            return BoundStep(PLANNED, error.message, program, PlannedRunner(program))

    @functools.cached_property
    def _plan(self) -> Plan:
        return plan(self.graph, device=self.device, backend=list(self.backends))

    @functools.cached_property
    def _recordable_plan(self) -> Plan:
        graph = _replace_scalar_inputs(self.graph)
        return plan(graph, device=self.device, backend=list(self.backends))

    def _recording_device(self) -> GraphDevice | None:
        if self.options.graph_device is not None:
            return self.options.graph_device
        return TorchCuda(self.device) if self.device.type == "cuda" else None

    def _record(self, weights: Mapping[str, torch.Tensor], device: GraphDevice) -> BoundStep:
        program = PlannedProgram(self._recordable_plan, weights)
        _zero_inputs(program)
        capture = GraphCapture(
            program,
            device,
            warmup_runs=self.options.warmup_runs,
            generators=self.options.generators,
        )
        return BoundStep(CUDA_GRAPH, "", program, RecordedRunner(self.graph, program, capture))

    def _bind_executor(self, weights: Mapping[str, torch.Tensor], reason: str) -> BoundStep:
        executor = IRExecutor(
            self.graph, weights, backend=list(self.backends), device=self.device, passes=None
        )
        return BoundStep(OFF, reason, None, ExecutorRunner(self.graph, weights, executor))

    def _raise_if_required(self, error: NpuError) -> None:
        if self.options.capture == "require":
            raise CaptureError(
                f"{self.graph.name!r} cannot be captured: {error.message}",
                where=error.where,
                fix=error.fix or 'capture="prefer" runs it otherwise',
            ) from error


def _replace_scalar_inputs(graph: Graph) -> Graph:
    """Return a graph with 0-d tensors instead of scalar inputs, so that one recording serves all values.

    Raises:
        CaptureError: An op needs a Python number.
    """
    if all(isinstance(value.type, TensorType) for value in graph.inputs):
        return graph
    from npu_passes import PassManager
    from npu_passes.library.training.scalars_to_tensors import tensor_inputs

    result = tensor_inputs(PassManager(["scalars-to-tensors"]).run(graph).graph)
    for value in result.inputs:
        if not isinstance(value.type, TensorType):
            reader = next(iter(value.users), None)
            raise CaptureError(
                f"%{value.name} has to stay a Python number, which a recording would freeze",
                where=f"graph {graph.name!r}"
                if reader is None
                else f"node {reader.name!r} ({reader.op_type})",
                fix="make the argument a tensor in the step function, "
                "or use an optimizer with capturable=True",
            )
    return result


def _zero_inputs(program: PlannedProgram) -> None:
    """Fill the inputs with zeros, which are valid indices and labels of anything, for the warm-up."""
    with torch.no_grad():
        for item in program.fixed:
            item.zero_()

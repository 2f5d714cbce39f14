"""Selection of the runner of a step: recorded by a device, planned, or op by op."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, NpuError, TensorType, WeightError
from npu_ir.core.node import external_names
from npu_ir.plugins.backend import Backend
from npu_passes import PassManager
from npu_passes.library.training.scalars_to_tensors import is_only_converted, tensor_inputs
from npu_runtime.errors import CaptureError
from npu_runtime.executor.bound_weights import require_data
from npu_runtime.executor.executor import IRExecutor
from npu_runtime.planned import Plan, PlanMemo, PlannedProgram, plan
from npu_runtime.training.capture.cuda_graphs import (
    GraphCapture,
    GraphDevice,
    TorchCuda,
    require_free_stream,
)
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
    memo: PlanMemo | None = None

    def planned_bytes(self) -> int | None:
        """Return the memory of a run besides inputs and state; None if it is not planned."""
        if self.options.capture == "off" or (self.report is not None and not self.report.ok):
            return None
        try:
            plan = self._plan if self._recording_device() is None else self._recordable_plan
            return plan.peak_bytes
        except NpuError:
            return None  # `bind` reports it

    def bind(self, weights: Mapping[str, torch.Tensor], numbers: Sequence[Any] | None = None) -> BoundStep:
        """Return the step bound to these weights, with the best runner that works.

        Args:
            weights: Parameters, buffers and optimizer state by name.
            numbers: The scalar inputs of the graph now, in order; None if they are not known.

        Raises:
            CaptureError: It cannot be captured, and the mode is ``"require"``; or somebody else captures the
                current stream.
            WeightError: A weight has no data, or the step updates it and it is expanded.
        """
        require_data(self.graph, weights)
        _require_own_elements(self.graph, weights)
        if self.options.capture == "off":
            return self._bind_executor(weights, 'capture="off"')
        if self.report is not None and not self.report.ok:
            if self.options.capture == "require":
                self.report.require()
            first = self.report.errors[0]
            return self._bind_executor(weights, f"{first.kind}: {first.message} ({first.where})")
        device = self._recording_device()
        if device is not None:
            require_free_stream(device)
        try:
            program = PlannedProgram(self._plan, weights)
        except NpuError as error:
            self._raise_if_required(error)
            return self._bind_executor(weights, error.message)
        _zero_inputs(program)
        if device is None:
            return BoundStep(PLANNED, "", program, PlannedRunner(self.graph, program, numbers))
        try:
            return self._record(weights, device, numbers)
        except NpuError as error:
            self._raise_if_required(error)
            return BoundStep(PLANNED, error.message, program, PlannedRunner(self.graph, program, numbers))

    @functools.cached_property
    def _plan(self) -> Plan:
        return self._plan_of(_with_tensor_inputs(self.graph))

    @functools.cached_property
    def _recordable_plan(self) -> Plan:
        return self._plan_of(_replace_scalar_inputs(self.graph))

    def _plan_of(self, graph: Graph) -> Plan:
        return plan(graph, device=self.device, backend=list(self.backends), memo=self.memo)

    def _recording_device(self) -> GraphDevice | None:
        if self.options.graph_device is not None:
            return self.options.graph_device
        return TorchCuda(self.device) if self.device.type == "cuda" else None

    def _record(
        self, weights: Mapping[str, torch.Tensor], device: GraphDevice, numbers: Sequence[Any] | None
    ) -> BoundStep:
        if numbers is None:
            _require_no_scalar_inputs(self._recordable_plan.graph)
        program = PlannedProgram(self._recordable_plan, weights)
        _zero_inputs(program)
        record = functools.partial(
            GraphCapture,
            program,
            device,
            warmup_runs=self.options.warmup_runs,
            generators=self.options.generators,
        )
        runner = RecordedRunner(self.graph, program, record, numbers or ())
        return BoundStep(CUDA_GRAPH, "", program, runner)

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


def _require_own_elements(graph: Graph, weights: Mapping[str, torch.Tensor]) -> None:
    """Refuse weights that are updated, and that are expanded: PyTorch cannot write to them."""
    for target in graph.updates:
        name = next((name for name in external_names(target) if name in weights), None)
        if name is not None and _is_expanded(weights[name]):
            raise WeightError(
                f"the step updates {name!r}, which is expanded: its elements share memory",
                where=f"graph {graph.name!r}",
                fix="give the model a tensor in memory of its own (clone)",
            )


def _is_expanded(tensor: torch.Tensor) -> bool:
    if tensor.layout is not torch.strided:
        return False
    return any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def _replace_scalar_inputs(graph: Graph) -> Graph:
    """Return a graph with 0-d tensors instead of scalar inputs, so that one recording serves all values.

    Scalars that an op needs as a Python number stay inputs.
    """
    if all(isinstance(value.type, TensorType) for value in graph.inputs):
        return graph
    return _with_tensor_inputs(PassManager(["scalars-to-tensors"]).optimize(graph))


def _with_tensor_inputs(graph: Graph) -> Graph:
    """Return a graph with 0-d tensors instead of scalar inputs that the passes have made tensors of."""
    if not any(value.use_count and is_only_converted(value) for value in graph.inputs):
        return graph
    return tensor_inputs(graph)


def _require_no_scalar_inputs(graph: Graph) -> None:
    """Raise a CaptureError if an input is a number, whose values are unknown before the first step."""
    for value in graph.inputs:
        if not isinstance(value.type, TensorType):
            reader = next(iter(value.users), None)
            raise CaptureError(
                f"%{value.name} has to stay a Python number, which a recording would freeze",
                where=f"graph {graph.name!r}"
                if reader is None
                else f"node {reader.name!r} ({reader.op_type})",
                fix="make the argument a tensor in the step function, or compile a traced step, whose"
                " optimizers have the number",
            )


def _zero_inputs(program: PlannedProgram) -> None:
    """Fill the inputs with zeros, which are valid indices and labels of anything, for the warm-up."""
    with torch.no_grad():
        for item in program.fixed:
            item.zero_()

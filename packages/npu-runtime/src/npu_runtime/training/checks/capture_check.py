"""The capture check: a report of everything in a step that a replay would get wrong."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_ir import Graph, NpuError
from npu_ir.ops.execution import location_of
from npu_runtime.errors import CaptureError
from npu_runtime.planned import Plan
from npu_runtime.training.checks.obstacles import (
    baked_parameters,
    component_violations,
    device_violations,
    graph_violations,
)
from npu_runtime.training.checks.violations import CaptureReport, Violation
from npu_runtime.training.options import StepKeywords, StepOptions, accept, take
from npu_runtime.training.step_function import LossFunction
from npu_runtime.training.trace import make_step, trace_with_options
from npu_runtime.training.tracing.components import TrainingComponents
from npu_runtime.training.tracing.traced_step import TracedStep

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` since Python 3.11


@accept(StepOptions)
def check_capture(
    step: Graph | TracedStep | Module | Callable[..., Any],
    optimizer: Optimizer | None = None,
    loss_fn: LossFunction | None = None,
    example_batch: Any = None,
    *,
    weights: Mapping[str, torch.Tensor] | None = None,
    plan: Plan | None = None,
    device: torch.device | str | None = None,
    **options: Unpack[StepKeywords],
) -> CaptureReport:
    """Report all obstacles to capturing a step, each with the user's line and a fix.

    Args:
        step: A graph, a traced step, or a model or step function as `compile_ir` takes it, which is traced.
        optimizer: As for `compile_ir`.
        loss_fn: As for `compile_ir`.
        example_batch: As for `compile_ir`.
        weights: Weights by name, to check their devices, and for constants that are copies of them.
        plan: A plan whose allocations in each run are noted.
        device: The device of the step; by default that of the weights.
        options: The fields of `StepOptions`, of a step that is traced here.

    Raises:
        CaptureError: ``step`` is none of these.
    """
    (made,) = take(options, check_capture, StepOptions)
    if isinstance(step, (Graph, TracedStep)):
        return _check_step(step, weights or {}, plan, device)
    if not callable(step):
        raise CaptureError(
            f"a {type(step).__name__} is not a step",
            where="check_capture",
            fix="give a graph, what trace_step returns, a model with its optimizer and loss, "
            "or a step function",
        )
    try:
        traced = trace_with_options(step, optimizer, loss_fn, example_batch, made)
    except NpuError as error:
        return _report_untraceable(step, optimizer, loss_fn, error, made)
    return _check_step(traced, weights or {}, plan, device)


def _check_step(
    step: Graph | TracedStep,
    weights: Mapping[str, torch.Tensor],
    plan: Plan | None,
    device: torch.device | str | None,
) -> CaptureReport:
    if isinstance(step, Graph):
        target = torch.device(device) if device is not None else _device_of(weights)
        return check_graph(step, weights, target, plan=plan)
    bound = {**step.weights(), **weights}
    target = torch.device(device) if device is not None else _device_of(bound)
    return check_graph(step.graph, bound, target, step.components, plan)


def check_graph(
    graph: Graph,
    weights: Mapping[str, torch.Tensor],
    device: torch.device,
    components: TrainingComponents | None = None,
    plan: Plan | None = None,
) -> CaptureReport:
    """Report all obstacles to capturing a graph bound to these weights and training components."""
    violations = list(graph_violations(graph, device))
    violations += device_violations(graph, weights, device)
    violations += baked_parameters(graph, weights)
    if components is not None:
        violations += component_violations(components)
    if plan is not None:
        violations += _planned_allocations(plan)
    return CaptureReport(graph.name, tuple(violations))


def _device_of(weights: Mapping[str, torch.Tensor]) -> torch.device:
    return next((item.device for item in weights.values()), torch.device("cpu"))


def _planned_allocations(plan: Plan) -> Iterator[Violation]:
    """Yield the planned allocations of each run: they cost time on the CPU; CUDA graphs own their memory."""
    graph = plan.graph
    for item in plan.buffers:
        if item.kind == "made":
            producer = graph.value(item.value).producer
            yield Violation(
                "allocation",
                f"%{item.value}, {item.bytes:,} bytes, is allocated in each run: {item.why}",
                f"graph {graph.name!r}" if producer is None else location_of(producer),
                "nothing to do: it is part of the plan; an op with an out-variant would avoid it",
                is_note=True,
            )


def _report_untraceable(
    step: Any, optimizer: Any, loss_fn: Any, error: NpuError, options: StepOptions
) -> CaptureReport:
    """Report why a step could not be traced, together with its hooks: the user has to fix both."""
    name = getattr(step, "__name__", type(step).__name__)
    try:
        hooks = tuple(component_violations(make_step(step, optimizer, loss_fn, options)[1]))
    except NpuError:
        hooks = ()  # no training components were found: the tracing error is about that
    reason = Violation(
        "untraceable", error.message, error.where or f"step {name!r}", error.fix or "see the message"
    )
    mentions_hooks = "hooks" in error.message and hooks
    return CaptureReport(f"{name}_step", hooks if mentions_hooks else (*hooks, reason))

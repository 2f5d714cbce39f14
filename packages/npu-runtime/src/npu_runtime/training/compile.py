"""Compilation and capture of a training step into a `CompileArtifact`, which replays it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_ir import Graph
from npu_ir.core.isolation import pause_gc
from npu_runtime.errors import CaptureError
from npu_runtime.executor.options import optimize_graph, resolve_backends, resolve_step_passes
from npu_runtime.planned import PlanMemo
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.capture.capture_state import require_outside_capture
from npu_runtime.training.capture.memory_budget import fit_memory
from npu_runtime.training.capture.options import CaptureKeywords, CaptureOptions
from npu_runtime.training.capture.runners import select_weights
from npu_runtime.training.capture.select_runner import CapturePolicy
from npu_runtime.training.capture.snapshots import warmup_capture_safe
from npu_runtime.training.checks.capture_check import check_graph
from npu_runtime.training.options import StepKeywords, StepOptions, accept, take
from npu_runtime.training.step_function import LossFunction
from npu_runtime.training.trace import batch_arguments, make_step, require_batch, trace_with_options
from npu_runtime.training.tracing.traced_step import TracedStep

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` since Python 3.11

__all__ = ["CompileArtifact", "compile_and_capture", "get_artifact"]

# Weak references: the registry must not keep an artifact, and the memory it owns, alive.
_ARTIFACTS: weakref.WeakValueDictionary[str, CompileArtifact] = weakref.WeakValueDictionary()


class CompileKeywords(CaptureKeywords, StepKeywords, total=False):
    """The options of `compile_and_capture`."""


@accept(CaptureOptions, StepOptions)
def compile_and_capture(
    step: Graph | TracedStep | Module | Callable[..., Any],
    optimizer: Optimizer | None = None,
    loss_fn: LossFunction | None = None,
    example_batch: Any = None,
    **options: Unpack[CompileKeywords],
) -> CompileArtifact:
    """Compile and capture a step: trace, passes, check, lowering, plan, warm-up, capture.

    Parameters, buffers, optimizer state and random generators hold afterwards what they held before. On a
    CUDA device the step becomes a CUDA graph; elsewhere its planned program is replayed.

    Args:
        step: A graph, a traced step, or a model or step function as `compile_ir` takes it.
        optimizer: As for `compile_ir`.
        loss_fn: As for `compile_ir`.
        example_batch: As for `compile_ir`; for a graph the arguments of a call, or a dict of them by name.
            The warm-up runs on it. Without it, a graph or traced step is warmed up only where a device
            records it, on zeros.
        options: The fields of `CaptureOptions` and, for a step that is traced here, those of `StepOptions`.
            An artifact with a ``name`` is registered for `get_artifact`.

    Raises:
        TracingError: The step cannot be traced into a graph.
        CaptureError: The step must be captured and cannot be; or it cannot keep to its memory budget; or an
            enforced op is missing; or this thread is capturing or replaying.
        WeightError: Weights are missing, unexpected, or of another type.
    """
    require_outside_capture("compile_and_capture")
    capture, made = take(options, "compile_and_capture", CaptureOptions, StepOptions)
    if isinstance(step, (Graph, TracedStep)):
        artifact = compile_step(step, capture, made.name)
    else:
        artifact = _compile_function(step, optimizer, loss_fn, example_batch, capture, made)
    if example_batch is not None:
        _warm_up(artifact, example_batch, capture)
    if made.name is not None:
        _ARTIFACTS[made.name] = artifact
    return artifact


def compile_step(
    step: Graph | TracedStep,
    options: CaptureOptions,
    name: str | None = None,
    optimized: OptimizedStep | None = None,
) -> CompileArtifact:
    """Compile and capture a graph or a traced step; see `compile_and_capture`.

    Args:
        step: The graph, or the step.
        options: How to compile it.
        name: The name of the artifact; by default that of the graph.
        optimized: Its graph after the passes, if it is known.
    """
    with pause_gc():
        return _compile(step, options, name, optimized or optimize_step(step, options))


@dataclass(frozen=True, slots=True)
class OptimizedStep:
    """The graph of a step after the passes, with what planning it remembers.

    Attributes:
        graph: The graph.
        memo: Results of planning it; None to keep none.
    """

    graph: Graph
    memo: PlanMemo | None = None


def optimize_step(step: Graph | TracedStep, options: CaptureOptions) -> OptimizedStep:
    """Run the passes over a step."""
    source = step.graph if isinstance(step, TracedStep) else step
    backends, device = resolve_backends(options.backend, options.device, _weights_of(step, options))
    return OptimizedStep(optimize_graph(source, resolve_step_passes(options.passes, device, backends)))


def _weights_of(step: Graph | TracedStep, options: CaptureOptions) -> dict[str, torch.Tensor]:
    own = step.weights() if isinstance(step, TracedStep) else {}
    return {**own, **(options.weights or {})}


def _compile(
    step: Graph | TracedStep, options: CaptureOptions, name: str | None, optimized: OptimizedStep
) -> CompileArtifact:
    traced = step if isinstance(step, TracedStep) else None
    weights, graph = _weights_of(step, options), optimized.graph
    backends, device = resolve_backends(options.backend, options.device, weights)
    components = traced.components if traced else None
    own = select_weights(graph, weights)
    report = check_graph(graph, own, device, components) if options.validate else None
    policy, table = CapturePolicy(graph, backends, device, report, options, optimized.memo), None
    if options.memory_budget_bytes is not None:
        policy, table = fit_memory(policy, options.memory_budget_bytes)
    artifact = CompileArtifact(name or graph.name, policy, weights, traced, table)
    for kind in options.enforce_ops:
        _require_op(artifact, kind)
    return artifact


def _compile_function(
    step: Module | Callable[..., Any],
    optimizer: Optimizer | None,
    loss_fn: LossFunction | None,
    example_batch: Any,
    capture: CaptureOptions,
    options: StepOptions,
) -> CompileArtifact:
    if not capture.cache:
        traced = trace_with_options(step, optimizer, loss_fn, example_batch, options)
        return compile_step(traced, capture, options.name)
    from npu_runtime.training.cache.cached_compilation import compile_cached

    require_batch(example_batch)
    function, components = make_step(step, optimizer, loss_fn, options)
    return compile_cached(function, components, batch_arguments(example_batch), capture, options.name)


def _warm_up(artifact: CompileArtifact, example_batch: Any, options: CaptureOptions) -> None:
    artifact.prepare(*batch_arguments(example_batch))
    if artifact.program is None:
        return
    warmup_capture_safe(
        artifact.program,
        options.warmup_runs,
        options.warmup_sync,
        numbers=artifact.program_numbers,
        generators=options.generators,
    )
    if options.trace:
        artifact.trace  # noqa: B018 - the property records the call log


def get_artifact(name: str) -> CompileArtifact:
    """Return the artifact last registered under a name; the registry holds artifacts weakly.

    Raises:
        CaptureError: No live artifact has this name.
    """
    artifact = _ARTIFACTS.get(name)
    if artifact is None:
        known = ", ".join(sorted(_ARTIFACTS)) or "none"
        raise CaptureError(
            f"there is no artifact {name!r}",
            where="get_artifact",
            fix=f"make it by compile_and_capture(..., name={name!r}), and keep it: there are {known}",
        )
    return artifact


def _require_op(artifact: CompileArtifact, kind: str) -> None:
    if not artifact.lowered.count(kind):
        kinds = ", ".join(sorted({item.op.kind for item in artifact.lowered.ops}))
        raise CaptureError(
            f"{artifact.name!r} has no op {kind!r}",
            where="enforce_ops",
            fix=f"it was lowered to {kinds}: passes make fused ops, "
            "and backends take those that they support",
        )

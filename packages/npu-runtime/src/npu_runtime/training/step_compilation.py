"""Compilation of one step: a graph or a traced step goes through the passes, and is bound and captured."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from npu_ir import Graph
from npu_ir.core.isolation import pause_gc
from npu_runtime.errors import CaptureError
from npu_runtime.executor.options import optimize_graph, resolve_backends, resolve_step_passes
from npu_runtime.planned import PlanMemo
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.capture.memory_budget import fit_memory
from npu_runtime.training.capture.options import CaptureOptions
from npu_runtime.training.capture.runners import select_weights
from npu_runtime.training.capture.select_runner import CapturePolicy
from npu_runtime.training.checks.capture_check import check_graph
from npu_runtime.training.tracing.traced_step import TracedStep


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
    with pause_gc(), torch.inference_mode(False):  # its memory is written to in any mode
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


def _require_op(artifact: CompileArtifact, kind: str) -> None:
    if not artifact.lowered.count(kind):
        kinds = ", ".join(sorted({item.op.kind for item in artifact.lowered.ops}))
        raise CaptureError(
            f"{artifact.name!r} has no op {kind!r}",
            where="enforce_ops",
            fix=f"it was lowered to {kinds}: passes make fused ops, "
            "and backends take those that they support",
        )

"""Compilation and capture of a training step into a `CompileArtifact`, which replays it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_ir import Graph
from npu_ir.core.node import external_names
from npu_ir.plugins.backend import Backend
from npu_runtime.backends.registry import usable_backends
from npu_runtime.errors import CaptureError
from npu_runtime.executor.options import Passes, optimize_graph, select_device, select_passes
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.capture.capture_state import require_outside_capture
from npu_runtime.training.capture.cuda_graphs import GraphDevice
from npu_runtime.training.capture.select_runner import CapturePolicy, require_capture_mode
from npu_runtime.training.capture.warmup import warmup_capture_safe
from npu_runtime.training.checks.capture_check import check_graph
from npu_runtime.training.shared_state import SharedState
from npu_runtime.training.step_function import LossFunction
from npu_runtime.training.step_options import StepOptions
from npu_runtime.training.trace import batch_arguments, trace_with_options
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.traced_step import TracedStep

__all__ = ["CompileArtifact", "compile_and_capture", "get_artifact"]

# Weak references: the registry must not keep an artifact, and the memory it owns, alive.
_ARTIFACTS: weakref.WeakValueDictionary[str, CompileArtifact] = weakref.WeakValueDictionary()


# Each stage has options of its own.
def compile_and_capture(
    step: Graph | TracedStep | Module | Callable[..., Any],
    optimizer: Optimizer | None = None,
    loss_fn: LossFunction | None = None,
    example_batch: Any = None,
    *,
    weights: Mapping[str, torch.Tensor] | None = None,
    name: str | None = None,
    backend: str | Backend | Sequence[str | Backend] = "aten",
    device: torch.device | str | None = None,
    passes: Passes = "train",
    warmup_runs: int = 2,
    warmup_sync: bool = True,
    capture: str = "prefer",
    validate: bool = True,
    trace: bool = True,
    enforce_ops: Sequence[str] = (),
    generators: Sequence[torch.Generator] = (),
    graph_device: GraphDevice | None = None,
    accumulate: int = 1,
    clip_grad_norm: float | None = None,
    clip_grad_value: float | None = None,
    autocast: torch.dtype | None = None,
    modules: Sequence[Module] | None = None,
    optimizers: Sequence[Optimizer] | None = None,
    scaler: torch.amp.GradScaler | None = None,
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
        weights: Parameters, buffers and state of a graph, by name, updated in their own memory; other steps
            bring theirs. The optimizer takes over its state from the artifact with the first step that is
            taken.
        name: The name to register for `get_artifact`; if not given, that of the graph, and it is not
            registered.
        backend: A name, a `Backend`, or several in order of preference; ATen runs the ops they refuse.
        device: Where the step runs; by default the device of the weights.
        passes: The name of a pipeline, or passes to run over the graph; None for none. ``"train"`` is
            ``"train-cpu"`` where ATen runs the step on a CPU.
        warmup_runs: The number of runs before the capture.
        warmup_sync: Wait for the device after each of these runs.
        capture: ``"require"``: fail if the step cannot be captured. ``"prefer"``: then run it uncaptured, and
            report the reason. ``"off"``: run it op by op.
        validate: Run the capture check.
        trace: Record the call log during compilation; otherwise on first access.
        enforce_ops: Kinds of ops that the lowered graph must contain.
        generators: Further generators that the step draws from, besides PyTorch's default ones.
        graph_device: The device that records; by default CUDA where the step is on a CUDA device.
        accumulate: As for `compile_ir`; these options are those of steps that are traced here.
        clip_grad_norm: As for `compile_ir`.
        clip_grad_value: As for `compile_ir`.
        autocast: As for `compile_ir`.
        modules: As for `compile_ir`.
        optimizers: As for `compile_ir`.
        scaler: As for `compile_ir`: refused.

    Raises:
        TracingError: The step cannot be traced into a graph.
        CaptureError: The step must be captured and cannot be; or an enforced op is missing; or this thread is
            capturing or replaying.
        WeightError: Weights are missing, unexpected, or of another type.
    """
    require_outside_capture("compile_and_capture")
    require_capture_mode(capture, "compile_and_capture")
    if not isinstance(step, (Graph, TracedStep)):
        options = StepOptions(
            accumulate, clip_grad_norm, clip_grad_value, autocast, modules, optimizers, scaler
        )
        step = trace_with_options(step, optimizer, loss_fn, example_batch, name, options)
    traced = step if isinstance(step, TracedStep) else None
    source = step.graph if isinstance(step, TracedStep) else step
    all_weights = {**(traced.weights() if traced else {}), **(weights or {})}
    backends = tuple(usable_backends(backend))
    target = select_device(device, all_weights, backends)
    graph = optimize_graph(source, select_passes(passes, target, backends))
    bound_weights = _select_weights(graph, all_weights)
    components = traced.components if traced else None
    report = check_graph(graph, bound_weights, target, components) if validate else None
    policy = CapturePolicy(
        graph, backends, target, capture, report, warmup_runs, tuple(generators), graph_device
    )
    artifact = _make_artifact(name or graph.name, policy, bound_weights, traced)
    for kind in enforce_ops:
        _require_op(artifact, kind)
    if example_batch is not None:
        args, kwargs = batch_arguments(example_batch)
        artifact.prepare(args, kwargs)
        if artifact.program is not None:
            numbers = artifact.example_numbers if artifact.program.numbers else ()
            warm = _WarmupProgram(artifact.program, artifact.state)
            warmup_capture_safe(warm, warmup_runs, warmup_sync, numbers=numbers, generators=generators)
            if trace:
                artifact.trace  # noqa: B018 - the property records the call log
    if name is not None:
        _ARTIFACTS[name] = artifact
    return artifact


def _make_artifact(
    name: str, policy: CapturePolicy, weights: dict[str, torch.Tensor], step: TracedStep | None
) -> CompileArtifact:
    """Return the artifact of a step bound to these weights, with the best runner that works."""
    bound = policy.bind(weights)
    return CompileArtifact(
        name=name,
        graph=policy.graph,
        weights=weights,
        backends=tuple(policy.backends),
        capture_state=bound.capture_state,
        reason=bound.reason,
        report=policy.report,
        program=bound.program,
        _runner=bound.runner,
        _bind=lambda other: policy.bind(_select_weights(policy.graph, other)),
        _read_hyperparameters=step.hyperparameters if step else None,
        _require_branches=_make_branch_check(step) if step else None,
        _make_shared_state=functools.partial(SharedState, step) if step else None,
        generators=policy.generators,
    )


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


class _WarmupProgram:
    """A planned program and its state, as `warmup_capture_safe` takes them."""

    def __init__(self, program: Any, state: Mapping[str, torch.Tensor]) -> None:
        self.run = program.run
        self.state = state


def _select_weights(graph: Graph, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the weights that the graph has arguments for: passes may have dropped some."""
    names = {name for value in graph.arguments for name in external_names(value)}
    return {name: item for name, item in weights.items() if name in names}


def _make_branch_check(step: TracedStep) -> Callable[[], None]:
    """Return a check that hyperparameters still select the Python branches taken by the trace."""
    switches = hyperparameters.switches(step.components.optimizers)

    def require() -> None:
        now = hyperparameters.switches(step.components.optimizers)
        for name, value in switches.items():
            if now.get(name) is not value:
                raise CaptureError(
                    f"the step was traced where {name} is {value}, which is not so now",
                    where="the hyperparameters of the optimizers",
                    fix="compile the step again; TrainStep does so by itself",
                )
        values = hyperparameters.open_numbers(step.components.optimizers)
        for branch in step.branches:
            if not branch.holds(values):
                raise CaptureError(
                    f"the step was traced where {branch.text}, which is not so now",
                    where="the hyperparameters of the optimizers",
                    fix="compile the step again; TrainStep does so by itself",
                )

    return require


def _require_op(artifact: CompileArtifact, kind: str) -> None:
    if not artifact.lowered.count(kind):
        kinds = ", ".join(sorted({item.op.kind for item in artifact.lowered.ops}))
        raise CaptureError(
            f"{artifact.name!r} has no op {kind!r}",
            where="enforce_ops",
            fix=f"it was lowered to {kinds}: passes make fused ops, "
            "and backends take those that they support",
        )

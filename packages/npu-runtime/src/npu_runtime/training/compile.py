"""`compile_and_capture`: from a step to what replays it."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_ir import Graph
from npu_ir.plugins.backend import Backend
from npu_runtime.backends.registry import backends_of
from npu_runtime.errors import CaptureError
from npu_runtime.executor.options import Passes, device_of, optimized, passes_on
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.capture.capture_state import require_outside_capture
from npu_runtime.training.capture.cuda_graphs import GraphDevice
from npu_runtime.training.capture.select_runner import Capturing
from npu_runtime.training.capture.warmup import warmup_capture_safe
from npu_runtime.training.checks.capture_check import check_graph
from npu_runtime.training.shared_state import SharedState
from npu_runtime.training.step_function import LossFunction
from npu_runtime.training.trace import arguments_of, trace_step
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.traced_step import TracedStep

__all__ = ["CAPTURE_MODES", "CompileArtifact", "compile_and_capture", "get_artifact"]

CAPTURE_MODES = ("require", "prefer", "off")
# Weak: an artifact, and the memory it holds, lives as long as somebody has it.
_ARTIFACTS: weakref.WeakValueDictionary[str, CompileArtifact] = weakref.WeakValueDictionary()


def compile_and_capture(  # noqa: PLR0913 - each stage has its own
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
    **options: Any,
) -> CompileArtifact:
    """Compile a step: trace, passes, check, lowering, plan, warm-up, capture. Nothing has changed afterwards.

    On a CUDA device the step becomes a CUDA graph; elsewhere its planned program is what is replayed.

    Args:
        step: A graph, a traced step, or what `compile_ir` takes.
        optimizer: As for `compile_ir`.
        loss_fn: As for `compile_ir`.
        example_batch: As for `compile_ir`; of a graph the arguments of a call, or a dict of them by name. The warm-up
            runs on it. A graph or traced step is only warmed up without it where a device records: on zeros.
        weights: What a graph works on, by name, changed in its own memory; of other steps it is known. The state of an
            optimizer becomes that of the optimizer itself with the first step that is taken.
        name: What `get_artifact` finds the artifact by; the name of the graph, unregistered, if not given.
        backend: Who runs what it can: a name, a `Backend`, or several in order of preference.
        device: Where it runs; where the weights are if not given.
        passes: What to run over the graph: the name of a pipeline, or passes; None for none. ``"train"`` is
            ``"train-cpu"`` where ATen runs the step on a CPU.
        warmup_runs: How often it is run before it is captured.
        warmup_sync: Wait for the device after each of these runs.
        capture: ``"require"``: fail where it cannot be captured. ``"prefer"``: run it otherwise there, and say why.
            ``"off"``: run it op by op.
        validate: Run the capture check.
        trace: Record what the warm-up calls; if not, that is done when it is asked for.
        enforce_ops: Kinds of ops that the lowering must have.
        generators: Those that the step draws from, besides PyTorch's default ones.
        graph_device: What records; CUDA where the step is on a CUDA device, if not given.
        options: As for `compile_ir`.

    Raises:
        TracingError: The step cannot become a graph.
        CaptureError: It cannot be captured, and has to be; or an op that is enforced is missing; or this is a capture.
        WeightError: Weights are missing, unexpected, or of another type.
    """
    require_outside_capture("compile_and_capture")
    if capture not in CAPTURE_MODES:
        raise CaptureError(
            f"there is no capture mode {capture!r}",
            where="compile_and_capture",
            fix=f"use one of {', '.join(CAPTURE_MODES)}",
        )
    if not isinstance(step, (Graph, TracedStep)):
        step = trace_step(step, optimizer, loss_fn, example_batch, name=name, **options)
    source = step.graph if isinstance(step, TracedStep) else step
    given = {**(step.weights() if isinstance(step, TracedStep) else {}), **(weights or {})}
    backends = tuple(backends_of(backend))
    place = device_of(device, given, backends)
    graph = optimized(source, passes_on(passes, place, backends))
    held = _held(graph, given)
    subjects = step.subjects if isinstance(step, TracedStep) else None
    report = check_graph(graph, held, place, subjects) if validate else None
    capturing = Capturing(
        graph, backends, place, capture, report, warmup_runs, tuple(generators), graph_device
    )
    running = capturing.on(held)
    artifact = CompileArtifact(
        name=name or graph.name,
        graph=graph,
        weights=held,
        backends=backends,
        capture_state=running.capture_state,
        reason=running.reason,
        report=report,
        program=running.program,
        _runner=running.runner,
        _run_on=lambda other: capturing.on(_held(graph, other)),
        _hyperparameters=step.hyperparameters if isinstance(step, TracedStep) else None,
        _require_branches=_branches(step) if isinstance(step, TracedStep) else None,
        _share=functools.partial(SharedState, step) if isinstance(step, TracedStep) else None,
        generators=tuple(generators),
    )
    for kind in enforce_ops:
        _require_op(artifact, kind)
    if example_batch is not None:
        args, kwargs = arguments_of(example_batch)
        artifact.prepare(args, kwargs)
        if artifact.program is not None:
            numbers = artifact.example_numbers if artifact.program.numbers else ()
            warm = _Warm(artifact.program, artifact.state)
            warmup_capture_safe(warm, warmup_runs, warmup_sync, numbers=numbers, generators=generators)
            if trace:
                artifact.trace  # noqa: B018 - it is recorded now
    if name is not None:
        _ARTIFACTS[name] = artifact
    return artifact


def get_artifact(name: str) -> CompileArtifact:
    """Return the artifact that was made last under a name, as long as somebody holds it.

    Raises:
        CaptureError: There is none.
    """
    found = _ARTIFACTS.get(name)
    if found is None:
        known = ", ".join(sorted(_ARTIFACTS)) or "none"
        raise CaptureError(
            f"there is no artifact {name!r}",
            where="get_artifact",
            fix=f"make it by compile_and_capture(..., name={name!r}), and keep it: there are {known}",
        )
    return found


class _Warm:
    """A program and its state, to be warmed up."""

    def __init__(self, program: Any, state: Mapping[str, torch.Tensor]) -> None:
        self.run = program.run
        self.state = state


def _held(graph: Graph, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return those weights that the graph reads: passes may have dropped some."""
    names = {
        name
        for value in graph.arguments
        if value.argument is not None
        for name in (value.argument.target, *value.argument.aliases)
    }
    return {name: item for name, item in weights.items() if name in names}


def _branches(step: TracedStep) -> Callable[[], None]:
    switches = hyperparameters.switches(step.subjects.optimizers)

    def require() -> None:
        now = hyperparameters.switches(step.subjects.optimizers)
        for name, value in switches.items():
            if now.get(name) is not value:
                raise CaptureError(
                    f"the step was traced where {name} is {value}, which does not hold any more",
                    where="the hyperparameters of the optimizers",
                    fix="compile the step again; TrainStep does so by itself",
                )
        values = hyperparameters.numbers(step.subjects.optimizers)
        for branch in step.branches:
            if not branch.holds(values):
                raise CaptureError(
                    f"the step was traced where {branch.text}, which does not hold any more",
                    where="the hyperparameters of the optimizers",
                    fix="compile the step again; TrainStep does so by itself",
                )

    return require


def _require_op(artifact: CompileArtifact, kind: str) -> None:
    if not artifact.lowered.count(kind):
        kinds = ", ".join(sorted({op.kind for op in artifact.lowered}))
        raise CaptureError(
            f"{artifact.name!r} has no op {kind!r}",
            where="enforce_ops",
            fix=f"it was lowered to {kinds}: passes make fused ops, and backends take those that they support",
        )

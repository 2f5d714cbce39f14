"""Compilation and capture of a training step into a `CompileArtifact`, which replays it."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch.nn import Module
from torch.optim import Optimizer

from npu_ir import Graph
from npu_runtime.errors import CaptureError
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.capture.capture_state import require_outside_capture
from npu_runtime.training.capture.options import CaptureKeywords, CaptureOptions
from npu_runtime.training.capture.snapshots import warmup_capture_safe
from npu_runtime.training.options import StepKeywords, StepOptions, accept, take
from npu_runtime.training.step_compilation import compile_step
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
    capture, made = take(options, compile_and_capture, CaptureOptions, StepOptions)
    if isinstance(step, (Graph, TracedStep)):
        artifact = compile_step(step, capture, made.name)
    else:
        artifact = _compile_function(step, optimizer, loss_fn, example_batch, capture, made)
    if example_batch is not None:
        _warm_up(artifact, example_batch, capture)
    if made.name is not None:
        _ARTIFACTS[made.name] = artifact
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
    # Loaded where it is used: most steps are traced.
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
    artifact = _ARTIFACTS.get(name) if isinstance(name, str) else None
    if artifact is None:
        known = ", ".join(sorted(_ARTIFACTS)) or "none"
        raise CaptureError(
            f"there is no artifact {name!r}",
            where="get_artifact",
            fix=f"make it by compile_and_capture(..., name={name!r}), and keep it: there are {known}",
        )
    return artifact

"""Compilation of training steps through the cache: from a file where it has the step, else by a trace."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from npu_ir import SerializationError
from npu_ir.core.isolation import pause_gc
from npu_ir.core.structure import unflatten
from npu_ir.core.user_code import warn_caller
from npu_ir.errors import UsageError
from npu_ir.serial.cache_folder import VARIABLE, CacheFolder, cache_folder
from npu_runtime.errors import CacheWarning
from npu_runtime.executor.options import resolve_backends
from npu_runtime.planned import PlanMemo
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.cache.content_hash import UnknownContentError
from npu_runtime.training.cache.step_key import describe_compilation, make_environment_key, make_step_key
from npu_runtime.training.cache.stored_step import StoredStep, read_step, store_branches, write_step
from npu_runtime.training.capture.options import CaptureOptions
from npu_runtime.training.step_compilation import OptimizedStep, compile_step, optimize_step
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.components import TrainingComponents
from npu_runtime.training.tracing.optimizers import require_traceable
from npu_runtime.training.tracing.substitution import ParameterSubstitution
from npu_runtime.training.tracing.traced_step import HYPERPARAMETERS, TracedStep
from npu_runtime.training.tracing.tracer import trace_function
from npu_runtime.training.tracing.unsupported import reject_hooks

KIND = "steps"
Batch = tuple[Sequence[Any], Mapping[str, Any]]


def compile_cached(
    function: Callable[..., Any],
    components: TrainingComponents,
    batch: Batch,
    options: CaptureOptions,
    name: str | None = None,
) -> CompileArtifact:
    """Return the compiled step of a step function, from the cache if it is there.

    ``cache_note`` of the result says where it comes from, or why it is not in the cache.

    Args:
        function: The step function.
        components: Its training components.
        batch: Positional and named arguments of a call.
        options: How to compile it.
        name: The name of the graph; by default that of the function.

    Raises:
        TracingError: The step cannot be traced.
        CaptureError: It cannot be captured, and has to be.
    """
    request = _Request(
        function, components, batch, options, name or str(getattr(function, "__name__", "step"))
    )
    try:
        folder = cache_folder(KIND)
    except UsageError as error:
        warn_caller(f"training steps are not stored: {error}", CacheWarning)
        return request.trace(f"not stored: {error}")
    if folder is None:
        return request.trace(f"not stored: {VARIABLE} turns caches off, or there is no home folder")
    try:
        with pause_gc():
            state = request.require_traceable_state()
            key = request.make_key(state)
    except UnknownContentError as error:
        return request.trace(f"not stored: {error}")
    return request.load(folder, key, state) or request.trace_and_store(folder, key)


@dataclass(frozen=True, slots=True)
class _Request:
    """A step to be compiled."""

    function: Callable[..., Any]
    components: TrainingComponents
    batch: Batch
    options: CaptureOptions
    name: str

    def require_traceable_state(self) -> dict[str, torch.Tensor]:
        """Return the state of the optimizers before the step, after the checks that a trace begins with."""
        for optimizer in self.components.optimizers.values():
            require_traceable(optimizer)
        reject_hooks(self.components)
        return ParameterSubstitution(self.components).state

    def make_key(self, state: Mapping[str, torch.Tensor]) -> str:
        return f"{make_environment_key()[:16]}-{self._content_key(state)}"

    def _content_key(self, state: Mapping[str, torch.Tensor]) -> str:
        weights = {**self.components.parameters(), **self.components.buffers()}
        backends, device = resolve_backends(self.options.backend, self.options.device, weights)
        described = {"name": self.name, **describe_compilation(self.options, backends, device)}
        return make_step_key(self.function, self.components, state, self.batch, described)

    def trace(self, note: str) -> CompileArtifact:
        args, kwargs = self.batch
        traced = trace_function(self.function, self.components, args, kwargs, name=self.name)
        artifact = compile_step(traced, self.options, self.name)
        artifact.cache_note = note
        return artifact

    def load(
        self, folder: CacheFolder, key: str, state: Mapping[str, torch.Tensor]
    ) -> CompileArtifact | None:
        """Return the step in a file; None if there is none, it is damaged, or numbers take other branches."""
        path = _path_of(folder, key)
        if not path.exists():
            return None
        try:
            stored = read_step(path, key)
            traced = self._bind(stored, state)
            if traced is None:
                return None
            optimized = OptimizedStep(stored.graph, stored.memo)
            artifact = compile_step(traced, self.options, self.name, optimized)
        except (SerializationError, OSError, KeyError, IndexError, TypeError, ValueError) as error:
            warn_caller(
                f"a damaged file in the cache of training steps is replaced: {path}: {error}",
                CacheWarning,
            )
            return None
        folder.touch(path)
        artifact.cache_note = f"loaded from {path}"
        return artifact

    def _bind(self, stored: StoredStep, state: Mapping[str, torch.Tensor]) -> TracedStep | None:
        """Return a stored step with these components; None if it was traced for other numbers."""
        numbers = {
            **hyperparameters.fixed_numbers(self.components.optimizers),
            **hyperparameters.open_numbers(self.components.optimizers),
        }
        if not all(branch.holds(numbers) for branch in stored.branches):
            return None
        _, named = unflatten(*stored.graph.call)
        for name, item in named[HYPERPARAMETERS].items():
            if type(item) in (int, float) and item != numbers.get(name):
                return None
        kept = {name: state[name] for name in stored.state}
        return TracedStep(stored.graph, kept, stored.branches, self.components)

    def trace_and_store(self, folder: CacheFolder, key: str) -> CompileArtifact:
        args, kwargs = self.batch
        traced = trace_function(self.function, self.components, args, kwargs, name=self.name)
        optimized = OptimizedStep(optimize_step(traced, self.options).graph, PlanMemo())
        artifact = compile_step(traced, self.options, self.name, optimized)
        artifact.cache_note = self._store(traced, optimized, folder, key)
        return artifact

    def _store(self, traced: TracedStep, optimized: OptimizedStep, folder: CacheFolder, key: str) -> str:
        """Write a step, and return a note about it."""
        branches = store_branches(traced.branches)
        if branches is None:
            return "not stored: it branches on a computed hyperparameter"
        try:
            if not key.endswith(self._content_key(ParameterSubstitution(self.components).state)):
                return "not stored: the trace has changed something that it depends on"
        except UnknownContentError as error:
            return f"not stored: {error}"
        assert optimized.memo is not None
        stored = StoredStep(optimized.graph, tuple(traced.state), branches, optimized.memo)
        path = _path_of(folder, key)
        try:
            folder.path.mkdir(parents=True, exist_ok=True)
            write_step(stored, key, path)
            folder.make_room()
        except (OSError, SerializationError) as error:
            return f"not stored: {error}"
        return f"stored in {path}"


def _path_of(folder: CacheFolder, key: str) -> Path:
    return folder.path / f"{key}.safetensors"

"""The specializations of a training step: one for each kind of batch, valid as long as its guards hold."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any

from npu_ir.core.user_code import warn_caller
from npu_runtime.errors import FallbackWarning
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.batches import batch_signature
from npu_runtime.training.capture.options import CaptureOptions
from npu_runtime.training.capture.runners import OFF
from npu_runtime.training.eager_step import run_first_step
from npu_runtime.training.guards import Guards
from npu_runtime.training.step_compilation import compile_step
from npu_runtime.training.tracing.components import TrainingComponents
from npu_runtime.training.tracing.optimizer_state import UnknownStateError
from npu_runtime.training.tracing.tracer import trace_function
from npu_runtime.training.tracing.unsupported import reject_sparse_tensors

# Usually one per shape of the batch: more of them suggest that batches should be padded to fewer shapes.
MAX_SPECIALIZATIONS = 16
_MAX_KEPT = 4


class Specializations:
    """The compiled forms of a step function, and the guards that say which of them is valid.

    Args:
        function: The step function.
        components: What it reads and changes.
        options: How to compile it.
        name: The name of the artifacts; None for that of the traced graph.
        lock: The lock of the step: specializations share the memory of the model.

    Attributes:
        current: The specialization of the last step; None before the first one.
        guards: The guards of the current one; they may fail.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        components: TrainingComponents,
        options: CaptureOptions,
        name: str | None,
        lock: threading.RLock,
    ) -> None:
        reject_sparse_tensors(components)
        self._function, self._components = function, components
        self._options, self._name, self._lock = options, name, lock
        self._by_key: dict[Hashable, CompileArtifact] = {}
        self.current: CompileArtifact | None = None
        self.guards, self._other_guards = Guards(components), list[Guards]()

    def __str__(self) -> str:
        """Return a text about each of them: how and where it runs, and why it is not captured."""
        return "\n\n".join(map(str, self._by_key.values()))

    def __len__(self) -> int:
        return len(self._by_key)

    def drop(self) -> None:
        """Drop all of them, and free their memory."""
        self._by_key.clear()
        self.current = None
        self.guards, self._other_guards = Guards(self._components), []

    def run(self, batch: tuple[Any, ...], named: dict[str, Any], *, borrow: bool) -> Any:
        """Take a step with the specialization for a batch, which becomes the current one; return results."""
        guards = self.guards
        try:
            guards = self._find_guards()
            specialization = self._find(batch, named, guards)
        except UnknownStateError:
            self.drop()
            results = run_first_step(self._function, self._components, batch, named)
        else:
            results = specialization.step(*specialization.bind_call(batch, named), borrow=borrow)
            self.current = specialization
        is_known = guards is self.guards or guards in self._other_guards
        # To ask new guards would compile them; a first step changes what they compare in any case.
        self._keep_guards(guards if is_known and guards.hold() else Guards(self._components))
        return results

    def _find_guards(self) -> Guards:
        """Return guards that hold, after all specializations were bound to other memory or dropped."""
        if not self._by_key:
            return Guards(self._components)
        kept = next((item for item in (self.guards, *self._other_guards) if item.hold()), None)
        if kept is not None:
            return kept
        # Other parts or types need a new trace; other memory of the same types, as after
        # optimizer.load_state_dict(), only needs another binding.
        fits = self.guards.has_same_parts() and self.guards.has_same_types()
        if fits and self.guards.has_same_memory():
            return Guards(self._components)
        # Guards on the old memory must not hold again if this call fails and the old memory comes back.
        bound = dict(self._by_key)
        self.drop()
        if fits and all(item.rebind_components() for item in bound.values()):
            self._by_key.update(bound)
        return self.guards

    def _keep_guards(self, guards: Guards) -> None:
        """Use guards that hold; keep the others that differ in flags alone: a model may go to and fro."""
        if guards is not self.guards:
            others = [item for item in (self.guards, *self._other_guards) if item is not guards]
            self._other_guards = [
                item for item in others[:_MAX_KEPT] if item.has_same_parts() and item.has_same_memory()
            ]
            self.guards = guards

    def _find(self, batch: tuple[Any, ...], named: dict[str, Any], guards: Guards) -> CompileArtifact:
        """Return the specialization for this call, traced if necessary.

        Raises:
            UnknownStateError: Only an eager first step reveals what state an optimizer keeps.
        """
        key = batch_signature(batch, named), guards.specialization_key
        found = self._by_key.get(key)
        if found is not None and found.has_foreign_state() and not found.rebind_components():
            # The optimizers hold state of another specialization, unfit for this one.
            self.drop()
            found = None
        if found is None or found.current_numbers() is None:
            found = self._by_key[key] = self._trace(batch, named)
        return found

    def _trace(self, batch: tuple[Any, ...], named: dict[str, Any]) -> CompileArtifact:
        """Trace and capture a step for a batch; the oldest specialization makes room for it."""
        if len(self._by_key) >= MAX_SPECIALIZATIONS:
            del self._by_key[next(iter(self._by_key))]
            warn_caller(
                f"a step was traced for more than {MAX_SPECIALIZATIONS} kinds of batches and modes; "
                "the oldest is forgotten: pad batches to fewer shapes, and keep counters out of modules",
                FallbackWarning,
            )
        specialization = self._compile(batch, named)
        specialization.lock = self._lock
        if self._options.capture == "prefer" and specialization.capture_state == OFF:
            text = f"the step runs op by op: {specialization.reason}"
            warn_caller(text, FallbackWarning)
        return specialization

    def _compile(self, batch: tuple[Any, ...], named: dict[str, Any]) -> CompileArtifact:
        if not self._options.cache:
            traced = trace_function(self._function, self._components, batch, named, name=self._name)
            return compile_step(traced, self._options)
        # Loaded where it is used: most steps are traced.
        from npu_runtime.training.cache.cached_compilation import compile_cached

        return compile_cached(self._function, self._components, (batch, named), self._options, self._name)

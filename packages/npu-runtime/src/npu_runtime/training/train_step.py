"""`TrainStep`: a training step that is traced once and then replayed."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.nn import Module
from torch.optim import Optimizer

from npu_ir import ExecutionError, Graph, NpuError
from npu_ir.plugins.backend import Backend
from npu_runtime.errors import CaptureError, FallbackWarning
from npu_runtime.executor.options import Passes
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.batches import Batch, batch_signature, draw_batches
from npu_runtime.training.capture.capture_state import in_capture
from npu_runtime.training.capture.options import CaptureOptions
from npu_runtime.training.capture.runners import OFF
from npu_runtime.training.eager_step import run_first_step
from npu_runtime.training.guards import Guards
from npu_runtime.training.options import StepKeywords, StepOptions, accept, take
from npu_runtime.training.ring_buffer import RingBuffer, make_rows
from npu_runtime.training.saved_state import copy_state, load_state, save_state
from npu_runtime.training.stacked_results import StackedResults
from npu_runtime.training.steady_call import CHANGED, SteadyCall, make_steady_call, no_steady_call
from npu_runtime.training.step_compilation import compile_step
from npu_runtime.training.step_function import LossFunction
from npu_runtime.training.trace import make_step
from npu_runtime.training.tracing.optimizer_state import UnknownStateError
from npu_runtime.training.tracing.optimizers import require_traceable
from npu_runtime.training.tracing.tracer import trace_function

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` since Python 3.11

# Usually one per shape of the batch: more of them suggest that batches should be padded to fewer shapes.
MAX_SPECIALIZATIONS = 16
_MAX_KEPT = 4


class TrainStep:
    """A whole training step, called in a loop instead of forward, loss, backward and ``optimizer.step()``.

    .. code-block:: python

        step = TrainStep(model, optimizer, loss_fn)
        for input, target in batches:
            loss = step(input, target)

    The first call traces the step into one graph, plans its memory, and captures it; later calls replay it.
    It works in place on the tensors of the model and the optimizer: between calls, the model can be evaluated
    and saved, and learning rates changed (``torch.optim.lr_scheduler``), as in eager PyTorch. When something
    changes that the graph was specialized for (the shape of a batch, ``model.eval()``, ``requires_grad``, a
    setting of the optimizer), the step is traced again; earlier specializations are kept. A call that fails
    leaves everything as it was before it.

    Gradients are not state: each call begins without any, and ``parameter.grad`` is neither read nor written.

    Args:
        model: The model; or a step function as `compile_ir` takes it, alone.
        optimizer: An optimizer of the model's parameters: any of `torch.optim` but LBFGS, Adafactor and
            SparseAdam.
        loss_fn: ``loss_fn(model(*inputs), target)``. Returns the loss, a scalar; or a tuple or list that
            begins with it, or a dict with a ``"loss"``. None: the model takes the whole batch and returns
            that itself; a transformers model is called with ``use_cache=False`` unless the call gives it.
        backend: As for `CaptureOptions`, like the next two.
        passes: Likewise.
        capture: Likewise; `explain` reports why a step is not captured.
        memory_budget_bytes: Likewise; `explain` reports what is kept and what is recomputed.
        cache: Likewise; `explain` reports the file of the step, or why it has none.
        borrow: Return the tensors that the next call overwrites, instead of new ones.
        options: The fields of `StepOptions`.

    Raises:
        TracingError: The arguments do not define a step.
        CaptureError: There is no such capture mode; or the memory budget is not positive.
    """

    @accept(StepOptions)
    def __init__(
        self,
        model: Module | Callable[..., Any],
        optimizer: Optimizer | None = None,
        loss_fn: LossFunction | None = None,
        *,
        backend: str | Backend | Sequence[str | Backend] = "aten",
        passes: Passes = "train",
        capture: str = "prefer",
        memory_budget_bytes: int | None = None,
        cache: bool = False,
        borrow: bool = False,
        **options: Unpack[StepKeywords],
    ) -> None:
        (made,) = take(options, "TrainStep", StepOptions)
        self._capture = CaptureOptions(
            backend=backend,
            passes=passes,
            capture=capture,
            memory_budget_bytes=memory_budget_bytes,
            cache=cache,
        )
        self._function, self._components = make_step(model, optimizer, loss_fn, made)
        for item in self._components.optimizers.values():
            require_traceable(item)
        self._components.trained_names()
        self._name: str | None = made.name
        self._borrow = borrow
        self._lock = threading.RLock()
        self._is_running = False
        self._ring: RingBuffer | None = None
        self._specializations: dict[Hashable, CompileArtifact] = {}
        self._current: CompileArtifact | None = None
        self._steady: SteadyCall | None = None  # of the current specialization and guards
        self._guards, self._other_guards = Guards(self._components), list[Guards]()

    def __call__(self, *batch: Any, **named: Any) -> Any:
        """Take one step.

        Args:
            batch: The inputs of the model, followed by the target; or the arguments of the step function.
            named: Further inputs of the model, by name.

        Returns:
            The results of ``loss_fn``, such as the loss, detached.

        Raises:
            TracingError: The step cannot be traced into a graph; the message has the reason, the line and a
                fix.
            CaptureError: It cannot be captured, and ``capture`` is ``"require"``; or it cannot keep to its
                memory budget; or the step calls itself.
            ExecutionError: An op fails. All parameters, buffers and state are as they were.
        """
        if self._is_running:
            self._require_other_thread()
        with self._lock:  # not by acquire(): Ctrl-C between that and a try block would keep the lock
            steady = self._steady
            if steady is None:
                steady = self._make_steady()
            results = steady(batch, named)
            return self._run_changed(batch, named) if results is CHANGED else results

    def run(self, batches: Iterable[Any], steps: int | None = None) -> Any:
        """Take a step on each of many batches, and return the losses of all of them at once.

        As many calls of the step would, to the bit. Where all of a step is native, no step needs Python: a
        thread draws the batches, and copies them into a few fixed buffers, while steps are taken on those
        before. Nothing else may change the model and the optimizer meanwhile, or read them: learning rates
        are those at the beginning.

        Args:
            batches: An iterable of batches, such as a DataLoader: a tuple or list has the arguments of the
                call, a dict those by name; anything else is a single argument.
            steps: The number of batches that are drawn, at most; all by default.

        Returns:
            The results of one step, each tensor with a new first dimension, a row for each step.

        Raises:
            TracingError: As for a call, like the next two. The message begins with the number of the step,
                the first one being 1; those before are taken. Or there is no such iterable or number.
            CaptureError: Likewise.
            ExecutionError: Likewise; or the iterable raises an exception, which is the cause; or results
                cannot be stacked, since they have other types than those before.
        """
        if self._is_running:
            self._require_other_thread()
        results = StackedResults()
        with self._lock:
            try:
                self._run(draw_batches(batches, steps, self._components.device()), results)
            except NpuError as error:
                error.message = f"step {results.steps + 1} of run: {error.message}"
                raise
            except Exception as error:
                raise ExecutionError(
                    f"step {results.steps + 1} of run: {type(error).__name__}: {error}",
                    fix="see the exception above, of the iterable or of the step",
                ) from error
            if not results.steps and self._current is not None:
                results.extend(0, make_rows(self._current, 0), self._current.graph.results[0])
        return results.stack()

    @property
    def borrow(self) -> bool:
        """The choice to return tensors that the next call overwrites, instead of new ones."""
        return self._borrow

    @borrow.setter
    def borrow(self, borrow: bool) -> None:
        self._borrow = borrow
        self._steady = None

    @property
    def graph(self) -> Graph:
        """The graph of the last step, after the passes.

        Raises:
            CaptureError: No step has been taken.
        """
        return self._require_current().graph

    @property
    def artifact(self) -> CompileArtifact:
        """The `CompileArtifact` of the last step: its plan, its lowered graph, its call log.

        Raises:
            CaptureError: No step has been taken.
        """
        return self._require_current()

    def explain(self) -> str:
        """Return a text about each specialization: how and where it runs, and why it is not captured."""
        if not self._specializations:
            return "no step has been taken"
        return "\n\n".join(str(specialization) for specialization in self._specializations.values())

    def state_dict(self) -> dict[str, Any]:
        """Return ``{"model": ..., "optimizer": ...}``, each in PyTorch's own format.

        For a step function with several modules or optimizers, each is a dict by name. The tensors are not
        copies: later steps update them. The state of the random generators is not part of it
        (``torch.get_rng_state()``).
        """
        return save_state(self._components)

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state_dict`, bit by bit.

        Raises:
            TracingError: Its keys are not ``"model"`` and ``"optimizer"``.
        """
        load_state(self._components, state)

    def sync_to(self, model: Module, optimizer: Optimizer | None = None) -> None:
        """Copy the state of this training into another model, and another optimizer of its parameters.

        Raises:
            TracingError: This step has several modules or not exactly one optimizer.
        """
        copy_state(self._components, model, optimizer)

    def reset(self) -> None:
        """Drop all specializations, and free their memory; the next call traces again."""
        self._require_other_thread()
        with self._lock:
            self._drop_specializations()

    def __reduce__(self) -> Any:
        raise CaptureError(
            "a TrainStep cannot be copied or pickled: it is bound to the memory of its model",
            fix="copy model and optimizer, and make a TrainStep of these",
        )

    # Inside

    def _require_current(self) -> CompileArtifact:
        if self._current is None:
            raise CaptureError("no step has been taken", fix="call the step once, or use compile_ir")
        return self._current

    def _require_other_thread(self) -> None:
        """Raise if this thread is within a step, or draws its batches: it would wait for itself."""
        is_own = self._lock.acquire(blocking=False)
        is_within = is_own and (self._is_running or in_capture())
        if is_own:
            self._lock.release()
        is_loader = self._ring is not None and threading.current_thread() is self._ring.thread
        if is_within or is_loader:
            raise CaptureError(
                "a step calls itself",
                fix="take the inner step outside of the loss, and of the iterable of batches",
            )

    def _run(self, batches: Iterator[Batch], results: StackedResults) -> None:
        batch, last, refused = next(batches, None), self._current, None
        while batch is not None:
            args, named = batch
            results.add(self(*args, **named), is_borrowed=self._borrow)
            ring = None
            if self._current is last is not refused:  # two steps of a kind: more of it may follow
                ring = self._make_ring()
                refused = last if ring is None else None
            last = self._current
            batch = next(batches, None) if ring is None else self._run_ring(ring, batches, results)

    def _run_ring(self, ring: RingBuffer, batches: Iterator[Batch], results: StackedResults) -> Batch | None:
        self._ring, self._is_running = ring, True
        try:
            return ring.run(batches, results)
        finally:
            self._ring, self._is_running = None, False

    def _make_ring(self) -> RingBuffer | None:
        """Return a ring for batches like that of the last step; None if the next one has to look again."""
        current = self._current
        if current is None or not self._guards.hold():
            return None
        numbers = current.current_numbers()
        return None if numbers is None else RingBuffer.of(current, numbers)

    def _make_steady(self) -> SteadyCall:
        if self._current is None:
            return no_steady_call
        # Not at the end of a call: a single step would compile what it never runs.
        self._steady = make_steady_call(self._current, self._guards, self._borrow)
        return self._steady

    def _run_changed(self, batch: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Take a step that is not a steady call."""
        self._require_other_thread()
        self._is_running = True
        try:
            current = self._current
            if current is not None and self._guards.hold():
                bound, numbers = current.bind_batch(batch, named), current.current_numbers()
                if bound is not None and numbers is not None:
                    return current.step(bound[0], numbers, self._borrow, self._guards.in_default_state)
            return self._run_uncached(batch, named)
        finally:
            self._is_running = False

    def _run_uncached(self, batch: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Take a step whose specialization is not the current one, or whose guards fail."""
        guards = self._guards
        try:
            guards = self._find_guards()
            specialization = self._find_specialization(batch, named, guards)
        except UnknownStateError:
            self._drop_specializations()
            results = run_first_step(self._function, self._components, batch, named)
        else:
            results = specialization.step(*specialization.bind_call(batch, named), borrow=self._borrow)
            self._current = specialization
        self._steady = None
        is_known = guards is self._guards or guards in self._other_guards
        # To ask new guards would compile them; a first step changes what they compare in any case.
        self._keep_guards(guards if is_known and guards.hold() else Guards(self._components))
        return results

    def _find_guards(self) -> Guards:
        """Return guards that hold, after all specializations were bound to other memory or dropped."""
        if not self._specializations:
            return Guards(self._components)
        kept = next((item for item in (self._guards, *self._other_guards) if item.hold()), None)
        if kept is not None:
            return kept
        # Other parts or types need a new trace; other memory of the same types, as after
        # optimizer.load_state_dict(), only needs another binding.
        fits = self._guards.has_same_parts() and self._guards.has_same_types()
        if fits and self._guards.has_same_memory():
            return Guards(self._components)
        # Guards on the old memory must not hold again if this call fails and the old memory comes back.
        bound = dict(self._specializations)
        self._drop_specializations()
        if fits and all(item.rebind_components() for item in bound.values()):
            self._specializations.update(bound)
        return self._guards

    def _keep_guards(self, guards: Guards) -> None:
        """Use guards that hold; keep the others that differ in flags alone: a model may go to and fro."""
        if guards is not self._guards:
            others = [item for item in (self._guards, *self._other_guards) if item is not guards]
            self._other_guards = [
                item for item in others[:_MAX_KEPT] if item.has_same_parts() and item.has_same_memory()
            ]
            self._guards = guards

    def _find_specialization(
        self, batch: tuple[Any, ...], named: dict[str, Any], guards: Guards
    ) -> CompileArtifact:
        """Return the specialization for this call, traced if necessary.

        Raises:
            UnknownStateError: Only an eager first step reveals what state an optimizer keeps.
        """
        key = batch_signature(batch, named), guards.specialization_key
        found = self._specializations.get(key)
        if found is not None and found.has_foreign_state() and not found.rebind_components():
            # The optimizers hold state of another specialization, unfit for this one.
            self._drop_specializations()
            found = None
        if found is None or found.current_numbers() is None:
            found = self._specializations[key] = self._trace(batch, named)
        return found

    def _trace(self, batch: tuple[Any, ...], named: dict[str, Any]) -> CompileArtifact:
        """Trace and capture a step for a batch; the oldest specialization makes room for it."""
        if len(self._specializations) >= MAX_SPECIALIZATIONS:
            del self._specializations[next(iter(self._specializations))]
            warnings.warn(
                f"a step was traced for more than {MAX_SPECIALIZATIONS} kinds of batches and modes; "
                "the oldest is forgotten: pad batches to fewer shapes, and keep counters out of modules",
                FallbackWarning,
                stacklevel=5,
            )
        specialization = self._compile(batch, named)
        specialization.lock = self._lock  # they share the memory of the model
        if self._capture.capture == "prefer" and specialization.capture_state == OFF:
            warnings.warn(f"the step runs op by op: {specialization.reason}", FallbackWarning, stacklevel=5)
        return specialization

    def _compile(self, batch: tuple[Any, ...], named: dict[str, Any]) -> CompileArtifact:
        if not self._capture.cache:
            traced = trace_function(self._function, self._components, batch, named, name=self._name)
            return compile_step(traced, self._capture)
        # Loaded where it is used: most steps are traced.
        from npu_runtime.training.cache.cached_compilation import compile_cached

        return compile_cached(self._function, self._components, (batch, named), self._capture, self._name)

    def _drop_specializations(self) -> None:
        self._specializations.clear()
        self._current = self._steady = None
        self._guards, self._other_guards = Guards(self._components), []

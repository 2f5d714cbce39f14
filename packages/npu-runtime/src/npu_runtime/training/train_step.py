"""`TrainStep`: a training step that is traced once and then replayed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch.nn import Module
from torch.optim import Optimizer

from npu_ir import ExecutionError, Graph, NpuError
from npu_ir.plugins.backend import Backend
from npu_runtime._torch.opaque_calls import opaque
from npu_runtime.backends.registry import AUTO
from npu_runtime.errors import CaptureError
from npu_runtime.executor.options import Passes
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.batches import Batch, draw_batches
from npu_runtime.training.capture.capture_state import in_capture, require_untraced
from npu_runtime.training.capture.options import CaptureOptions
from npu_runtime.training.options import StepKeywords, StepOptions, accept, take
from npu_runtime.training.ring_buffer import RingBuffer, make_rows
from npu_runtime.training.saved_state import copy_state, load_state, save_state
from npu_runtime.training.specializations import Specializations
from npu_runtime.training.stacked_results import StackedResults
from npu_runtime.training.steady_call import CHANGED, SteadyCall, make_steady_call, no_steady_call
from npu_runtime.training.step_function import LossFunction
from npu_runtime.training.trace import make_step
from npu_runtime.training.tracing.optimizers import require_traceable

if TYPE_CHECKING:
    from typing_extensions import Unpack  # of `typing` since Python 3.11


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
    A step records gradients by itself: under ``torch.no_grad()`` or ``torch.inference_mode()``, where eager
    ``backward()`` fails, it is the same step.

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
        BackendError: There is no such backend, or it cannot run here.
    """

    @accept(StepOptions)
    def __init__(
        self,
        model: Module | Callable[..., Any],
        optimizer: Optimizer | None = None,
        loss_fn: LossFunction | None = None,
        *,
        backend: str | Backend | Sequence[str | Backend] = "aten",
        passes: Passes = AUTO,
        capture: str = "prefer",
        memory_budget_bytes: int | None = None,
        cache: bool = False,
        borrow: bool = False,
        **options: Unpack[StepKeywords],
    ) -> None:
        (made,) = take(options, TrainStep, StepOptions)
        capture_options = CaptureOptions(
            backend=backend,
            passes=passes,
            capture=capture,
            memory_budget_bytes=memory_budget_bytes,
            cache=cache,
        )
        function, self._components = make_step(model, optimizer, loss_fn, made)
        for item in self._components.optimizers.values():
            require_traceable(item)
        self._components.trained_names()
        self._borrow = borrow
        self._lock = threading.RLock()
        self._is_running = False
        self._ring: RingBuffer | None = None
        self._steady: SteadyCall | None = None  # of the current specialization and guards
        self._specializations = Specializations(
            function, self._components, capture_options, made.name, self._lock
        )

    @opaque
    def __call__(self, *batch: Any, **named: Any) -> Any:
        """Take one step.

        Args:
            batch: The inputs of the model, followed by the target; or the arguments of the step function.
            named: Further inputs of the model, by name.

        Returns:
            The results of ``loss_fn``, such as the loss, detached.

        Raises:
            TracingError: The step cannot be traced into a graph; the message has the reason, the line and a
                fix. Or PyTorch traces or transforms this call.
            WeightError: A tensor of the model has no data, or it is updated and expanded.
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

    @opaque
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
            current = self._specializations.current
            if not results.steps and current is not None:
                results.extend(0, make_rows(current, 0), current.graph.results[0])
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
        return str(self._specializations) or "no step has been taken"

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
            TracingError: Its keys are not ``"model"`` and ``"optimizer"``; a tensor in it, or one of the
                model, has no data (on ``meta``); or it is of another model, or of another optimizer: names,
                shapes or groups differ. Nothing is loaded then.
        """
        load_state(self._components, state)

    def sync_to(self, model: Module, optimizer: Optimizer | None = None) -> None:
        """Copy the state of this training into another model, and another optimizer of its parameters.

        Values are cast to the floating-point dtypes of the other model.

        Raises:
            TracingError: This step has several modules or not exactly one optimizer; or what is given has
                other parameters, or tensors that cannot be written to, as those on ``meta``. Nothing is
                copied then.
        """
        copy_state(self._components, model, optimizer)

    def reset(self) -> None:
        """Drop all specializations, and free their memory; the next call traces again."""
        self._require_other_thread()
        with self._lock:
            self._steady = None
            self._specializations.drop()

    def __repr__(self) -> str:
        current = self._specializations.current
        state = "no step taken" if current is None else f"the last one {current!r}"
        return f"<TrainStep: {len(self._specializations)} specializations, {state}>"

    def __reduce__(self) -> Any:
        raise CaptureError(
            "a TrainStep cannot be copied or pickled: it is bound to the memory of its model",
            fix="copy model and optimizer, and make a TrainStep of these",
        )

    # Inside

    def _require_current(self) -> CompileArtifact:
        current = self._specializations.current
        if current is None:
            raise CaptureError("no step has been taken", fix="call the step once, or use compile_ir")
        return current

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
        batch, last, refused = next(batches, None), self._specializations.current, None
        while batch is not None:
            args, named = batch
            results.add(self(*args, **named), is_borrowed=self._borrow)
            current, ring = self._specializations.current, None
            if current is last is not refused:  # two steps of a kind: more of it may follow
                ring = self._make_ring()
                refused = last if ring is None else None
            last = current
            batch = next(batches, None) if ring is None else self._run_ring(ring, batches, results)

    def _run_ring(self, ring: RingBuffer, batches: Iterator[Batch], results: StackedResults) -> Batch | None:
        self._ring, self._is_running = ring, True
        try:
            return ring.run(batches, results)
        finally:
            self._ring, self._is_running = None, False

    def _make_ring(self) -> RingBuffer | None:
        """Return a ring for batches like that of the last step; None if the next one has to look again."""
        current = self._specializations.current
        if current is None or not self._specializations.guards.hold():
            return None
        numbers = current.current_numbers()
        return None if numbers is None else RingBuffer.of(current, numbers)

    def _make_steady(self) -> SteadyCall:
        current, guards = self._specializations.current, self._specializations.guards
        if current is None:
            return no_steady_call
        # Not at the end of a call: a single step would compile what it never runs.
        self._steady = make_steady_call(current, guards, self._borrow)
        return self._steady

    def _run_changed(self, batch: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Take a step that is not a steady call."""
        self._require_other_thread()
        require_untraced("a training step")
        self._is_running = True
        try:
            current, guards = self._specializations.current, self._specializations.guards
            if current is not None and guards.hold():
                bound, numbers = current.bind_batch(batch, named), current.current_numbers()
                if bound is not None and numbers is not None:
                    return current.step(bound[0], numbers, self._borrow, guards.in_default_state)
            self._steady = None
            return self._specializations.run(batch, named, borrow=self._borrow)
        finally:
            self._is_running = False

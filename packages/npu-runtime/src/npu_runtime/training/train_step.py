"""`TrainStep`: a training step that is traced once and then replayed."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_ir import Graph
from npu_ir.core.structure import flatten
from npu_ir.plugins.backend import Backend
from npu_runtime.errors import CaptureError, FallbackWarning, TracingError
from npu_runtime.executor.options import Passes
from npu_runtime.training.artifact import CompileArtifact
from npu_runtime.training.capture.options import CaptureOptions
from npu_runtime.training.capture.runners import OFF
from npu_runtime.training.compile import compile_step
from npu_runtime.training.eager_step import run_first_step
from npu_runtime.training.guards import Guards
from npu_runtime.training.options import StepKeywords, StepOptions, accept, take
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
        borrow: Return the tensors that the next call overwrites, instead of new ones.
        options: The fields of `StepOptions`.

    Raises:
        TracingError: The arguments do not define a step.
        CaptureError: There is no such capture mode.
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
        borrow: bool = False,
        **options: Unpack[StepKeywords],
    ) -> None:
        (made,) = take(options, "TrainStep", StepOptions)
        self._capture = CaptureOptions(backend=backend, passes=passes, capture=capture)
        self._function, self._components = make_step(model, optimizer, loss_fn, made)
        for item in self._components.optimizers.values():
            require_traceable(item)
        self._components.trained_names()
        self._name: str | None = made.name
        self.borrow = borrow
        self._lock = threading.RLock()
        self._is_running = False
        self._specializations: dict[Hashable, CompileArtifact] = {}
        self._current: CompileArtifact | None = None
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
            CaptureError: It cannot be captured, and ``capture`` is ``"require"``; or the step calls itself.
            ExecutionError: An op fails. All parameters, buffers and state are as they were.
        """
        self._lock.acquire()  # not by a with statement, which takes twice as long
        try:
            if self._is_running:
                self._require_idle()
            self._is_running = True
            try:
                current = self._current
                if current is not None and self._guards.hold():
                    bound, numbers = current.bind_batch(batch, named), current.current_numbers()
                    if bound is not None and numbers is not None:
                        return current.step(bound[0], numbers, self.borrow, self._guards.in_default_state)
                return self._run_uncached(batch, named)
            finally:
                self._is_running = False
        finally:
            self._lock.release()

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
        """Return a text about each specialization: how it runs, and why it is not captured."""
        if not self._specializations:
            return "no step has been taken"
        return "\n\n".join(str(specialization) for specialization in self._specializations.values())

    def state_dict(self) -> dict[str, Any]:
        """Return ``{"model": ..., "optimizer": ...}``, each in PyTorch's own format.

        For a step function with several modules or optimizers, each is a dict by name. The tensors are not
        copies: later steps update them. The state of the random generators is not part of it
        (``torch.get_rng_state()``).
        """
        return {
            "model": _unwrap_single(
                {name: item.state_dict() for name, item in self._components.modules.items()}
            ),
            "optimizer": _unwrap_single(
                {name: item.state_dict() for name, item in self._components.optimizers.items()}
            ),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Resume from a `state_dict`, bit by bit.

        Raises:
            TracingError: Its keys are not ``"model"`` and ``"optimizer"``.
        """
        if set(state) != {"model", "optimizer"}:
            raise TracingError(
                f"the state of a step has the keys 'model' and 'optimizer', not {sorted(map(str, state))}",
                fix="give what state_dict() returned",
            )
        for items, loaded in (
            (self._components.modules, state["model"]),
            (self._components.optimizers, state["optimizer"]),
        ):
            for name, item in items.items():
                item.load_state_dict(loaded if len(items) == 1 else loaded[name.removesuffix(".")])

    def sync_to(self, model: Module, optimizer: Optimizer | None = None) -> None:
        """Copy the state of this training into another model, and another optimizer of its parameters.

        Raises:
            TracingError: This step has several modules or not exactly one optimizer.
        """
        if len(self._components.optimizers) != 1 or "" not in self._components.modules:
            raise TracingError(
                "a step of several modules or optimizers is not copied to a single one",
                fix="copy each by itself: state_dict(), load_state_dict()",
            )
        own = self._components.modules[""]
        if model is not own:
            model.load_state_dict(own.state_dict())
        trained = self._components.optimizers[""]
        if optimizer is not None and optimizer is not trained:
            optimizer.load_state_dict(copy.deepcopy(trained.state_dict()))

    def reset(self) -> None:
        """Drop all specializations, and free their memory; the next call traces again."""
        with self._lock:
            self._require_idle()
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

    def _require_idle(self) -> None:
        if self._is_running:
            raise CaptureError("a step calls itself", fix="take the inner step outside of the loss")

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
            results = specialization.step(*specialization.bind_call(batch, named), borrow=self.borrow)
            self._current = specialization
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
        traced = trace_function(self._function, self._components, batch, named, name=self._name)
        specialization = compile_step(traced, self._capture)
        specialization.lock = self._lock  # they share the memory of the model
        if self._capture.capture == "prefer" and specialization.capture_state == OFF:
            warnings.warn(f"the step runs op by op: {specialization.reason}", FallbackWarning, stacklevel=5)
        return specialization

    def _drop_specializations(self) -> None:
        self._specializations.clear()
        self._current = None
        self._guards, self._other_guards = Guards(self._components), []


def _unwrap_single(items: dict[str, Any]) -> Any:
    if len(items) == 1:
        return next(iter(items.values()))
    return {name.removesuffix("."): item for name, item in items.items()}


def batch_signature(batch: tuple[Any, ...], named: Mapping[str, Any]) -> Hashable:
    """Return the signature of a batch: structure, types of its tensors, and its other leaves by value."""
    leaves, structure = flatten((batch, dict(named)))
    return structure, tuple(map(_leaf_signature, leaves))


def _leaf_signature(item: Any) -> Hashable:
    if isinstance(item, torch.Tensor):
        return type(item), item.shape, item.stride(), item.dtype, item.device
    return type(item), repr(item)

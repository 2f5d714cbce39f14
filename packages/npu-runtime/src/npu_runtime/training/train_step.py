"""`TrainStep`: a training step that is traced once and then replayed."""

from __future__ import annotations

import copy
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_ir import Graph
from npu_ir.plugins.backend import Backend
from npu_runtime.errors import CaptureError, FallbackWarning, TracingError
from npu_runtime.executor.options import Passes
from npu_runtime.training.capture.select_runner import require_capture_mode
from npu_runtime.training.eager_step import run_first_step
from npu_runtime.training.guards import Guards
from npu_runtime.training.specialization import Specialization, batch_signature, make_specialization
from npu_runtime.training.step_function import LossFunction
from npu_runtime.training.step_options import StepOptions
from npu_runtime.training.trace import make_step
from npu_runtime.training.tracing.optimizer_state import UnknownStateError
from npu_runtime.training.tracing.optimizers import require_traceable

# Usually one per shape of the batch: more of them suggest that batches should be padded to fewer shapes.
MAX_SPECIALIZATIONS = 16


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
        backend: A name, a `Backend`, or several in order of preference; ATen runs the ops they refuse.
        passes: The name of a pipeline, or passes to run over the graph; None for none. ``"train"`` is
            ``"train-cpu"`` where ATen runs the step on a CPU.
        capture: ``"require"``: fail if the step cannot be captured. ``"prefer"``: then run the graph op by
            op, and report the reason in `explain`. ``"off"``: always run it op by op.
        accumulate: Split the batch along its first dimension into this many parts, as even as possible, and
            average their gradients, weighted by rows. 0-d results are averaged, others concatenated.
        clip_grad_norm: Scale the gradients down to this total norm if they exceed it.
        clip_grad_value: Clamp each element of the gradients to this magnitude.
        autocast: The dtype of ``torch.autocast`` around model and loss, usually bfloat16. Gradients of
            float16 are not scaled; a ``GradScaler`` is refused.
        borrow: Return the tensors that the next call overwrites, instead of copies of them.
        modules: The modules of a step function, where its closure does not refer to them.
        optimizers: Its optimizers, likewise.
        scaler: Refused with a fix: a ``GradScaler`` decides in Python whether to take a step.

    Raises:
        TracingError: The arguments do not define a step.
        CaptureError: There is no such capture mode.
    """

    def __init__(
        self,
        model: Module | Callable[..., Any],
        optimizer: Optimizer | None = None,
        loss_fn: LossFunction | None = None,
        *,
        backend: str | Backend | Sequence[str | Backend] = "aten",
        passes: Passes = "train",
        capture: str = "prefer",
        accumulate: int = 1,
        clip_grad_norm: float | None = None,
        clip_grad_value: float | None = None,
        autocast: torch.dtype | None = None,
        borrow: bool = False,
        modules: Sequence[Module] | None = None,
        optimizers: Sequence[Optimizer] | None = None,
        scaler: torch.amp.GradScaler | None = None,
    ) -> None:
        require_capture_mode(capture)
        options = StepOptions(
            accumulate, clip_grad_norm, clip_grad_value, autocast, modules, optimizers, scaler
        )
        self._function, self._components = make_step(model, optimizer, loss_fn, options)
        for item in self._components.optimizers.values():
            require_traceable(item)
        self._components.trained_names()
        self.backend = backend
        self.passes = passes
        self.capture = capture
        self.borrow = borrow
        self._lock = threading.RLock()
        self._is_running = False
        self._specializations: dict[Any, Specialization] = {}
        self._current: Specialization | None = None
        self._guards = Guards(self._components)

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
        with self._lock:
            self._require_idle()
            self._is_running = True
            try:
                specialization = self._current
                is_known = (
                    specialization is not None
                    and specialization.matches(batch, named)
                    and self._guards.hold()
                )
                if specialization is None or not is_known:
                    return self._run_uncached(batch, named)
                return specialization.run(batch, named, borrow=self.borrow)
            finally:
                self._is_running = False

    @property
    def graph(self) -> Graph:
        """The graph of the last step, after the passes.

        Raises:
            CaptureError: No step has been taken.
        """
        return self._require_current().graph

    @property
    def artifact(self) -> Any:
        """The `CompileArtifact` of the last step: its plan, its lowered graph, its call log.

        Raises:
            CaptureError: No step has been taken.
        """
        return self._require_current().artifact

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

    def _require_current(self) -> Specialization:
        if self._current is None:
            raise CaptureError("no step has been taken", fix="call the step once, or use compile_ir")
        return self._current

    def _require_idle(self) -> None:
        if self._is_running:
            raise CaptureError("a step calls itself", fix="take the inner step outside of the loss")

    def _run_uncached(self, batch: Any, named: Any) -> Any:
        """Take a step whose specialization is not the current one, or whose guards fail."""
        specialization = self._find_specialization(batch, named)
        if specialization is None:
            results = run_first_step(self._function, self._components, batch, named)
        else:
            results = specialization.run(batch, named, borrow=self.borrow)
            self._current = specialization
        self._guards = Guards(self._components)
        return results

    def _find_specialization(self, batch: Any, named: Any) -> Specialization | None:
        """Return the specialization for this call, traced if necessary; None for an eager first step."""
        guards = self._guards
        try:
            # Other parts or types need a new trace; other memory of the same types, as after
            # optimizer.load_state_dict(), only needs another binding.
            fits = guards.has_same_parts() and guards.has_same_types()
            if fits and not guards.has_same_memory():
                fits = all(item.rebind() for item in self._specializations.values())
            if not fits:
                self._drop_specializations()
            key = batch_signature(batch, named), Guards(self._components).specialization_key()
            specialization = self._specializations.get(key)
            if (
                specialization is not None
                and specialization.artifact.has_foreign_state()
                and not specialization.rebind()
            ):
                # The optimizers hold state of another specialization, unfit for this one.
                self._drop_specializations()
                specialization = None
            if specialization is None or not specialization.branches_hold():
                if len(self._specializations) >= MAX_SPECIALIZATIONS:
                    del self._specializations[next(iter(self._specializations))]
                    warnings.warn(
                        f"a step was traced for more than {MAX_SPECIALIZATIONS} kinds of batches and modes; "
                        "the oldest is forgotten: pad batches to fewer shapes, "
                        "and keep counters out of modules",
                        FallbackWarning,
                        stacklevel=4,
                    )
                specialization = self._specializations[key] = make_specialization(
                    self._function, self._components, batch, named, self.backend, self.passes, self.capture
                )
        except UnknownStateError:
            self._drop_specializations()
            return None
        return specialization

    def _drop_specializations(self) -> None:
        self._specializations.clear()
        self._current = None
        self._guards = Guards(self._components)


def _unwrap_single(items: dict[str, Any]) -> Any:
    if len(items) == 1:
        return next(iter(items.values()))
    return {name.removesuffix("."): item for name, item in items.items()}

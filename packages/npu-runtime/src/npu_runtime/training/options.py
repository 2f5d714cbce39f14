"""Options of training steps: each is one field of a frozen class, whose docstring says what it does.

Public functions take them by keyword, as ``**options``: `accept` shows the fields in their signature, `take` makes
the classes of the keywords, and the typed dicts are the same fields for type checkers.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, TypedDict, TypeVar

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_ir.core.call_signature import did_you_mean
from npu_ir.plugins.backend import Backend
from npu_runtime.errors import CaptureError
from npu_runtime.executor.options import Passes
from npu_runtime.training.capture.cuda_graphs import GraphDevice
from npu_runtime.training.tracing.unsupported import scaler_error

CAPTURE_MODES = ("require", "prefer", "off")
_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepOptions:
    """What a training step computes, or what it trains.

    Attributes:
        name: The name of the graph; by default that of the model or the step function.
        accumulate: Split the batch along its first dimension into this many parts, as even as possible, and
            average their gradients, weighted by rows. 0-d results are averaged, others concatenated. Of a
            model only, like the next three.
        clip_grad_norm: Scale the gradients down to this total norm if they exceed it.
        clip_grad_value: Clamp each element of the gradients to this magnitude.
        autocast: The dtype of ``torch.autocast`` around model and loss, usually bfloat16. Gradients of
            float16 are not scaled.
        modules: The modules of a step function, where its closure does not refer to them.
        optimizers: Its optimizers, likewise.
        scaler: Refused with a fix: a ``GradScaler`` decides in Python, by the content of the gradients,
            whether to take a step.
    """

    name: str | None = None
    accumulate: int = 1
    clip_grad_norm: float | None = None
    clip_grad_value: float | None = None
    autocast: torch.dtype | None = None
    modules: Sequence[Module] | None = None
    optimizers: Sequence[Optimizer] | None = None
    scaler: torch.amp.GradScaler | None = None

    def require_no_scaler(self) -> None:
        """Refuse a ``GradScaler`` given as an option."""
        for item in dataclasses.fields(self):
            if isinstance(getattr(self, item.name), torch.amp.GradScaler):
                raise scaler_error(f"{item.name}= is a GradScaler")

    @property
    def are_for_model(self) -> bool:
        """True if an option is set that only a step of a model has."""
        numbers = (self.clip_grad_norm, self.clip_grad_value, self.autocast)
        return self.accumulate != 1 or any(item is not None for item in numbers)


class StepKeywords(TypedDict, total=False):
    """`StepOptions` as keywords."""

    name: str | None
    accumulate: int
    clip_grad_norm: float | None
    clip_grad_value: float | None
    autocast: torch.dtype | None
    modules: Sequence[Module] | None
    optimizers: Sequence[Optimizer] | None
    scaler: torch.amp.GradScaler | None


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CaptureOptions:
    """How a training step is compiled and captured.

    Attributes:
        backend: A name, a `Backend`, or several in order of preference; ATen runs the ops they refuse.
        passes: The name of a pipeline, or passes to run over the graph; None for none. ``"train"`` is
            ``"train-cpu"`` where ATen runs the step on a CPU.
        capture: ``"require"``: fail if the step cannot be captured. ``"prefer"``: then run the graph op by
            op, and report the reason. ``"off"``: always run it op by op.
        device: Where the step runs; by default the device of the weights.
        weights: Parameters, buffers and state of a graph, by name, updated in their own memory; other steps
            bring theirs. The optimizer takes over its state from the artifact with the first step that is
            taken.
        warmup_runs: The number of runs before the capture.
        warmup_sync: Wait for the device after each of these runs.
        validate: Run the capture check.
        trace: Record the call log during compilation; otherwise on first access.
        enforce_ops: Kinds of ops that the lowered graph must contain.
        generators: Further generators that the step draws from, besides PyTorch's default ones.
        graph_device: The device that records; by default CUDA where the step is on a CUDA device.

    Raises:
        CaptureError: There is no such capture mode.
    """

    backend: str | Backend | Sequence[str | Backend] = "aten"
    passes: Passes = "train"
    capture: str = "prefer"
    device: torch.device | str | None = None
    weights: Mapping[str, torch.Tensor] | None = None
    warmup_runs: int = 2
    warmup_sync: bool = True
    validate: bool = True
    trace: bool = True
    enforce_ops: Sequence[str] = ()
    generators: Sequence[torch.Generator] = ()
    graph_device: GraphDevice | None = None

    def __post_init__(self) -> None:
        if self.capture not in CAPTURE_MODES:
            raise CaptureError(
                f"there is no capture mode {self.capture!r}", fix=f"use one of {', '.join(CAPTURE_MODES)}"
            )


class CompileKeywords(StepKeywords, total=False):
    """`CaptureOptions` and `StepOptions` as keywords."""

    backend: str | Backend | Sequence[str | Backend]
    passes: Passes
    capture: str
    device: torch.device | str | None
    weights: Mapping[str, torch.Tensor] | None
    warmup_runs: int
    warmup_sync: bool
    validate: bool
    trace: bool
    enforce_ops: Sequence[str]
    generators: Sequence[torch.Generator]
    graph_device: GraphDevice | None


def accept(*kinds: type) -> Callable[[_Function], _Function]:
    """Decorate a function that takes the fields of these classes as ``**options``.

    Its signature then has each field as a keyword, with its default; `take` finds other keywords.
    """

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [item for item in signature.parameters.values() if item.kind is not Parameter.VAR_KEYWORD]
        added = [
            Parameter(item.name, Parameter.KEYWORD_ONLY, default=item.default, annotation=item.type)
            for kind in kinds
            for item in dataclasses.fields(kind)
        ]
        function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return function

    return decorate


def take(keywords: Mapping[str, Any], where: str, *kinds: type) -> list[Any]:
    """Return an object of each class, made of the keywords that are its fields.

    Raises:
        TypeError: A keyword is a field of none of them.
    """
    fields = [{item.name for item in dataclasses.fields(kind)} for kind in kinds]
    known = set[str]().union(*fields)
    for name in keywords:
        if name not in known:
            hint = did_you_mean(name, sorted(known))
            raise TypeError(f"{where}() got an unexpected keyword argument {name!r}{hint}")
    return [
        kind(**{name: value for name, value in keywords.items() if name in own})
        for kind, own in zip(kinds, fields, strict=True)
    ]

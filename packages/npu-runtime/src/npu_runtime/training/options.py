"""Options of training steps: each is a field of a frozen class, whose docstring says what it does.

Public functions take them as ``**options``: `accept` shows the fields in their signature, `take` makes
objects of the keywords, and the typed dicts are the same fields for type checkers.
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

from npu_ir.core.user_code import did_you_mean
from npu_runtime.training.tracing.unsupported import scaler_error

_Function = TypeVar("_Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class StepOptions:
    """Options of what a training step computes, and what it trains.

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


def accept(*kinds: type) -> Callable[[_Function], _Function]:
    """Decorate a function that takes the fields of these classes as ``**options``.

    Its signature then has each field as a keyword, with its default; `take` finds other keywords.
    """

    def decorate(function: _Function) -> _Function:
        signature = inspect.signature(function)
        own = [item for item in signature.parameters.values() if item.kind is not Parameter.VAR_KEYWORD]
        # `Unpack` is there for type checkers alone: with it, no annotation of the function can be evaluated.
        del function.__annotations__["options"]
        added = [
            Parameter(item.name, Parameter.KEYWORD_ONLY, default=item.default, annotation=item.type)
            for kind in kinds
            for item in dataclasses.fields(kind)
        ]
        function.__signature__ = signature.replace(parameters=[*own, *added])  # type: ignore[attr-defined]
        return function

    return decorate


def take(keywords: Mapping[str, Any], function: Callable[..., Any], *kinds: type) -> list[Any]:
    """Return an object of each class, made of the keywords of ``function`` that are its fields.

    Raises:
        TypeError: A keyword is a field of none of them.
    """
    fields = [{item.name for item in dataclasses.fields(kind)} for kind in kinds]
    known = set[str]().union(*fields)
    for name in keywords:
        if name not in known:
            hint = did_you_mean(name, inspect.signature(function).parameters)
            raise TypeError(f"{function.__name__}() got an unexpected keyword argument {name!r}{hint}")
    return [
        kind(**{name: value for name, value in keywords.items() if name in own})
        for kind, own in zip(kinds, fields, strict=True)
    ]

"""The options of a training step that change what it computes, or name what it trains."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_runtime.training.tracing.unsupported import scaler_error


@dataclass(frozen=True, slots=True, eq=False)
class StepOptions:
    """The options of `compile_ir`, `TrainStep` and their kin, as one object for the functions below them.

    Attributes:
        accumulate: As for `StepFunction`; of a model only, like the next three.
        clip_grad_norm: As for `StepFunction`.
        clip_grad_value: As for `StepFunction`.
        autocast: As for `StepFunction`.
        modules: The modules of a step function, where its closure does not refer to them.
        optimizers: Its optimizers, likewise.
        scaler: Refused: it decides in Python, by the content of the gradients, whether to take a step.
    """

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


NO_OPTIONS = StepOptions()

"""Optimizer state shared between a compiled step and the optimizers it was traced with."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch.optim import Optimizer

from npu_runtime.errors import CaptureError
from npu_runtime.training.tracing.optimizer_state import parameters_of
from npu_runtime.training.tracing.substitution import ParameterSubstitution
from npu_runtime.training.tracing.traced_step import TracedStep


class SharedState:
    """The optimizer state that a step mutates, as entries of the optimizers it was traced with.

    Only parameters that the step updates in their own memory have entries: a step on copies of a model must
    not change its optimizer.

    Args:
        traced: The step.
        weights: The tensors it is bound to, by name.

    Attributes:
        is_installed: Whether a step has been taken, so that the state is that of the optimizers.
    """

    def __init__(self, traced: TracedStep, weights: Mapping[str, torch.Tensor]) -> None:
        self._traced = traced
        self._entries: list[tuple[Optimizer, torch.Tensor, str, str, torch.Tensor]] = []
        self._optimizers = []
        keys: dict[str, list[str]] = {}
        for name in traced.state:
            owner, _, key = name.rpartition(".")
            keys.setdefault(owner, []).append(key)
        owners = traced.components.trained_names()
        for prefix, optimizer in traced.components.optimizers.items():
            own = [
                (owner, item)
                for owner, item in zip(owners[prefix], parameters_of(optimizer), strict=True)
                if owner not in weights or weights[owner].data_ptr() == item.data_ptr()
            ]
            for owner, item in own:
                for key in keys.get(owner, ()):
                    name = f"{owner}.{key}"
                    self._entries.append((optimizer, item, key, name, weights.get(name, traced.state[name])))
            if own:
                self._optimizers.append(optimizer)
        self.is_installed = False

    def install(self) -> None:
        """Make the state that of the optimizers, which save and continue from it: after the first step."""
        for optimizer in self._optimizers:
            # lr_scheduler warns if this is unset: it takes the optimizer's step not to have been called.
            optimizer._opt_called = True  # type: ignore[attr-defined]
        for optimizer, item, key, _, tensor in self._entries:
            optimizer.state[item][key] = tensor
        self.is_installed = True

    def is_replaced(self) -> bool:
        """Return whether the optimizers hold other tensors in place of this state.

        They come from a loaded checkpoint, or from eager steps.
        """
        return any(map(self._is_entry_replaced, self._entries))

    def current(self) -> dict[str, torch.Tensor]:
        """Return the tensors that the optimizers hold in place of this state, by name.

        Raises:
            CaptureError: One is missing, or of another shape, dtype or device.
        """
        current = ParameterSubstitution(self._traced.components).state
        for *_, name, tensor in self._entries:
            other = current.get(name)
            if other is None or not _has_same_type(other, tensor):
                raise CaptureError(
                    f"the optimizer has {'no ' if other is None else 'another kind of '}{name!r} now",
                    where=f"graph {self._traced.graph.name!r}",
                    fix="compile the step again; TrainStep does so by itself",
                )
        return {name: current[name] for *_, name, _ in self._entries}

    def _is_entry_replaced(self, entry: tuple[Optimizer, torch.Tensor, str, str, torch.Tensor]) -> bool:
        optimizer, item, key, _, tensor = entry
        now = optimizer.state[item].get(key) if item in optimizer.state else None
        return now is not tensor and (now is not None or self.is_installed)


def _has_same_type(left: torch.Tensor, right: torch.Tensor) -> bool:
    return (left.shape, left.dtype, left.device) == (right.shape, right.dtype, right.device)

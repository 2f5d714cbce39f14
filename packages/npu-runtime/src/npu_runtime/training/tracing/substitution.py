"""Modules and optimizers while their step is traced: what is traced stands in for their tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from npu_runtime._torch.tracing import swapped_weights
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.components import Subjects
from npu_runtime.training.tracing.optimizer_state import state_of
from npu_runtime.training.tracing.optimizers import traceable


class Originals:
    """What modules and optimizers consist of, by the names that a graph has for it.

    Args:
        subjects: The modules and optimizers.

    Attributes:
        weights: Parameters, buffers and state.
        state: The part of it that is state.
        numbers: The open hyperparameters.
        gradients: Stand for the gradients from before the step, by parameter; where nothing is optimized, nobody reads
            them.

    Raises:
        TracingError: The state is of a kind that a graph would not change; or an optimizer updates what is no parameter.
    """

    def __init__(self, subjects: Subjects) -> None:
        self.subjects = subjects
        self._owners = subjects.optimized()
        self._entries = {prefix: state_of(item) for prefix, item in subjects.optimizers.items()}
        self._require_single_keepers()
        self.state = {
            f"{owner}.{key}": tensor
            for prefix, entries in self._entries.items()
            for owner, item in zip(self._owners[prefix], entries, strict=True)
            for key, tensor in item.items()
        }
        self.weights: dict[str, torch.Tensor] = {**subjects.parameters(), **subjects.buffers(), **self.state}
        self.numbers = hyperparameters.numbers(subjects.optimizers)
        optimized = {key for names in self._owners.values() for key in names}
        self.gradients: dict[str, torch.Tensor] = {
            key: item
            for key, item in subjects.parameters().items()
            if item.requires_grad and key in optimized
        }

    def _require_single_keepers(self) -> None:
        keepers: dict[str, str] = {}
        for prefix, entries in self._entries.items():
            for owner, item in zip(self._owners[prefix], entries, strict=True):
                if item and keepers.setdefault(owner, prefix) != prefix:
                    raise TracingError(
                        f"two optimizers keep state of the parameter {owner!r}",
                        fix="let one of them have it; or take two steps, each with one optimizer",
                    )

    @contextlib.contextmanager
    def replaced(
        self,
        weights: Mapping[str, torch.Tensor],
        numbers: Mapping[str, Any],
        gradients: Mapping[str, torch.Tensor],
        see: Callable[[Mapping[str, torch.Tensor]], None],
    ) -> Iterator[None]:
        """Let modules and optimizers work on other tensors and numbers, by name.

        Args:
            weights: For each of `weights`.
            numbers: For each of `numbers`.
            gradients: What the parameters hold as ``grad`` at the beginning.
            see: Called before each step of an optimizer, with the gradients that it finds, by parameter.
        """
        parameters = {}
        for key, original in self.subjects.parameters().items():
            parameters[key] = weights[key].detach().requires_grad_(original.requires_grad)
            parameters[key].grad = gradients.get(key)
        given = {**parameters, **{key: weights[key] for key in self.subjects.buffers()}}
        with contextlib.ExitStack() as stack:
            for prefix, module in self.subjects.modules.items():
                own = (name for name, _ in (*module.named_parameters(), *module.named_buffers()))
                stack.enter_context(swapped_weights(module, {name: given[prefix + name] for name in own}))
            for prefix, optimizer in self.subjects.optimizers.items():
                names = self._owners[prefix]
                mine = [parameters[key] for key in names]
                state = [
                    {key: weights[f"{owner}.{key}"] for key in entries}
                    for owner, entries in zip(names, self._entries[prefix], strict=True)
                ]
                before = _seeing(names, mine, see)
                stack.enter_context(traceable(optimizer, prefix, mine, state, numbers, before))
            yield
            _write_replaced({key: weights[key] for key in self.subjects.buffers()}, self.subjects.buffers())


def _seeing(
    names: Sequence[str],
    parameters: Sequence[torch.Tensor],
    see: Callable[[Mapping[str, torch.Tensor]], None],
) -> Callable[[], None]:
    def before_step() -> None:
        pairs = zip(names, parameters, strict=True)
        see({key: item.grad for key, item in pairs if item.grad is not None})

    return before_step


def _write_replaced(before: Mapping[str, torch.Tensor], now: Mapping[str, torch.Tensor]) -> None:
    """Make ``self.buffer = new`` a write into the buffer."""
    for key, old in before.items():
        new = now.get(key, old)
        if new is old:
            continue
        if new.shape != old.shape or new.dtype != old.dtype:
            raise TracingError(
                f"{key} is {tuple(old.shape)} of {old.dtype}, and the step replaces it by {tuple(new.shape)} of "
                f"{new.dtype}",
                fix="give the buffer its final size and dtype from the start",
            )
        with torch.no_grad():
            old.copy_(new)

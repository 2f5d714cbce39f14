"""Substitution of the tensors of modules and optimizers by traced ones, while their step is traced."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch

from npu_runtime._torch.patches import swap_weights
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.components import TrainingComponents
from npu_runtime.training.tracing.optimizer_state import current_or_initial_state
from npu_runtime.training.tracing.optimizers import make_traceable


class ParameterSubstitution:
    """The tensors and numbers of training components by their names in a graph, and their substitution.

    Attributes:
        weights: Parameters, buffers and optimizer state.
        state: The optimizer state among the weights.
        numbers: The open hyperparameters.
        gradients: Placeholder gradients from before the step, by trained parameter: the parameters
            themselves, which have the same types. The trace shows whether the step reads them.

    Raises:
        TracingError: The state has entries that a graph would not change; two optimizers have state of one
            parameter; or an optimizer updates a tensor that is not a parameter of the modules.
    """

    def __init__(self, components: TrainingComponents) -> None:
        self.components = components
        self._owners = components.trained_names()
        self._entries = {
            prefix: current_or_initial_state(item) for prefix, item in components.optimizers.items()
        }
        self._require_single_owners()
        self.state = {
            f"{owner}.{key}": tensor
            for prefix, entries in self._entries.items()
            for owner, item in zip(self._owners[prefix], entries, strict=True)
            for key, tensor in item.items()
        }
        self.weights: dict[str, torch.Tensor] = {
            **components.parameters(),
            **components.buffers(),
            **self.state,
        }
        self.numbers = hyperparameters.open_numbers(components.optimizers)
        optimized = {key for names in self._owners.values() for key in names}
        self.gradients: dict[str, torch.Tensor] = {
            key: item
            for key, item in components.parameters().items()
            if item.requires_grad and key in optimized
        }

    def _require_single_owners(self) -> None:
        keepers: dict[str, str] = {}
        for prefix, entries in self._entries.items():
            for owner, item in zip(self._owners[prefix], entries, strict=True):
                if item and keepers.setdefault(owner, prefix) != prefix:
                    raise TracingError(
                        f"two optimizers keep state of the parameter {owner!r}",
                        fix="let one of them have it; or take two steps, each with one optimizer",
                    )

    @contextlib.contextmanager
    def substitute(
        self,
        weights: Mapping[str, torch.Tensor],
        numbers: Mapping[str, Any],
        gradients: Mapping[str, torch.Tensor],
        see: Callable[[Mapping[str, torch.Tensor]], None],
    ) -> Iterator[None]:
        """Replace the tensors and numbers of modules and optimizers, by name, for the block.

        Args:
            weights: The substitute of each of `weights`.
            numbers: The substitute of each of `numbers`.
            gradients: The ``grad`` of parameters at the beginning.
            see: Called before each step of an optimizer, with the current gradients by parameter.
        """
        parameters = {}
        for key, original in self.components.parameters().items():
            # detach() makes a leaf of autograd that shares the memory of its placeholder in the trace.
            parameters[key] = weights[key].detach().requires_grad_(original.requires_grad)
            parameters[key].grad = gradients.get(key)
        substitutes = {**parameters, **{key: weights[key] for key in self.components.buffers()}}
        with contextlib.ExitStack() as stack:
            for prefix, module in self.components.modules.items():
                own = (name for name, _ in (*module.named_parameters(), *module.named_buffers()))
                stack.enter_context(swap_weights(module, {name: substitutes[prefix + name] for name in own}))
            for prefix, optimizer in self.components.optimizers.items():
                names = self._owners[prefix]
                mine = [parameters[key] for key in names]
                state = [
                    {key: weights[f"{owner}.{key}"] for key in entries}
                    for owner, entries in zip(names, self._entries[prefix], strict=True)
                ]
                before = _gradient_observer(names, mine, see)
                stack.enter_context(make_traceable(optimizer, prefix, mine, state, numbers, before))
            yield
            _write_replaced_buffers(
                {key: weights[key] for key in self.components.buffers()}, self.components.buffers()
            )


def _gradient_observer(
    names: Sequence[str],
    parameters: Sequence[torch.Tensor],
    see: Callable[[Mapping[str, torch.Tensor]], None],
) -> Callable[[], None]:
    def before_step() -> None:
        pairs = zip(names, parameters, strict=True)
        see({key: item.grad for key, item in pairs if item.grad is not None})

    return before_step


def _write_replaced_buffers(before: Mapping[str, torch.Tensor], now: Mapping[str, torch.Tensor]) -> None:
    """Turn ``self.buffer = new`` into a write into the buffer: the graph updates buffers in place."""
    for key, old in before.items():
        new = now.get(key, old)
        if new is old:
            continue
        if new.shape != old.shape or new.dtype != old.dtype:
            raise TracingError(
                f"{key} is {tuple(old.shape)} of {old.dtype}, and the step replaces it by {tuple(new.shape)} "
                f"of {new.dtype}",
                fix="give the buffer its final size and dtype from the start",
            )
        with torch.no_grad():
            old.copy_(new)

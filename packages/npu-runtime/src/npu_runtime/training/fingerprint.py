"""Whether modules and optimizers are still what a step was traced for: asked at each call, so it has to be quick."""

from __future__ import annotations

import operator
from collections.abc import Hashable, Iterator
from typing import Any

import torch
from torch.nn import Module

from npu_runtime.training import hyperparameters
from npu_runtime.training.subjects import Subjects


class Fingerprint:
    """What modules and optimizers consist of at one moment.

    Args:
        subjects: The modules and optimizers.
    """

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects
        modules = [part for module in subjects.modules.values() for part in module.modules()]
        # The dicts in which modules keep what they consist of, with what is in them now.
        self._owners = [
            (owner, len(owner), list(owner.values())) for module in modules for owner in _owners(module)
        ]
        self._modules = modules
        self._tensors = [*subjects.parameters().values(), *subjects.buffers().values()]
        self._parameters = list(subjects.parameters().values())
        self._states = [(optimizer, optimizer.state) for optimizer in subjects.optimizers.values()]
        self._settings = [
            (group, key, value)
            for optimizer in subjects.optimizers.values()
            for group in optimizer.param_groups
            for key, value in group.items()
            if key != "params" and not hyperparameters.is_open(value)
        ]
        self._addresses = self._now()
        self._flags = self._flags_now()

    def is_valid(self) -> bool:
        """Whether nothing has changed at all."""
        return self.has_same_flags() and self.has_same_parts() and self.has_same_memory()

    def has_same_parts(self) -> bool:
        """Whether the modules consist of the same modules, parameters and buffers."""
        return all(
            len(owner) == count and all(map(operator.is_, owner.values(), items))
            for owner, count, items in self._owners
        )

    def has_same_memory(self) -> bool:
        """Whether parameters, buffers and the state of the optimizers lie where they lay."""
        return self._now() == self._addresses and all(
            optimizer.state is state for optimizer, state in self._states
        )

    def has_same_flags(self) -> bool:
        """Whether the same modules train, with the same settings, and the same parameters require gradients."""
        return self._flags_now() == self._flags and all(
            group[key] == value for group, key, value in self._settings
        )

    def flags(self) -> Hashable:
        """Return what a step is traced for besides the batch: modes, what requires gradients, settings."""
        settings = hyperparameters.settings(self._subjects.optimizers)
        return tuple(self._flags_now()), tuple((name, repr(value)) for name, value in settings.items())

    def _now(self) -> list[int]:
        return [tensor.data_ptr() for tensor in self._tensors]

    def _flags_now(self) -> list[Any]:
        return [
            *[module.training for module in self._modules],
            *[parameter.requires_grad for parameter in self._parameters],
            torch.is_autocast_enabled("cpu"),
            torch.is_autocast_enabled("cuda"),
        ]


def _owners(module: Module) -> Iterator[dict[str, Any]]:
    yield module._parameters
    yield module._buffers
    yield module._modules

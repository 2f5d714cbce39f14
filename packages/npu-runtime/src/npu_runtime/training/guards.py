"""Whether modules and optimizers are still what a step was traced for.

It is asked at each call, so each question is a few loops that run in C.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Hashable, Iterator
from typing import Any

import torch
from torch.nn import Module

from npu_runtime._torch.tracing import autocast_settings, is_autocast
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.components import Subjects

_PLAIN = (int, float, bool, str, type(None))
# What every module has, besides what its class gives it.
_STANDARD = frozenset(vars(Module()))
_HOOKS = operator.attrgetter("_backward_hooks")
_TRAINS = operator.attrgetter("training")
_REQUIRES_GRAD = operator.attrgetter("requires_grad")


class Fingerprint:
    """What modules and optimizers consist of at one moment.

    Args:
        subjects: The modules and optimizers.
    """

    def __init__(self, subjects: Subjects) -> None:
        self._subjects = subjects
        self._modules = [
            part for module in (*subjects.modules.values(), *subjects.watched) for part in module.modules()
        ]
        # The dicts in which modules keep what they consist of, and what is in them now.
        self._owners = [owner for module in self._modules for owner in _owners(module)]
        self._optimizers = list(subjects.optimizers.values())
        self._hooks = [hooks for item in (*self._modules, *self._optimizers) for hooks in _hooks(item)]
        self._attributes = list(map(vars, self._modules))
        # What a trace takes for what it is, and what is no number: a function, a tuple of sizes, a tensor.
        self._values = [
            (owner, key)
            for owner in self._attributes
            for key, value in owner.items()
            if key not in _STANDARD and (type(value) not in _PLAIN or key.startswith("_"))
        ]
        self._parameters = list(subjects.parameters().values())
        self._parts = self._parts_now()
        self._counts = list(map(len, self._attributes))
        self._tensors = [*self._parameters, *subjects.buffers().values()]
        self._addresses = self._addresses_now()
        self._types = self._types_now()
        self._states = self._states_now()
        self._optimized = self._optimized_now()
        self._settings = [
            (group, key, value)
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for key, value in group.items()
            if key != "params" and not hyperparameters.is_open(value)
        ]
        # Numbers of modules, which a trace takes for what they are: the probability of a dropout.
        self._places = [
            (vars(module), key)
            for module in self._modules
            for key, value in vars(module).items()
            if type(value) in _PLAIN and key != "training" and not key.startswith("_")
        ]
        self._numbers = self._numbers_now()
        self._flags = self._flags_now()

    def is_valid(self) -> bool:
        """Whether nothing has changed at all."""
        return self.has_same_flags() and self.has_same_parts() and self.has_same_memory()

    def has_same_parts(self) -> bool:
        """Whether the modules consist of the same modules, parameters and buffers, and the same are optimized."""
        return (
            _are_same(self._parts_now(), self._parts)
            and _are_same(self._optimized_now(), self._optimized)
            and list(map(len, self._attributes)) == self._counts
        )

    def has_same_types(self) -> bool:
        """Whether parameters and buffers have the shapes, dtypes and devices they had."""
        return self._types_now() == self._types

    def has_same_memory(self) -> bool:
        """Whether parameters, buffers, and the state and the groups of the optimizers lie where they lay."""
        return self._addresses_now() == self._addresses and _are_same(self._states_now(), self._states)

    def has_same_flags(self) -> bool:
        """Whether the same modules train, with the same settings, and the same parameters require gradients."""
        if self._flags_now() != self._flags:
            return False
        numbers = self._numbers_now()
        if not _are_same(numbers, self._numbers) and list(map(repr, numbers)) != list(
            map(repr, self._numbers)
        ):
            return False
        for group, key, value in self._settings:  # noqa: SIM110 - all() takes three times as long
            if group[key] != value:
                return False
        return True

    def flags(self) -> Hashable:
        """Return what a step is traced for besides the batch: modes, what requires gradients, settings."""
        settings = hyperparameters.settings(self._subjects.optimizers)
        described = tuple((name, repr(value)) for name, value in settings.items())
        numbers = tuple(map(repr, self._numbers_now()))
        return tuple(self._flags_now()), autocast_settings(), described, numbers

    def _parts_now(self) -> list[Any]:
        owners = itertools.chain(self._owners, filter(None, self._hooks))
        return [
            *itertools.chain.from_iterable(map(dict.values, owners)),
            *map(type, self._modules),
            *map(_HOOKS, self._parameters),
            *[owner.get(key) for owner, key in self._values],
        ]

    def _optimized_now(self) -> list[Any]:
        groups = [group["params"] for optimizer in self._optimizers for group in optimizer.param_groups]
        return list(itertools.chain.from_iterable(groups))

    def _states_now(self) -> list[Any]:
        entries = [item for optimizer in self._optimizers for item in optimizer.state.values()]
        # Loading gives an optimizer other groups, too: what was read of the old ones would never change again.
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        return [*itertools.chain.from_iterable(map(dict.values, entries)), *groups]

    def _types_now(self) -> list[Any]:
        return [(item.shape, item.stride(), item.dtype, item.device) for item in self._tensors]

    def _numbers_now(self) -> list[Any]:
        return [owner.get(key) for owner, key in self._places]

    def _addresses_now(self) -> list[int]:
        return list(map(torch.Tensor.data_ptr, self._tensors))

    def _flags_now(self) -> list[Any]:
        return [*map(_TRAINS, self._modules), *map(_REQUIRES_GRAD, self._parameters), _context()]


def _are_same(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(map(operator.is_, left, right))


def _context() -> Hashable:
    """Return what PyTorch computes differently by: settings of the process, or of a ``with`` around the call."""
    return torch.get_default_dtype(), autocast_settings() if is_autocast() else None


def _hooks(item: Any) -> Iterator[dict[Any, Any]]:
    if isinstance(item, Module):
        yield from (
            item._forward_hooks,
            item._forward_pre_hooks,
            item._backward_hooks,
            item._backward_pre_hooks,
        )
    else:
        yield from (item._optimizer_step_pre_hooks, item._optimizer_step_post_hooks)


def _owners(module: Module) -> Iterator[dict[str, Any]]:
    yield module._parameters
    yield module._buffers
    yield module._modules

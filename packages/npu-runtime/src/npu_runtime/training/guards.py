"""Guards of a specialization: checks that modules and optimizers are still those that a step was traced for.

They run at each call, so each is a comparison of flat lists by loops in C (``map``, ``chain``). Three kinds
differ in what a failure costs: other flags select another specialization, other memory needs a rebind, other
parts or types make every specialization stale.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Hashable, Iterator
from typing import Any

import torch
from torch.nn import Module

from npu_runtime._torch.tracing import autocast_settings, is_autocast_enabled
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.components import TrainingComponents

_BAKED_BY_VALUE = (int, float, bool, str, type(None))
# The attributes that `Module.__init__` sets: flags and owner dicts are compared separately, hooks too.
_STANDARD = frozenset(vars(Module()))
_HOOKS = operator.attrgetter("_backward_hooks")
_TRAINS = operator.attrgetter("training")
_REQUIRES_GRAD = operator.attrgetter("requires_grad")


class Guards:
    """The state of modules and optimizers at one moment, to be compared with their state at later calls.

    Args:
        components: The training components.
    """

    def __init__(self, components: TrainingComponents) -> None:
        self._components = components
        self._modules = [
            part
            for module in (*components.modules.values(), *components.stateless_modules)
            for part in module.modules()
        ]
        # The dicts in which modules register parameters, buffers and submodules show replaced entries.
        self._owners = [owner for module in self._modules for owner in _owner_dicts(module)]
        self._optimizers = list(components.optimizers.values())
        self._hooks = [hooks for item in (*self._modules, *self._optimizers) for hooks in _hook_dicts(item)]
        self._attributes = list(map(vars, self._modules))
        # Attributes that a trace bakes in by identity (functions, tuples of sizes, tensors), or private ones.
        self._baked_attributes = [
            (owner, key)
            for owner in self._attributes
            for key, value in owner.items()
            if key not in _STANDARD and (type(value) not in _BAKED_BY_VALUE or key.startswith("_"))
        ]
        self._parameters = list(components.parameters().values())
        self._parts = self._current_parts()
        self._counts = list(map(len, self._attributes))
        self._tensors = [*self._parameters, *components.buffers().values()]
        self._addresses = self._current_addresses()
        self._types = self._current_types()
        self._states = self._current_states()
        self._trained_parameters = self._current_trained_parameters()
        self._settings = [
            (group, key, value)
            for optimizer in self._optimizers
            for group in optimizer.param_groups
            for key, value in group.items()
            if key != "params" and not hyperparameters.is_open(value)
        ]
        # Public numbers and strings that a trace bakes in by value, such as the probability of a dropout.
        self._number_attributes = [
            (vars(module), key)
            for module in self._modules
            for key, value in vars(module).items()
            if type(value) in _BAKED_BY_VALUE and key != "training" and not key.startswith("_")
        ]
        self._numbers = self._current_numbers()
        self._flags = self._current_flags()

    def hold(self) -> bool:
        """Return whether all guards hold."""
        return self.has_same_flags() and self.has_same_parts() and self.has_same_memory()

    def has_same_parts(self) -> bool:
        """Return whether modules have the same parts, hooks and baked-in attributes.

        The parameters that optimizers train must also be the same.
        """
        return (
            _are_same(self._current_parts(), self._parts)
            and _are_same(self._current_trained_parameters(), self._trained_parameters)
            and list(map(len, self._attributes)) == self._counts  # an attribute was added or deleted
        )

    def has_same_types(self) -> bool:
        """Return whether parameters and buffers have the same shapes, strides, dtypes and devices."""
        return self._current_types() == self._types

    def has_same_memory(self) -> bool:
        """Return whether tensors have the same addresses, and optimizers the same state and groups."""
        return self._current_addresses() == self._addresses and _are_same(
            self._current_states(), self._states
        )

    def has_same_flags(self) -> bool:
        """Return whether modes, ``requires_grad``, numbers of modules and optimizer settings are the same.

        The default dtype and autocast count as modes.
        """
        if self._current_flags() != self._flags:
            return False
        numbers = self._current_numbers()
        # Identity first, which holds in nearly every call; repr() also takes a NaN for the same as itself.
        if not _are_same(numbers, self._numbers) and list(map(repr, numbers)) != list(
            map(repr, self._numbers)
        ):
            return False
        # A loop, since all() of a generator takes three times as long.
        for group, key, value in self._settings:  # noqa: SIM110
            if group[key] != value:
                return False
        return True

    def specialization_key(self) -> Hashable:
        """Return the key of a specialization besides the batch: modes, numbers of modules, settings."""
        settings = hyperparameters.settings(self._components.optimizers)
        described = tuple((name, repr(value)) for name, value in settings.items())
        numbers = tuple(map(repr, self._current_numbers()))
        return tuple(self._current_flags()), autocast_settings(), described, numbers

    def _current_parts(self) -> list[Any]:
        owners = itertools.chain(self._owners, filter(None, self._hooks))
        return [
            *itertools.chain.from_iterable(map(dict.values, owners)),
            *map(type, self._modules),
            *map(_HOOKS, self._parameters),
            *[owner.get(key) for owner, key in self._baked_attributes],
        ]

    def _current_trained_parameters(self) -> list[Any]:
        groups = [group["params"] for optimizer in self._optimizers for group in optimizer.param_groups]
        return list(itertools.chain.from_iterable(groups))

    def _current_states(self) -> list[Any]:
        entries = [item for optimizer in self._optimizers for item in optimizer.state.values()]
        # load_state_dict() replaces the groups, too: the `Reader` of a specialization would read stale ones.
        groups = [group for optimizer in self._optimizers for group in optimizer.param_groups]
        return [*itertools.chain.from_iterable(map(dict.values, entries)), *groups]

    def _current_types(self) -> list[Any]:
        return [(item.shape, item.stride(), item.dtype, item.device) for item in self._tensors]

    def _current_numbers(self) -> list[Any]:
        return [owner.get(key) for owner, key in self._number_attributes]

    def _current_addresses(self) -> list[int]:
        return list(map(torch.Tensor.data_ptr, self._tensors))

    def _current_flags(self) -> list[Any]:
        return [*map(_TRAINS, self._modules), *map(_REQUIRES_GRAD, self._parameters), _global_torch_state()]


def _are_same(left: list[Any], right: list[Any]) -> bool:
    return len(left) == len(right) and all(map(operator.is_, left, right))


def _global_torch_state() -> Hashable:
    """Return the global torch state that a trace depends on: default dtype, and autocast where it is on."""
    return torch.get_default_dtype(), autocast_settings() if is_autocast_enabled() else None


def _hook_dicts(item: Any) -> Iterator[dict[Any, Any]]:
    if isinstance(item, Module):
        yield from (
            item._forward_hooks,
            item._forward_pre_hooks,
            item._backward_hooks,
            item._backward_pre_hooks,
        )
    else:
        yield from (item._optimizer_step_pre_hooks, item._optimizer_step_post_hooks)


def _owner_dicts(module: Module) -> Iterator[dict[str, Any]]:
    yield module._parameters
    yield module._buffers
    yield module._modules

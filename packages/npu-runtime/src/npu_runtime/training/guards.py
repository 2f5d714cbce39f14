"""Guards of compiled steps: checks that modules and optimizers are still those that a step was traced for.

They run at each call, so each kind is one generated function, a chain of comparisons by identity. The kinds
differ in what a failure costs: other flags select another specialization, other memory needs a rebind, other
parts or types make every specialization stale.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Hashable, Iterator
from typing import Any

import torch
from torch.nn import Module
from torch.optim import Optimizer

from npu_runtime._torch.tracing import autocast_settings, is_autocast_enabled
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.components import TrainingComponents

_BAKED_BY_VALUE = (int, float, bool, str, type(None))
# The attributes that `Module.__init__` sets: flags and owner dicts are compared separately, hooks too.
_STANDARD = frozenset(vars(Module()))


class Guards:
    """The state of modules and optimizers at one moment, to be compared with their state at later calls.

    Args:
        components: The training components.

    Attributes:
        has_same_flags: Return whether modes, ``requires_grad``, numbers of modules and optimizer settings are
            the same; default dtype and autocast count as modes.
        has_same_parts: Return whether modules have the same parts, hooks and baked-in attributes, and the
            optimizers train the same parameters.
        has_same_memory: Return whether tensors have the same addresses, and optimizers the same state and
            groups.
    """

    def __init__(self, components: TrainingComponents) -> None:
        self._components = components
        self._modules = [
            part
            for module in (*components.modules.values(), *components.stateless_modules)
            for part in module.modules()
        ]
        self._optimizers = list(components.optimizers.values())
        self._parameters = list(components.parameters().values())
        self._tensors = [*self._parameters, *components.buffers().values()]
        self._types = self._current_types()
        self.has_same_flags = self._flag_conditions().compile()
        self.has_same_parts = self._part_conditions().compile()
        self.has_same_memory = self._memory_conditions().compile()

    def hold(self) -> bool:
        """Return whether all guards hold."""
        return self.has_same_flags() and self.has_same_parts() and self.has_same_memory()

    def has_same_types(self) -> bool:
        """Return whether parameters and buffers have the same shapes, strides, dtypes and devices."""
        return self._current_types() == self._types

    @functools.cached_property
    def specialization_key(self) -> Hashable:
        """The key of a specialization besides the batch: modes, numbers of modules, settings."""
        settings = hyperparameters.settings(self._components.optimizers)
        described = tuple((name, repr(value)) for name, value in settings.items())
        modes = *(item.training for item in self._modules), *(item.requires_grad for item in self._parameters)
        numbers = tuple(repr(owner[key]) for owner, key in self._number_attributes())
        return modes, torch.get_default_dtype(), autocast_settings(), described, numbers

    def _current_types(self) -> list[Any]:
        return [(item.shape, item.stride(), item.dtype, item.device) for item in self._tensors]

    def _number_attributes(self) -> Iterator[tuple[dict[str, Any], str]]:
        """Yield public numbers and strings that a trace bakes in by value, such as the rate of a dropout."""
        for module in self._modules:
            for key, value in vars(module).items():
                if type(value) in _BAKED_BY_VALUE and key != "training" and not key.startswith("_"):
                    yield vars(module), key

    def _flag_conditions(self) -> _Conditions:
        conditions = _Conditions()
        conditions.add("{}() is {}", torch.get_default_dtype, torch.get_default_dtype())
        if is_autocast_enabled():
            conditions.add("{}() == {}", autocast_settings, autocast_settings())
        else:
            conditions.add("not {}()", is_autocast_enabled)
        for module in self._modules:
            conditions.add("{}.training is {}", module, module.training)
        for parameter in self._parameters:
            conditions.add("{}.requires_grad is {}", parameter, parameter.requires_grad)
        for owner, key in self._number_attributes():
            # Identity holds in nearly every call; repr() also takes a NaN for the same as itself.
            conditions.add("({0}[{1}] is {2} or repr({0}[{1}]) == {3})", owner, key, owner[key], repr(owner[key]))
        for optimizer in self._optimizers:
            for group in optimizer.param_groups:
                for key, value in group.items():
                    if key != "params" and not hyperparameters.is_open(value):
                        conditions.add("({0}[{1}] is {2} or {0}[{1}] == {2})", group, key, value)
        return conditions

    def _part_conditions(self) -> _Conditions:
        conditions = _Conditions()
        for module in self._modules:
            conditions.add("type({}) is {}", module, type(module))
            conditions.add("len({}) == {}", vars(module), len(vars(module)))
            for owner in _owner_dicts(module):
                _require_same_items(conditions, owner)
            # Attributes that a trace bakes in by identity: functions, tuples of sizes, tensors, private ones.
            for key, value in vars(module).items():
                if key not in _STANDARD and (type(value) not in _BAKED_BY_VALUE or key.startswith("_")):
                    conditions.add("{}[{}] is {}", vars(module), key, value)
        for parameter in self._parameters:
            conditions.add("{}._backward_hooks is {}", parameter, parameter._backward_hooks)
        for optimizer in self._optimizers:
            for owner in (optimizer._optimizer_step_pre_hooks, optimizer._optimizer_step_post_hooks):
                _require_same_items(conditions, owner)
            for group in optimizer.param_groups:
                _require_same_elements(conditions, "{}['params']", group, group["params"])
        return conditions

    def _memory_conditions(self) -> _Conditions:
        conditions = _Conditions()
        for tensor in self._tensors:
            conditions.add("{}.data_ptr() == {}", tensor, tensor.data_ptr())
        for optimizer in self._optimizers:
            # load_state_dict() replaces the groups, too: a reader of hyperparameters would read stale ones.
            _require_same_elements(conditions, "{}.param_groups", optimizer, optimizer.param_groups)
            entries = list(optimizer.state.values())
            conditions.add("len({}.state) == {}", optimizer, len(entries))
            conditions.add("all(map({}, {}.state.values(), {}))", operator.is_, optimizer, entries)
            for entry in entries:
                for key, value in entry.items():
                    conditions.add("{}[{}] is {}", entry, key, value)
        return conditions


def _owner_dicts(module: Module) -> Iterator[dict[Any, Any]]:
    """Yield the dicts in which a module registers its parts and hooks: they show replaced entries."""
    yield from (module._parameters, module._buffers, module._modules)
    yield from (module._forward_hooks, module._forward_pre_hooks)
    yield from (module._backward_hooks, module._backward_pre_hooks)


def _require_same_items(conditions: _Conditions, owner: dict[Any, Any]) -> None:
    if not owner:
        conditions.add("not {}", owner)
        return
    conditions.add("len({}) == {}", owner, len(owner))
    for key, value in owner.items():
        conditions.add("{}[{}] is {}", owner, key, value)


def _require_same_elements(conditions: _Conditions, text: str, owner: Any, elements: list[Any]) -> None:
    conditions.add(f"len(items := {text}) == {{}}", owner, len(elements))
    for index, element in enumerate(elements):
        conditions.add("items[{}] is {}", index, element)


class _Conditions:
    """Conditions over objects, to be compiled into one function."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._names: dict[int, str] = {}
        self._objects: dict[str, Any] = {}

    def add(self, text: str, *items: Any) -> None:
        """Add a condition: an expression with a field for each object."""
        self._texts.append(text.format(*map(self._name, items)))

    def _name(self, item: Any) -> str:
        name = self._names.setdefault(id(item), f"o{len(self._names)}")
        self._objects[name] = item  # held: no other object may get its id
        return name

    def compile(self) -> Callable[[], bool]:
        """Return a function that returns whether all conditions hold; a key that is gone breaks one."""
        names = ", ".join(self._objects)
        text = "\n                and ".join(self._texts)
        source = (
            f"def bind({names}):\n    def hold():\n        try:\n            return (\n"
            f"                {text}\n            )\n"
            "        except KeyError:\n            return False\n\n    return hold\n"
        )
        space: dict[str, Any] = {}
        exec(source, space)  # noqa: S102 - the text was written above
        hold: Callable[[], bool] = space["bind"](**self._objects)
        return hold

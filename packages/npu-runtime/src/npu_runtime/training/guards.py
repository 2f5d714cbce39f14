"""Guards of compiled steps: checks that modules and optimizers are still those that a step was traced for.

They run at each call, so they are generated code: a chain of comparisons, most of them by identity. Three
kinds differ in what a failure costs: other flags select another specialization, other memory needs a rebind,
other parts or types make every specialization stale.
"""

from __future__ import annotations

import functools
import itertools
import math
import operator
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch.nn import Module
from torch.optim import Optimizer
from torch.utils.hooks import RemovableHandle

from npu_runtime._torch.registrations import global_module_hooks, global_step_hooks, has_replaced_step
from npu_runtime._torch.state import MODE_COUNTS, STATE_CHANGES, autocast_settings, has_default_torch_state
from npu_runtime._torch.tensors import make_tensor_guard
from npu_runtime.training.guard_conditions import Conditions, Entry, compile_conditions, write_all
from npu_runtime.training.tracing import hyperparameters
from npu_runtime.training.tracing.components import TrainingComponents

_BAKED_BY_VALUE = (int, float, bool, str, type(None))
# The dicts in which a module registers its parts, and its hooks; and those of the hooks of an optimizer.
_OWNERS = ("_parameters", "_buffers", "_modules")
_HOOKS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_STEP_HOOKS = ("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks")
# The public attributes of an optimizer that are compared in other ways.
_CHECKED = frozenset({"param_groups", "state", "step"})
# A module or an optimizer, and the name of one of these dicts.
_Place: TypeAlias = "tuple[Module | Optimizer, str]"
# The attributes that `Module.__init__` sets: flags and owner dicts are compared separately, hooks too.
_STANDARD = frozenset(vars(Module()))


class Guards:
    """The state of modules and optimizers at one moment, to be compared with their state at later calls.

    Args:
        components: The training components; their parameters have no hooks, which a step must not have.

    Attributes:
        in_default_state: Whether `has_default_torch_state`: wherever the guards hold, or nowhere.
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
        self.in_default_state = has_default_torch_state()
        self._flags, self._parts, self._memory = Conditions(), Conditions(), Conditions()
        self._add_modes()
        self._add_settings()
        self._add_registrations()
        self._add_modules()
        self._add_optimizers()
        self._add_memory()

    @functools.cached_property
    def hold(self) -> Callable[[], bool]:
        """Return whether all guards hold."""
        return compile_conditions(self._flags, self._parts, self._memory)

    def write(self, objects: dict[str, Any]) -> str:
        """Return the expression of `hold`, which may raise KeyError, and add the objects that it names."""
        return write_all(objects, self._flags, self._parts, self._memory)

    @functools.cached_property
    def has_same_parts(self) -> Callable[[], bool]:
        """Return whether modules have the same parts, hooks and baked-in attributes.

        The parameters that optimizers train must also be the same.
        """
        return compile_conditions(self._parts)

    @functools.cached_property
    def has_same_memory(self) -> Callable[[], bool]:
        """Return whether tensors have the same addresses, and optimizers the same state and groups."""
        return compile_conditions(self._memory)

    def has_same_types(self) -> bool:
        """Return whether parameters and buffers have the same shapes, strides, dtypes and devices."""
        return self._current_types() == self._types

    @functools.cached_property
    def specialization_key(self) -> Hashable:
        """The key of a specialization besides the batch: modes, numbers of modules, settings."""
        settings = hyperparameters.settings(self._components.optimizers)
        described = tuple((name, repr(value)) for name, value in settings.items())
        modes = (
            *(item.training for item in self._modules),
            *(item.requires_grad for item in self._parameters),
        )
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

    def _add_modes(self) -> None:
        flags = self._flags
        flags.add("{}() is {}", torch.get_default_dtype, torch.get_default_dtype())
        if self.in_default_state:
            # An autocast changes the dispatch keys of the tensors it applies to, which are compared below.
            changes = MODE_COUNTS if self._tensors else STATE_CHANGES
            flags.add(f"not ({' or '.join(['{}()'] * len(changes))})", *changes)
        else:
            flags.add("not {}()", has_default_torch_state)
            flags.add("{}() == {}", autocast_settings, autocast_settings())
        for module in self._modules:
            # In its dict, where it usually is: `Module.__getattr__` makes other reads slow.
            if "training" in vars(module):
                flags.add("{} is {}", Entry(vars(module), "training"), module.training)
            else:
                flags.add("{}.training is {}", module, module.training)
        if self._tensors:
            # In C for all at once: requires_grad, types, sizes and strides.
            sizes, strides = zip(*((item.shape, item.stride()) for item in self._tensors), strict=True)
            guard = make_tensor_guard(self._tensors, sizes, strides)
            flags.add("{}(*{})", guard, tuple(self._tensors))

    def _add_settings(self) -> None:
        for owner, key in self._number_attributes():
            # Identity holds in nearly every call; repr() also takes a NaN for the same as itself.
            values = owner[key], repr(owner[key])
            self._flags.add("({0} is {1} or repr({0}) == {2})", Entry(owner, key), *values)
        for group in itertools.chain.from_iterable(item.param_groups for item in self._optimizers):
            keys = [
                key for key, item in group.items() if key != "params" and not hyperparameters.is_open(item)
            ]
            # An open number that becomes a setting, as weight_decay=0 is, selects another specialization.
            for key in group.keys() - {"params", *keys}:
                entry = Entry(group, key)
                if type(group[key]) is float:
                    # The same number as before, in most calls.
                    text = "({0} is {1} or type({0}) is float and {2}({0}))"
                    self._flags.add(text, entry, group[key], math.isfinite)
                else:
                    self._flags.add("{}({})", hyperparameters.is_open, entry)
            if keys:
                read = operator.itemgetter(*keys)
                self._flags.add("{}({}) == {}", read, group, read(group))

    def _add_registrations(self) -> None:
        parts = self._parts
        owners: list[_Place] = [(item, name) for item in self._modules for name in _OWNERS]
        hooks: list[_Place] = [(item, name) for item in self._modules for name in _HOOKS]
        hooks += [(item, name) for item in self._optimizers for name in _STEP_HOOKS]
        # Every hook has a handle, and handles are numbered: few calls look for new hooks.
        common = [*global_module_hooks(), *global_step_hooks()]
        unhooked = _Unhooked(
            [pair for pair in hooks if not getattr(*pair)],
            [registered for registered in common if not registered],
            self._parameters,
        )
        parts.add("({0}.next_id == {1}.handle_id or {1}.holds())", RemovableHandle, unhooked)
        empty = [getattr(*pair) for pair in owners if not getattr(*pair)]
        if empty:
            parts.add("not any({})", tuple(empty))
        held = [pair for pair in (*owners, *hooks) if getattr(*pair)]
        for item, name in held:
            # Another dict in its place removes hooks, and so does `__setstate__` of a module.
            parts.add("{} is {}", Entry(vars(item), name), getattr(item, name))
        for registered in (*itertools.starmap(getattr, held), *filter(None, common)):
            parts.add(f"len({{}}) == {len(registered)}", registered)
            parts.add_items(registered, registered)

    def _add_modules(self) -> None:
        parts = self._parts
        for module in self._modules:
            parts.add("type({}) is {}", module, type(module))
            parts.add(f"len({{}}) == {len(vars(module))}", vars(module))  # an attribute was added or deleted
            # Attributes that a trace bakes in by identity: functions, tuples of sizes, tensors, private ones.
            baked = {
                key: item
                for key, item in vars(module).items()
                if key not in _STANDARD and (type(item) not in _BAKED_BY_VALUE or key.startswith("_"))
            }
            parts.add_items(vars(module), baked)
            # The content of tensors is baked in, too. Those made in inference mode do not count versions.
            for item in filter(torch.is_tensor, baked.values()):
                if not item.is_inference():
                    parts.add(f"{{}}._version == {item._version}", item)
                if type(item) is torch.Tensor and item.layout is torch.strided:
                    parts.add("{}() == {}", item.data_ptr, item.data_ptr())

    def _add_optimizers(self) -> None:
        parts = self._parts
        for optimizer in self._optimizers:
            parts.add("type({}) is {}", optimizer, type(optimizer))
            step = vars(optimizer).get("step")
            text = "({}('step') is {} or not {}({}))"
            parts.add(text, vars(optimizer).get, step, has_replaced_step, optimizer)
            # By place, not by group: a step names the numbers of groups by these.
            parts.add(f"len({{}}.param_groups) == {len(optimizer.param_groups)}", optimizer)
            for index, group in enumerate(optimizer.param_groups):
                parts.add_elements(f"{{}}.param_groups[{index}]['params']", optimizer, group["params"])
            if not type(optimizer).__module__.startswith("torch.optim"):
                # Its step may read its attributes, and entries of its groups that have defaults in code.
                public = {key: item for key, item in vars(optimizer).items() if not key.startswith("_")}
                parts.add_items(vars(optimizer), {key: public[key] for key in public.keys() - _CHECKED})
                for group in optimizer.param_groups:
                    parts.add(f"len({{}}) == {len(group)}", group)

    def _add_memory(self) -> None:
        memory = self._memory
        for tensor in self._tensors:
            memory.add("{}() == {}", tensor.data_ptr, tensor.data_ptr())
        for optimizer in self._optimizers:
            # load_state_dict() replaces the groups, too: a reader of hyperparameters would read stale ones.
            memory.add_elements("{}.param_groups", optimizer, optimizer.param_groups)
            if optimizer.state:
                memory.add_elements("[*{}.state.values()]", optimizer, list(optimizer.state.values()))
            else:
                memory.add("not {}.state", optimizer)
            for entries in optimizer.state.values():
                memory.add_items(entries, entries)
                for item in filter(torch.is_tensor, entries.values()):
                    memory.add("{}() == {}", item.data_ptr, item.data_ptr())


class _Unhooked:
    """The claim that dicts of hooks are empty and parameters have no hooks.

    Args:
        places: Where such dicts are.
        common: The dicts of all modules or optimizers.
        parameters: The parameters.

    Attributes:
        handle_id: The number of the next handle of a hook when the claim last held.
    """

    _hooks = operator.attrgetter("_backward_hooks", "_post_accumulate_grad_hooks")

    def __init__(
        self,
        places: Sequence[_Place],
        common: Sequence[Mapping[Any, Any]],
        parameters: Sequence[torch.Tensor],
    ) -> None:
        self._places = places
        self._common = common
        self._parameters = parameters
        self.handle_id = -1

    def holds(self) -> bool:
        """Return whether there are no hooks, and remember the next handle if so."""
        next_id = RemovableHandle.next_id
        owners = itertools.chain(itertools.starmap(getattr, self._places), self._common)
        if any(owners) or any(map(any, map(self._hooks, self._parameters))):
            return False
        self.handle_id = next_id
        return True

"""Steps of optimizers on lists of tensors as ops: functional, in place, and bound to fixed tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from npu_passes.ops.registration import register_in_place, register_without_gradient
from npu_passes.ops.training.optimizer_lists import (
    Group,
    groups_of,
    optional_list_error,
    require_disjoint,
    require_matching_lists,
)

Tensors: TypeAlias = "list[Tensor]"
_GRADS = 1  # place of the gradients, which are only read, among the lists


@dataclass(frozen=True, slots=True)
class ListOptimizer:
    """Optimizer whose step is one op on lists of tensors."""

    name: str  # the op, without namespace
    lists: tuple[str, ...]  # names of the lists: parameters, gradients, states
    steps: tuple[str, ...]  # names of the lists of step counters behind these: one, or none
    optional: str  # the state that is an empty list unless ``option`` is set
    option: str  # the number or flag that it is for
    numbers: str  # the numbers and flags after ``lr``, as in the schema
    changing: tuple[str, ...]  # those that change during training: ``tensor_numbers`` takes tensors for them
    step: Callable[..., None]  # takes the step of one group in place, with the numbers by keyword
    # Returns the step of one group without copies; None if there is no faster form of it.
    bind: Callable[[Group], Callable[..., None] | None]

    def bind_step(self, *lists: Tensors) -> Callable[..., None]:
        """Return a function of the numbers, by keyword, that takes a step in place on these tensors.

        Args:
            lists: As for the op. The tensors must keep their memory.

        Raises:
            PassError: The lists do not match, or a tensor that is written shares memory with another one.
        """
        self._require_lists(lists)
        self._require_disjoint(lists)
        groups = self._groups(lists)
        bound = self.bind(groups[0]) if len(groups) == 1 and groups[0].is_plain else None
        given, option = bool(lists[self.lists.index(self.optional)]), self.option

        def step(**numbers: Any) -> None:
            numbers = self._read(numbers)
            if groups and bool(numbers[option]) != given:
                self._require_option(lists, numbers)
            if bound is not None:
                bound(**numbers)
                return
            for group in groups:
                self._step_group(group, numbers)

        return step

    def register(self) -> None:
        """Register the op and its in-place form.

        Each takes numbers, a tensor as learning rate, or tensors for all numbers that change, which are for
        backends that read them from memory: PyTorch's kernels wait for the device to read them.
        """
        names = (*self.lists, *self.steps)
        letters = iter("abcdefgh")
        read = ", ".join(f"Tensor[] {name}" for name in names)
        written = ", ".join(
            f"Tensor[] {name}" if place == _GRADS else f"Tensor({next(letters)}!)[] {name}"
            for place, name in enumerate(names)
        )
        results = ", ".join(["Tensor[]"] * (len(names) - 1))
        numbers_in_memory = self.numbers
        for name in self.changing:
            numbers_in_memory = numbers_in_memory.replace(f"float {name},", f"Tensor {name},")
        for overload, given in (
            ("", f"float lr, {self.numbers}"),
            (".tensor_lr", f"Tensor lr, {self.numbers}"),
            (".tensor_numbers", f"Tensor lr, {numbers_in_memory}"),
        ):
            numbers = f"*, {given}"
            register_without_gradient(
                f"{self.name}{overload}", f"({read}, {numbers}) -> ({results})", self._take_copied, _fake
            )
            register_in_place(
                f"{self.name}_{overload}",
                f"({written}, {numbers}) -> ()",
                self._take_checked,
                getattr(torch.ops.npu, self.name),
                _written_tensors,
            )

    def _take_checked(self, *lists: Tensors, **numbers: Any) -> None:
        numbers = self._read(numbers)
        self._require_lists(lists)
        self._require_option(lists, numbers)
        self._require_disjoint(lists)
        self._take(lists, numbers)
        # The fused kernels do not increment versions for autograd (torch 2.13).
        increment_version(_written_tensors(*lists))

    def _take_copied(self, *lists: Tensors, **numbers: Any) -> tuple[Tensors, ...]:
        """Return new parameters and states after a step."""
        numbers = self._read(numbers)
        self._require_lists(lists)
        self._require_option(lists, numbers)
        copies = [
            items if place == _GRADS else [item.clone() for item in items]
            for place, items in enumerate(lists)
        ]
        self._take(copies, numbers)
        return tuple(_without_grads(copies))

    def _read(self, numbers: dict[str, Any]) -> dict[str, Any]:
        """Return the numbers; those that are tensors but for the learning rate are read."""
        if not isinstance(numbers[self.changing[0]], Tensor):
            return numbers
        return {name: item.item() if isinstance(item, Tensor) else item for name, item in numbers.items()}

    def _take(self, lists: Sequence[Tensors], numbers: dict[str, Any]) -> None:
        for group in self._groups(lists):
            self._step_group(group, numbers)

    def _step_group(self, group: Group, numbers: dict[str, Any]) -> None:
        group.load()
        self.step(group, **numbers)
        group.store()

    def _groups(self, lists: Sequence[Tensors]) -> list[Group]:
        count = len(self.lists)
        return groups_of(lists[:count], lists[count] if self.steps else [])

    def _require_lists(self, lists: Sequence[Tensors]) -> None:
        named = dict(zip(self.lists, lists, strict=False))
        if not named[self.optional]:
            del named[self.optional]
        require_matching_lists(f"npu::{self.name}", named, lists[len(self.lists)] if self.steps else None)

    def _require_option(self, lists: Sequence[Tensors], numbers: dict[str, Any]) -> None:
        states, value = lists[self.lists.index(self.optional)], numbers[self.option]
        if lists[0] and bool(states) != bool(value):
            reason = f"{self.option} is {value}"
            raise optional_list_error(f"npu::{self.name}", self.optional, states, reason)

    def _require_disjoint(self, lists: Sequence[Tensors]) -> None:
        named = dict(zip((*self.lists, *self.steps), lists, strict=True))
        grads = named.pop("grads")
        require_disjoint(f"npu::{self.name}", named, {"grads": grads})


def _without_grads(lists: Sequence[Tensors]) -> list[Tensors]:
    return [items for place, items in enumerate(lists) if place != _GRADS]


def _written_tensors(*lists: Tensors, **_numbers: Any) -> Tensors:
    return [item for items in _without_grads(lists) for item in items]


def _fake(*lists: Tensors, **_numbers: Any) -> tuple[Tensors, ...]:
    return tuple([torch.empty_like(item) for item in items] for items in _without_grads(lists))

"""Seeing what the call of a node does, by running it once on data of its types.

Nothing is known here of any op: which callable does the same as the operator, whether an output shares
memory with an input, and whether it is laid out as the graph states, are all observed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from npu_ir import OpNode, Value
from npu_ir.core.isolation import no_outside_influence
from npu_ir.core.types import Type
from npu_ir.ops.calls import Binding, Slot
from npu_ir.ops.effects import is_random
from npu_ir.ops.execution import is_of_type
from npu_ir.ops.schema import Op
from npu_runtime._torch import (
    OpOverload,
    below_autograd,
    quick_callables,
    quick_callables_in_place,
)
from npu_runtime.probing.out_variants import Call, Form, forms_of
from npu_runtime.probing.sample_inputs import ProbeData
from npu_runtime.probing.storage import (
    could_hold,
    is_at_start,
    is_inexact,
    is_laid_out,
    is_same,
    memory_key,
)


@dataclass(frozen=True, slots=True)
class Seen:
    """What was seen of one call.

    Attributes:
        kernel: Names the callable.
        function: The fastest callable that does what the operator does.
        in_place: One that leaves the same output in the memory of the first input, and its name; or None.
        shares: For each output the inputs, by number, that it shares memory with.
        is_laid_out: For each output whether its strides are those of its type.
        is_at_start: For each output whether it begins where its memory begins.
        forms: Callables that put the outputs into given memory, where they were looked for.
        is_certain: Whether it holds of memory, too; else only the callable is known, and ``shares`` is all that may be.
    """

    kernel: str
    function: Callable[..., Any]
    in_place: tuple[str, Callable[..., Any]] | None
    shares: tuple[frozenset[int], ...]
    is_laid_out: tuple[bool, ...]
    is_at_start: tuple[bool, ...]
    forms: tuple[Form, ...] = ()
    is_certain: bool = True

    @property
    def is_view(self) -> bool:
        """Whether every output shares memory with an input: an op that does not write only looks at it then."""
        return self.is_certain and bool(self.shares) and all(self.shares)

    def elsewhere(self, inputs: int) -> Seen:
        """Return what holds for inputs of other sizes and strides, too: the callable, nothing of memory."""
        unknown = (False,) * len(self.shares)
        every = (frozenset(range(inputs)),) * len(self.shares)
        return replace(
            self,
            in_place=None,
            shares=every,
            is_laid_out=unknown,
            is_at_start=unknown,
            forms=(),
            is_certain=False,
        )


class Prober:
    """Probes nodes; calls with the same arguments and types are probed once.

    Args:
        device: Where the data is made.
        known: The weights, and what the prologue made of them: they are read, not made up.
        given: What each call gives: it may require gradients.
        sizes: What to take for symbols.
        is_planned: Whether outputs are to be put into given memory: forms that do so are looked for.
    """

    def __init__(
        self,
        device: torch.device,
        known: Mapping[Value, Any],
        given: Collection[Value],
        sizes: Mapping[str, int],
        *,
        is_planned: bool = False,
    ) -> None:
        self.is_planned = is_planned
        self._device = device
        self._given = given
        self._sizes = sizes
        self._data = ProbeData(device, known, sizes)
        self._seen: dict[Any, Seen | None] = {}

    def seen(self, node: OpNode, op: Op, binding: Binding) -> Seen | None:
        """Return what the call of ``node`` does; None if that cannot be told.

        It cannot where the op fails on made-up data, where it returns something else than the graph states, or
        where the sizes of its outputs depend on data.
        """
        types = tuple(value.type for value in node.inputs)
        key = (
            node.op_type,
            types,
            tuple(value.type for value in node.outputs),
            node.operands,
            repr(node.attrs),
            tuple(value in self._given for value in node.inputs),
        )
        if key not in self._seen:
            self._seen[key] = self._probe(node, op, binding)
        return self._seen[key]

    def _probe(self, node: OpNode, op: Op, binding: Binding) -> Seen | None:
        types = [value.type for value in (*node.inputs, *node.outputs)]
        if any(type.substitute(self._sizes).symbols for type in types):
            return None
        same_random_numbers = (
            _random_numbers_kept(self._device) if is_random(node) else contextlib.nullcontext()
        )
        with no_outside_influence(self._device), same_random_numbers, below_autograd():
            try:
                seen = self._observed(node, op, binding)
            except Exception:  # made-up data may be none that the op takes: the node runs as the graph says
                return None
        is_any_size = any(type.symbols for type in types)
        return seen.elsewhere(len(node.inputs)) if seen is not None and is_any_size else seen

    def _observed(self, node: OpNode, op: Op, binding: Binding) -> Seen | None:
        data = self._data.inputs_of(node)
        function = op._op if isinstance(op, OpOverload) else op
        outputs = _outputs(function, binding, data, self._device)
        types = [value.type.substitute(self._sizes) for value in node.outputs]
        if not _are_of_types(outputs, types):
            return None
        is_dynamic = isinstance(op, OpOverload) and torch.Tag.dynamic_output_shape in op.tags
        if is_dynamic and not self._has_fixed_sizes(function, binding, data, types):
            return None
        shares = _shares(data, outputs)
        seen = Seen(
            kernel=f"torch.ops.{op}" if isinstance(op, OpOverload) else node.op_type,
            function=function,
            in_place=None,
            shares=shares,
            is_laid_out=tuple(map(is_laid_out, outputs, types)),
            is_at_start=tuple(is_at_start(output) for output in outputs),
        )
        if not any(shares) and _share_among_each_other(outputs):
            return None  # nothing tells who else holds memory that the op hands out twice
        if not self._shares_alike(node, binding, function, data, seen):
            seen = seen.elsewhere(len(data))
        if not isinstance(op, OpOverload):
            return seen
        seen = replace(seen, forms=self._forms(node, op, binding, data, seen))
        if is_random(node):
            return seen
        if not self._is_laid_out_alike(node, binding, function, data, outputs):
            seen = seen.elsewhere(len(data))
        seen = self._quickest(seen, op, binding, data, outputs)
        if not any(seen.is_laid_out):
            return seen
        return replace(seen, in_place=self._in_place(node, op, binding, data, outputs))

    def _has_fixed_sizes(
        self, function: Callable[..., Any], binding: Binding, data: list[Any], types: Sequence[Type]
    ) -> bool:
        """Whether sizes do not depend on data (those of masks do, of indices not): other data gives other ones."""
        zeros = [torch.zeros_like(item) if isinstance(item, torch.Tensor) else item for item in data]
        return _are_of_types(_outputs(function, binding, zeros, self._device), types)

    def _quickest(
        self, seen: Seen, op: OpOverload, binding: Binding, data: list[Any], outputs: Sequence[Any]
    ) -> Seen:
        """Return what was seen, with the quickest callable that does the same."""
        for kernel, function in quick_callables(op):
            if self._does_the_same(function, binding, data, outputs):
                return replace(seen, kernel=kernel, function=function)
        return seen

    def _forms(
        self, node: OpNode, op: OpOverload, binding: Binding, data: list[Any], seen: Seen
    ) -> tuple[Form, ...]:
        """Return what puts the outputs into given memory, where that was asked for."""
        if not self.is_planned or any(seen.shares) or not all(seen.is_laid_out):
            return ()
        return forms_of(Call(op, binding, data, self._device, draws=is_random(node)))

    def _is_laid_out_alike(
        self,
        node: OpNode,
        binding: Binding,
        function: Callable[..., Any],
        data: list[Any],
        outputs: Sequence[Any],
    ) -> bool:
        """Whether the strides stay the same where arguments require gradients: attention takes another kernel then."""
        pairs = list(zip(data, node.inputs, strict=True))
        given = [item if value in self._given and is_inexact(item) else None for item, value in pairs]
        if all(item is None for item in given):
            return True
        requiring = [
            old if new is None else new.detach().requires_grad_()
            for new, old in zip(given, data, strict=True)
        ]
        again = _outputs(function, binding, requiring, self._device)
        tensors = [pair for pair in zip(again, outputs, strict=True) if isinstance(pair[0], torch.Tensor)]
        return all(new.layout is not torch.strided or new.stride() == old.stride() for new, old in tensors)

    def _shares_alike(
        self, node: OpNode, binding: Binding, function: Callable[..., Any], data: list[Any], seen: Seen
    ) -> bool:
        """Whether no number changes what memory outputs have: dropout of probability 0 returns its input."""
        for other in self._data.with_other_numbers(node, data):
            try:
                outputs = _outputs(function, binding, other, self._device)
            except Exception:  # a number that the op does not take
                continue
            types = [value.type.substitute(self._sizes) for value in node.outputs]
            if (
                _shares(other, outputs) != seen.shares
                or tuple(map(is_laid_out, outputs, types)) != seen.is_laid_out
                or tuple(map(is_at_start, outputs)) != seen.is_at_start
            ):
                return False
        return True

    def _does_the_same(
        self, function: Callable[..., Any], binding: Binding, data: list[Any], wanted: Sequence[Any]
    ) -> bool:
        """Whether a callable returns the same types, strides and bits, or raises."""
        try:
            outputs = _outputs(function, binding, data, self._device)
        except Exception:  # it takes other arguments than the operator
            return False
        return len(outputs) == len(wanted) and all(map(is_same, outputs, wanted))

    def _in_place(
        self, node: OpNode, op: OpOverload, binding: Binding, data: list[Any], outputs: Sequence[Any]
    ) -> tuple[str, Callable[..., Any]] | None:
        """Return a callable that leaves the one output where the first input was."""
        if (
            len(outputs) != 1
            or binding.positional[:1] != (Slot(0),)
            or not could_hold(data, outputs[0], node)
        ):
            return None
        for kernel, function in quick_callables_in_place(op):
            overwritten = [data[0].clone(), *data[1:]]
            try:
                found = _outputs(function, binding, overwritten, self._device)
            except Exception:  # it takes other arguments than the operator
                continue
            if found[0] is overwritten[0] and is_same(found[0], outputs[0]):
                return kernel, function
        return None


def _are_of_types(outputs: Sequence[Any], types: Sequence[Type]) -> bool:
    return len(outputs) == len(types) and all(map(is_of_type, outputs, types))


def _shares(data: Sequence[Any], outputs: Sequence[Any]) -> tuple[frozenset[int], ...]:
    places: dict[Any, set[int]] = {}
    for index, item in enumerate(data):
        places.setdefault(memory_key(item), set()).add(index)
    places.pop(None, None)
    return tuple(frozenset(places.get(memory_key(output), ())) for output in outputs)


def _share_among_each_other(outputs: Sequence[Any]) -> bool:
    keys = [key for key in map(memory_key, outputs) if key is not None]
    return len(set(keys)) < len(keys)


def _random_numbers_kept(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Return a context behind which the next random numbers are those that would have come next before it."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _outputs(
    function: Callable[..., Any], binding: Binding, inputs: Sequence[Any], device: torch.device
) -> list[Any]:
    args, kwargs = binding.arguments(inputs, device)
    return list(_flat(function(*args, **kwargs)))


def _flat(result: Any) -> Iterator[Any]:
    if isinstance(result, (tuple, list)):
        for part in result:
            yield from _flat(part)
    else:
        yield result

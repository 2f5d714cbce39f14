"""Op probe: the call traits of a node, observed by running it once on sample inputs of its types.

There is no per-op knowledge here. The fastest equivalent callable, aliasing between outputs and inputs, and
the strides of outputs are all observed. A trait is trusted only if it does not change with the properties
of the inputs that a later call may vary: numbers, and whether gradients are required. With symbolic sizes,
only the callable is kept.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from npu_ir import OpNode, TensorType, Value
from npu_ir.core.isolation import isolated_torch_state
from npu_ir.core.types import Type
from npu_ir.ops.calls import Binding
from npu_ir.ops.effects import is_random, returns_uninitialized
from npu_ir.ops.execution import flatten_results, is_of_type
from npu_ir.ops.schema import Op
from npu_runtime._torch.fast_calls import fast_callables
from npu_runtime._torch.ops import OpOverload
from npu_runtime._torch.state import below_autograd_with
from npu_runtime.probing.call_traits import CallTraits
from npu_runtime.probing.out_variants import ObservedCall, find_in_place, find_out_variants
from npu_runtime.probing.sample_inputs import SampleInputs
from npu_runtime.probing.storage import (
    has_stated_strides,
    is_bitwise_equal,
    is_inexact,
    memory_keys,
    starts_storage,
)
from npu_runtime.probing.trait_records import Record, record_traits, restore_traits


class OpProbe:
    """Observer of call traits; calls with the same arguments and types are probed once.

    Args:
        device: The device of the sample inputs.
        known: Weights and prologue outputs, used as they are.
        graph_inputs: The inputs of the graph: their tensors may require gradients.
        sizes: The values of symbols.
        is_planned: Whether to search for out-variants, which a planned program needs.
        memo: Records of call traits from before, by the digest of a call; extended by those observed here.
    """

    def __init__(
        self,
        device: torch.device,
        known: Mapping[Value, Any],
        graph_inputs: Collection[Value],
        sizes: Mapping[str, int],
        *,
        is_planned: bool = False,
        memo: dict[str, Record | None] | None = None,
    ) -> None:
        self.is_planned = is_planned
        self._memo = memo
        self._device = device
        self._graph_inputs = graph_inputs
        self._sizes = sizes
        self._data = SampleInputs(device, known, sizes)
        self._cache: dict[Any, CallTraits | None] = {}

    def observe(self, node: OpNode, op: Op, binding: Binding) -> CallTraits | None:
        """Return the call traits of ``node``; None if they cannot be observed.

        That is the case if the op fails on sample inputs, if it returns other types than the graph states,
        or if the sizes of its outputs depend on data.
        """
        types = tuple(value.type for value in node.inputs)
        # Attributes may hold lists, which are not hashable: they are compared as text.
        key = (
            node.op_type,
            types,
            tuple(value.type for value in node.outputs),
            node.operands,
            repr(node.attrs),
            tuple(value in self._graph_inputs for value in node.inputs),
        )
        if key not in self._cache:
            self._cache[key] = self._recall(repr(key), node, op, binding)
        return self._cache[key]

    def _recall(self, key: str, node: OpNode, op: Op, binding: Binding) -> CallTraits | None:
        """Return the call traits of the memo, or those that a probe observes."""
        if self._memo is None:
            return self._probe(node, op, binding)
        digest = hashlib.sha256(key.encode()).hexdigest()
        if digest in self._memo:
            known = self._memo[digest]
            return None if known is None else restore_traits(known, node, op, binding, self._device)
        traits = self._probe(node, op, binding)
        record = None if traits is None else record_traits(traits, node, op, binding, self._device)
        if traits is None or record is not None:
            self._memo[digest] = record
        return traits

    def _probe(self, node: OpNode, op: Op, binding: Binding) -> CallTraits | None:
        types = [value.type for value in (*node.inputs, *node.outputs)]
        if any(type.substitute(self._sizes).symbols for type in types):
            return None
        same_random_numbers = (
            _preserved_random_state(self._device) if is_random(node) else contextlib.nullcontext()
        )
        # In the same state as a call: no modes, no autocast, below autograd.
        outside_autograd = below_autograd_with(item.layout for item in types if isinstance(item, TensorType))
        with isolated_torch_state(self._device), same_random_numbers, outside_autograd():
            try:
                traits = self._run_probe(node, op, binding)
            except Exception:  # the op may reject sample inputs: the node then runs unoptimized
                return None
        is_any_size = any(type.symbols for type in types)
        return (
            traits.without_memory_traits(len(node.inputs)) if traits is not None and is_any_size else traits
        )

    def _run_probe(self, node: OpNode, op: Op, binding: Binding) -> CallTraits | None:
        data = self._data.sample_inputs(node)
        function = op._op if isinstance(op, OpOverload) else op
        outputs = _call(function, binding, data, self._device)
        types = [value.type.substitute(self._sizes) for value in node.outputs]
        if not _have_types(outputs, types):
            return None
        is_dynamic = isinstance(op, OpOverload) and torch.Tag.dynamic_output_shape in op.tags
        if is_dynamic and not self._has_fixed_sizes(function, binding, data, types):
            return None
        shares = _find_aliases(data, outputs)
        traits = CallTraits(
            kernel=f"torch.ops.{op}" if isinstance(op, OpOverload) else node.op_type,
            function=function,
            in_place=None,
            shares=shares,
            has_stated_strides=tuple(map(has_stated_strides, outputs, types)),
            starts_storage=tuple(starts_storage(output) for output in outputs),
        )
        if not any(shares) and _alias_each_other(outputs):
            return None  # outputs that alias each other: not expressible as traits
        if not self._keeps_traits_for_special_numbers(node, binding, function, data, traits):
            traits = traits.without_memory_traits(len(data))
        return self._with_callables(traits, node, op, binding, data, outputs)

    def _with_callables(
        self,
        traits: CallTraits,
        node: OpNode,
        op: Op,
        binding: Binding,
        data: list[Any],
        outputs: Sequence[Any],
    ) -> CallTraits:
        """Return the traits with callables that do the same: the fastest, and those that write in place."""
        if not isinstance(op, OpOverload):
            return traits
        if returns_uninitialized(node):  # its bits are equal or not by chance
            return self._with_fastest_callable(traits, op, binding, data, outputs, _has_same_type)
        call = ObservedCall(op, binding, data, outputs, self._device, draws_random=is_random(node))
        if self.is_planned and not any(traits.shares) and all(traits.has_stated_strides):
            traits = replace(traits, out_variants=find_out_variants(call))
        if call.draws_random:
            return traits
        if not self._keeps_strides_with_gradients(node, binding, traits.function, data, outputs):
            traits = traits.without_memory_traits(len(data))
        traits = self._with_fastest_callable(traits, op, binding, data, outputs, is_bitwise_equal)
        if self.is_planned or any(traits.shares) or not any(traits.has_stated_strides):
            return traits
        return replace(traits, in_place=find_in_place(call))

    def _has_fixed_sizes(
        self, function: Callable[..., Any], binding: Binding, data: list[Any], types: Sequence[Type]
    ) -> bool:
        """Return whether sizes are independent of data, by a run on zeros: true of indices, not of masks."""
        zeros = [torch.zeros_like(item) if isinstance(item, torch.Tensor) else item for item in data]
        return _have_types(_call(function, binding, zeros, self._device), types)

    def _with_fastest_callable(
        self,
        traits: CallTraits,
        op: OpOverload,
        binding: Binding,
        data: list[Any],
        outputs: Sequence[Any],
        is_same: Callable[[Any, Any], bool],
    ) -> CallTraits:
        """Return the traits with the fastest callable whose outputs are the same."""
        for kernel, function in fast_callables(op):
            if self._are_returned(outputs, function, binding, data, is_same):
                return replace(traits, kernel=kernel, function=function)
        return traits

    def _keeps_strides_with_gradients(
        self,
        node: OpNode,
        binding: Binding,
        function: Callable[..., Any],
        data: list[Any],
        outputs: Sequence[Any],
    ) -> bool:
        """Return whether strides stay the same with gradients: attention then uses another kernel."""
        pairs = list(zip(data, node.inputs, strict=True))
        differentiable = [
            item if value in self._graph_inputs and is_inexact(item) else None for item, value in pairs
        ]
        if all(item is None for item in differentiable):
            return True
        requiring = [
            old if new is None else new.detach().requires_grad_()
            for new, old in zip(differentiable, data, strict=True)
        ]
        again = _call(function, binding, requiring, self._device)
        tensors = [pair for pair in zip(again, outputs, strict=True) if isinstance(pair[0], torch.Tensor)]
        return all(new.layout is not torch.strided or new.stride() == old.stride() for new, old in tensors)

    def _keeps_traits_for_special_numbers(
        self,
        node: OpNode,
        binding: Binding,
        function: Callable[..., Any],
        data: list[Any],
        traits: CallTraits,
    ) -> bool:
        """Return whether no number changes the traits of memory: dropout with p=0 returns its input."""
        for other in self._data.with_special_numbers(node, data):
            try:
                outputs = _call(function, binding, other, self._device)
            except Exception:  # a number that the op rejects
                continue
            types = [value.type.substitute(self._sizes) for value in node.outputs]
            if (
                _find_aliases(other, outputs) != traits.shares
                or tuple(map(has_stated_strides, outputs, types)) != traits.has_stated_strides
                or tuple(map(starts_storage, outputs)) != traits.starts_storage
            ):
                return False
        return True

    def _are_returned(
        self,
        outputs: Sequence[Any],
        function: Callable[..., Any],
        binding: Binding,
        data: list[Any],
        is_same: Callable[[Any, Any], bool],
    ) -> bool:
        """Return whether a callable returns the same outputs."""
        try:
            returned = _call(function, binding, data, self._device)
        except Exception:  # its parameters differ from those of the operator
            return False
        return len(returned) == len(outputs) and all(map(is_same, returned, outputs))


def _has_same_type(left: Any, right: Any) -> bool:
    return isinstance(left, torch.Tensor) and TensorType.of(left) == TensorType.of(right)


def _have_types(outputs: Sequence[Any], types: Sequence[Type]) -> bool:
    return len(outputs) == len(types) and all(map(is_of_type, outputs, types))


def _find_aliases(data: Sequence[Any], outputs: Sequence[Any]) -> tuple[frozenset[int], ...]:
    """Return for each output the indices of the inputs with which it shares memory."""
    keys = [memory_keys(item) for item in data]
    return tuple(
        frozenset(index for index, given in enumerate(keys) if not given.isdisjoint(memory_keys(output)))
        for output in outputs
    )


def _alias_each_other(outputs: Sequence[Any]) -> bool:
    keys = [memory_keys(output) for output in outputs]
    return len(frozenset().union(*keys)) < sum(map(len, keys))


def _preserved_random_state(device: torch.device) -> contextlib.AbstractContextManager[None]:
    """Return a context manager that restores the state of the random number generators on exit."""
    return torch.random.fork_rng(devices=[device] if device.type == "cuda" else [])


def _call(
    function: Callable[..., Any], binding: Binding, inputs: Sequence[Any], device: torch.device
) -> list[Any]:
    args, kwargs = binding.arguments(inputs, device)
    return flatten_results(function(*args, **kwargs))

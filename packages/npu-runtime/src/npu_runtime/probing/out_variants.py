"""Out-variants of an op: callables that write its outputs into given tensors, found by trial runs.

There are three kinds, and mixtures: one takes the tensor by keyword (``mm(a, b, out=c)``), one overwrites
an operand (``add_(a, b)``, ``_foreach_add_([a], [b])``, ``npu.adam_step_``), one fills a tensor regardless
of its content (``bernoulli_(a, 0.5)``). Candidates come from the schemas that PyTorch registers; a
candidate is accepted only if a trial run writes the bits that the op returns and leaves the random number
generator in the same state.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from npu_ir.core.storage import copy_with_strides, element_span
from npu_ir.ops.calls import Binding, Slot
from npu_ir.ops.execution import flatten_results
from npu_runtime._torch.fast_calls import fast_callables, fast_callables_in_place
from npu_runtime._torch.ops import OpOverload
from npu_runtime._torch.state import random_state
from npu_runtime.probing.storage import is_bitwise_equal

# These return a copy of their first argument, as ``copy_`` writes it.
_COPIES = frozenset({"aten::clone", "aten::_to_copy"})
_SEED = 1


@dataclass(frozen=True, slots=True)
class OutVariant:
    """An out-variant: a callable that writes the outputs of a call into given tensors.

    Attributes:
        kernel: The name of the callable.
        function: The callable.
        binding: Its arguments: slots for the inputs of the node, then for its output tensors.
        overwritten_inputs: For each output the input whose content its tensor must hold before the call;
            None if its content is ignored.
        reusable_inputs: Inputs whose memory the output may reuse although they are read: the op is
            elementwise.
    """

    kernel: str
    function: Callable[..., Any]
    binding: Binding
    overwritten_inputs: tuple[int | None, ...]
    reusable_inputs: frozenset[int] = frozenset()

    def with_reusable_inputs(self, inputs: Iterable[int]) -> OutVariant:
        """Return the out-variant with other ``reusable_inputs``."""
        return replace(self, reusable_inputs=frozenset(inputs))


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """An observed call, the reference that out-variants are compared with.

    Attributes:
        op: The operator.
        binding: Its arguments; slots stand for ``inputs``.
        inputs: Sample inputs.
        outputs: The outputs; of a random op, those of another run.
        device: Their device.
        draws_random: Whether the op draws random numbers.
    """

    op: OpOverload
    binding: Binding
    inputs: Sequence[Any]
    outputs: Sequence[Any]
    device: torch.device
    draws_random: bool


def find_out_variants(call: ObservedCall) -> tuple[OutVariant, ...]:
    """Return the out-variants that reproduce a call and its use of random numbers; the fastest first."""
    trial = _Trial(call)
    if not trial.expected or not all(map(_is_dense, trial.expected)):
        return ()
    found: list[OutVariant] = []
    # Later candidates of the same kind are slower and call the same kernel: skipped, too.
    wrong: list[OutVariant] = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Resizing an out= tensor is deprecated in PyTorch: it warns at each run, and is to become an error.
        warnings.filterwarnings("error", message="An output with one or more elements was resized")
        for out_variant in list_candidates(call):
            if any(_is_same_kind(out_variant, other) for other in found + wrong):
                continue
            is_right = trial.matches(out_variant)
            if is_right:
                found.append(trial.with_reusable_inputs(out_variant))
            elif is_right is False:
                wrong.append(out_variant)
    return tuple(found)


def find_in_place(call: ObservedCall) -> tuple[str, Callable[..., Any]] | None:
    """Return the fastest callable, and its name, that writes the only output into the first input."""
    if len(call.outputs) != 1 or call.binding.positional[:1] != (Slot(0),) or not _is_dense(call.outputs[0]):
        return None
    trial, memory = _Trial(call), {0: Slot(len(call.inputs))}
    candidates = fast_callables_in_place(call.op)
    return next(
        (
            (kernel, function)
            for kernel, function in candidates
            if trial.matches(OutVariant(kernel, function, _replace_slots(call, memory), (0,)))
        ),
        None,
    )


class _Trial:
    """Trial runs of out-variants against the expected outputs of a call."""

    def __init__(self, call: ObservedCall) -> None:
        self._call = call
        self.expected, self._state = call.outputs, None
        if call.draws_random:
            random_state(call.device, _SEED)
            args, kwargs = call.binding.arguments(call.inputs, call.device)
            self.expected = flatten_results(call.op._op(*args, **kwargs))
            self._state = random_state(call.device)

    def matches(self, out_variant: OutVariant) -> bool | None:
        """Return whether an out-variant reproduces the call; None if it does not accept these arguments."""
        inputs = self._call.inputs
        memory = [
            _make_sentinel(output) if source is None else copy_with_strides(inputs[source])
            for source, output in zip(out_variant.overwritten_inputs, self.expected, strict=True)
            if source is None or _has_same_layout(inputs[source], output)
        ]
        return self._run_matches(out_variant, inputs, memory) if len(memory) == len(self.expected) else None

    def with_reusable_inputs(self, out_variant: OutVariant) -> OutVariant:
        """Return an out-variant with ``reusable_inputs``, by trials of inputs of the output's layout."""
        call = self._call
        if (
            out_variant.overwritten_inputs != (None,)
            or call.draws_random
            or torch.Tag.pointwise not in call.op.tags
        ):
            return out_variant
        reusable = set()
        for index, item in enumerate(call.inputs):
            if _has_same_layout(item, self.expected[0]) and sum(item is other for other in call.inputs) == 1:
                memory = copy_with_strides(item)
                inputs = [*call.inputs[:index], memory, *call.inputs[index + 1 :]]
                if self._run_matches(out_variant, inputs, [memory]):
                    reusable.add(index)
        return replace(out_variant, reusable_inputs=frozenset(reusable))

    def _run_matches(
        self, out_variant: OutVariant, inputs: Sequence[Any], memory: Sequence[torch.Tensor]
    ) -> bool | None:
        call = self._call
        if call.draws_random:
            random_state(call.device, _SEED)
        addresses = [item.data_ptr() for item in memory]
        args, kwargs = out_variant.binding.arguments([*inputs, *memory], call.device)
        try:
            out_variant.function(*args, **kwargs)
        except UserWarning:  # it resizes the given tensor
            return False
        except Exception:  # noqa: BLE001 - its parameters differ from those of the operator
            return None
        return (
            [item.data_ptr() for item in memory] == addresses
            and all(map(is_bitwise_equal, memory, self.expected))
            and (self._state is None or torch.equal(random_state(call.device), self._state))
        )


def _is_same_kind(out_variant: OutVariant, other: OutVariant) -> bool:
    return [item is None for item in out_variant.overwritten_inputs] == [
        item is None for item in other.overwritten_inputs
    ]


def _is_dense(item: Any) -> bool:
    """Return whether an item is a strided tensor without gaps or overlaps: its memory can be planned."""
    is_strided = isinstance(item, torch.Tensor) and item.layout is torch.strided
    return is_strided and element_span(item.shape, item.stride()) == item.numel()


def _make_sentinel(like: torch.Tensor) -> torch.Tensor:
    """Return a tensor filled with a sentinel (NaN or 77) that would show up in results if it were read."""
    memory = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    is_inexact = like.dtype.is_floating_point or like.dtype.is_complex
    return memory.fill_(torch.nan if is_inexact else 77)


def _has_same_layout(left: Any, right: torch.Tensor) -> bool:
    return (
        isinstance(left, torch.Tensor)
        and left.layout is torch.strided
        and (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
    )


def list_candidates(call: ObservedCall) -> Iterator[OutVariant]:
    """Yield candidate out-variants of a call, always the same; the fastest of each kind first.

    Of inputs and outputs, only their numbers matter.
    """
    op, binding, inputs, count = call.op, call.binding, len(call.inputs), len(call.outputs)
    slots = [Slot(inputs + index) for index in range(count)]
    memory = slots[0] if count == 1 else slots
    # 1. The Python callables of the op, with out=.
    for kernel, function in fast_callables(op):
        yield OutVariant(kernel, function, _with_keywords(binding, {"out": memory}), (None,) * count)
    # 2. Overloads that write into arguments: out=, in-place, or both.
    for overload in _writing_overloads(op):
        names = [item.name for item in overload._schema.arguments if item.is_out]
        written = _written_inputs(overload, binding)
        if written is None or len(names) + len(written) != count:
            continue
        replaced = _replace_slots(call, dict(zip(written, slots[len(names) :], strict=True)))
        over: tuple[int | None, ...] = (*[None] * len(names), *written)
        if not names and not overload._schema.name.endswith("_functional"):
            for kernel, function in fast_callables_in_place(op):
                yield from _with_unread_outputs_first(
                    OutVariant(kernel, function, replaced, over), draws=call.draws_random
                )
        keywords = _with_keywords(replaced, dict(zip(names, slots, strict=False)))
        out_variant = OutVariant(f"torch.ops.{overload}", overload._op, keywords, over)
        yield from _with_unread_outputs_first(out_variant, draws=call.draws_random)
    # 3. Overloads with out= and more arguments, and copy_ for ops that copy.
    if count == 1:
        for overload in _wider_overloads(op):
            keywords = _with_keywords(_bind_by_keyword(binding, op, overload), {"out": memory})
            yield OutVariant(f"torch.ops.{overload}", overload._op, keywords, (None,))
    if op._schema.name in _COPIES and inputs:
        yield OutVariant("torch.Tensor.copy_", torch.Tensor.copy_, Binding((slots[0], Slot(0)), {}), (None,))


def _with_unread_outputs_first(out_variant: OutVariant, *, draws: bool) -> Iterator[OutVariant]:
    """Yield a candidate; for random ops, first a variant of it that ignores the content of its outputs."""
    if draws:
        # A schema does not say whether a written argument is also read: bernoulli_ does not read it.
        yield replace(out_variant, overwritten_inputs=(None,) * len(out_variant.overwritten_inputs))
    yield out_variant


def _writing_overloads(op: OpOverload) -> Iterator[OpOverload]:
    """Yield overloads with the parameters of an op that write into arguments: real kernels only."""
    name = op._schema.name.partition("::")[2]
    wanted = _arguments(op)
    packets = getattr(torch.ops, op.namespace)
    for packet in (name, f"{name}_", name.removesuffix("_functional")):
        overloads = getattr(packets, packet, None)
        for overload in (
            [] if overloads is None else (getattr(overloads, item) for item in overloads.overloads())
        ):
            is_generated = torch.Tag.generated in overload.tags  # code-generated: calls the op, then copies
            if not is_generated and overload is not op and _arguments(overload) == wanted:
                yield overload


def _wider_overloads(op: OpOverload) -> Iterator[OpOverload]:
    """Yield overloads with ``out`` that have additional parameters, each with a default or optional.

    ``sum.IntList_out`` sums all elements if ``dim`` is None, as ``sum`` does, which has no ``out`` kernel
    itself.
    """
    wanted = dict(_arguments(op))
    packet = getattr(getattr(torch.ops, op.namespace), op._schema.name.partition("::")[2])
    for overload in (getattr(packet, item) for item in packet.overloads()):
        arguments = overload._schema.arguments
        parameters = dict(_arguments(overload))
        more = [item for item in arguments if not item.is_out and item.name not in wanted]
        if (
            [item.name for item in arguments if item.is_out] == ["out"]
            and torch.Tag.generated not in overload.tags
            and more
            and wanted.items() <= parameters.items()
            and all(item.has_default_value() or str(item.type).startswith("Optional") for item in more)
        ):
            yield overload


def _bind_by_keyword(binding: Binding, op: OpOverload, overload: OpOverload) -> Binding:
    """Return a call of an op as one of a wider overload: by keyword, None for parameters without default."""
    names = [item.name for item in op._schema.arguments]
    given = {**dict(zip(names, binding.positional, strict=False)), **binding.keyword}
    missing = [item for item in overload._schema.arguments if not item.is_out and item.name not in given]
    nothing = {item.name: None for item in missing if not item.has_default_value()}
    return replace(binding, positional=(), keyword={**given, **nothing})


def _arguments(op: OpOverload) -> list[tuple[str, str]]:
    return [(item.name, str(item.type)) for item in op._schema.arguments if not item.is_out]


def _written_inputs(overload: OpOverload, binding: Binding) -> list[int] | None:
    """Return the inputs that an overload overwrites, in order; None if a written argument is not an input."""
    written: list[int] = []
    for position, item in enumerate(overload._schema.arguments):
        if item.is_out or item.alias_info is None or not item.alias_info.is_write:
            continue
        is_positional = position < len(binding.positional)
        template = binding.positional[position] if is_positional else binding.keyword.get(item.name)
        for part in template if isinstance(template, list) else [template]:
            if not isinstance(part, Slot):
                return None
            written.append(part.index)
    return written


def _with_keywords(binding: Binding, keywords: dict[str, Any]) -> Binding:
    return replace(binding, keyword={**binding.keyword, **keywords})


def _replace_slots(call: ObservedCall, slots: dict[int, Slot]) -> Binding:
    """Return the binding of a call with the slots of some inputs replaced."""
    inputs = [slots.get(index, Slot(index)) for index in range(len(call.inputs))]
    args, kwargs = call.binding.arguments(inputs, call.device)
    return replace(call.binding, positional=tuple(args), keyword=kwargs)

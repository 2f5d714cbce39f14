"""Forms of an op: callables that put its outputs into memory that is given to them, found by trying them.

Three kinds, and mixtures: one takes the memory by keyword (``mm(a, b, out=c)``), one overwrites what it reads
(``add_(a, b)``, ``_foreach_add_([a], [b])``, ``npu.adam_step_``), one fills memory whatever it holds
(``bernoulli_(a, 0.5)``). Which ops have which is read from the schemas PyTorch knows; that a form leaves the very bits
that the op returns is seen.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from npu_ir.ops.calls import Binding, Slot
from npu_ir.plugins.backend import copied
from npu_runtime._torch import OpOverload, quick_callables, quick_callables_in_place, random_state
from npu_runtime.probing.storage import extent, is_same

# What these return is their first argument, copied: what ``copy_`` does.
_COPIES = frozenset({"aten::clone", "aten::_to_copy"})
_SEED = 1


@dataclass(frozen=True, slots=True)
class Form:
    """A callable that writes the outputs of a call into given memory.

    Attributes:
        kernel: Names the callable.
        function: The callable.
        binding: Its arguments: slots for the inputs of the node, then for the memory of its outputs.
        over: For each output the input whose content its memory must hold before the call; None where it may hold
            anything.
        within: Inputs in whose memory the output may be put although they are read: the op works element by element.
    """

    kernel: str
    function: Callable[..., Any]
    binding: Binding
    over: tuple[int | None, ...]
    within: frozenset[int] = frozenset()


@dataclass(frozen=True, slots=True)
class Call:
    """A call that was seen: what forms are compared with.

    Attributes:
        op: What was called.
        binding: How.
        inputs: On what.
        device: Where.
        draws: Whether it draws random numbers.
    """

    op: OpOverload
    binding: Binding
    inputs: Sequence[Any]
    device: torch.device
    draws: bool

    def outputs(self) -> list[Any]:
        args, kwargs = self.binding.arguments(self.inputs, self.device)
        return _flat(self.op._op(*args, **kwargs))


def forms_of(call: Call) -> tuple[Form, ...]:
    """Return the forms that leave the same bits as a call, and as many random numbers; the quickest first."""
    trial = _Trial(call)
    if not trial.wanted or not all(map(_is_placed, trial.wanted)):
        return ()
    found: list[Form] = []
    wrong: list[Form] = []  # a slower one of the same kind calls the same kernel
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # A form that does so would warn at each run, and PyTorch is to refuse it some day.
        warnings.filterwarnings("error", message="An output with one or more elements was resized")
        for form in _candidates(call, len(trial.wanted)):
            if any(_is_alike(form, other) for other in found + wrong):
                continue
            is_right = trial.agrees(form)
            if is_right:
                found.append(trial.with_inputs_to_overwrite(form))
            elif is_right is False:
                wrong.append(form)
    return tuple(found)


class _Trial:
    """Compares forms with a call.

    Attributes:
        wanted: What the call returns.
    """

    def __init__(self, call: Call) -> None:
        self._call = call
        if call.draws:
            random_state(call.device, _SEED)
        self.wanted = call.outputs()
        self._state = random_state(call.device) if call.draws else None

    def agrees(self, form: Form) -> bool | None:
        """Return whether a form does the same; None where it takes other arguments."""
        inputs = self._call.inputs
        memory = [
            _filled(output) if source is None else copied(inputs[source])
            for source, output in zip(form.over, self.wanted, strict=True)
            if source is None or _same_layout(inputs[source], output)
        ]
        return self._agrees(form, inputs, memory) if len(memory) == len(self.wanted) else None

    def with_inputs_to_overwrite(self, form: Form) -> Form:
        """Return a form with the inputs in whose memory it may put its output."""
        call = self._call
        if form.over != (None,) or call.draws or torch.Tag.pointwise not in call.op.tags:
            return form
        found = set()
        for index, item in enumerate(call.inputs):
            if _same_layout(item, self.wanted[0]) and sum(item is other for other in call.inputs) == 1:
                memory = copied(item)
                inputs = [*call.inputs[:index], memory, *call.inputs[index + 1 :]]
                if self._agrees(form, inputs, [memory]):
                    found.add(index)
        return replace(form, within=frozenset(found))

    def _agrees(self, form: Form, inputs: Sequence[Any], memory: Sequence[torch.Tensor]) -> bool | None:
        call = self._call
        if call.draws:
            random_state(call.device, _SEED)
        places = [item.data_ptr() for item in memory]
        args, kwargs = form.binding.arguments([*inputs, *memory], call.device)
        try:
            form.function(*args, **kwargs)
        except UserWarning:  # it resizes what it is given
            return False
        except Exception:  # noqa: BLE001 - it takes other arguments than the operator
            return None
        return (
            [item.data_ptr() for item in memory] == places
            and all(map(is_same, memory, self.wanted))
            and (self._state is None or torch.equal(random_state(call.device), self._state))
        )


def _is_alike(form: Form, other: Form) -> bool:
    return [item is None for item in form.over] == [item is None for item in other.over]


def _is_placed(item: Any) -> bool:
    """Whether a tensor is one whose memory can be planned."""
    return isinstance(item, torch.Tensor) and item.layout is torch.strided and extent(item) == item.numel()


def _filled(like: torch.Tensor) -> torch.Tensor:
    """Return memory with content that would be seen in results."""
    memory = torch.empty_strided(like.shape, like.stride(), dtype=like.dtype, device=like.device)
    is_inexact = like.dtype.is_floating_point or like.dtype.is_complex
    return memory.fill_(torch.nan if is_inexact else 77)


def _same_layout(left: Any, right: torch.Tensor) -> bool:
    return (
        isinstance(left, torch.Tensor)
        and left.layout is torch.strided
        and (left.dtype, left.shape, left.stride()) == (right.dtype, right.shape, right.stride())
    )


def _candidates(call: Call, count: int) -> Iterator[Form]:
    """Yield what may be a form of a call with ``count`` outputs; the quickest of a kind first."""
    op, binding, inputs = call.op, call.binding, len(call.inputs)
    slots = [Slot(inputs + index) for index in range(count)]
    memory = slots[0] if count == 1 else slots
    for kernel, function in quick_callables(op):
        yield Form(kernel, function, _with_keywords(binding, {"out": memory}), (None,) * count)
    for overload in _writing_overloads(op):
        names = [item.name for item in overload._schema.arguments if item.is_out]
        written = _written(overload, binding)
        if written is None or len(names) + len(written) != count:
            continue
        replaced = _replaced(binding, dict(zip(written, slots[len(names) :], strict=True)))
        over: tuple[int | None, ...] = (*[None] * len(names), *written)
        if not names and not overload._schema.name.endswith("_functional"):
            for kernel, function in quick_callables_in_place(op):
                yield from _filling_first(Form(kernel, function, replaced, over), draws=call.draws)
        keywords = _with_keywords(replaced, dict(zip(names, slots, strict=False)))
        form = Form(f"torch.ops.{overload}", overload._op, keywords, over)
        yield from _filling_first(form, draws=call.draws)
    if count == 1:
        for overload in _wider_overloads(op):
            keywords = _with_keywords(_by_name(binding, op, overload), {"out": memory})
            yield Form(f"torch.ops.{overload}", overload._op, keywords, (None,))
    if op._schema.name in _COPIES and inputs:
        yield Form("torch.Tensor.copy_", torch.Tensor.copy_, Binding((slots[0], Slot(0)), {}), (None,))


def _filling_first(form: Form, *, draws: bool) -> Iterator[Form]:
    """Yield a form; before it one that is said not to read what it overwrites, where random numbers are drawn."""
    if draws:
        yield replace(form, over=(None,) * len(form.over))
    yield form


def _writing_overloads(op: OpOverload) -> Iterator[OpOverload]:
    """Yield the overloads that take the arguments of an op and write into some: real kernels only."""
    name = op._schema.name.partition("::")[2]
    wanted = _arguments(op)
    packets = getattr(torch.ops, op.namespace)
    for packet in (name, f"{name}_", name.removesuffix("_functional")):
        found = getattr(packets, packet, None)
        for overload in [] if found is None else (getattr(found, item) for item in found.overloads()):
            is_generated = torch.Tag.generated in overload.tags  # it calls the op, and copies
            if not is_generated and overload is not op and _arguments(overload) == wanted:
                yield overload


def _wider_overloads(op: OpOverload) -> Iterator[OpOverload]:
    """Yield the overloads that write their result into ``out`` and take more than an op does, where None is a value of that.

    ``sum.IntList_out`` adds up all elements where no axes are given, as ``sum`` does, which has no kernel for ``out``.
    """
    wanted = dict(_arguments(op))
    packet = getattr(getattr(torch.ops, op.namespace), op._schema.name.partition("::")[2])
    for overload in (getattr(packet, item) for item in packet.overloads()):
        arguments = overload._schema.arguments
        found = dict(_arguments(overload))
        more = [item for item in arguments if not item.is_out and item.name not in wanted]
        if (
            [item.name for item in arguments if item.is_out] == ["out"]
            and torch.Tag.generated not in overload.tags
            and more
            and wanted.items() <= found.items()
            and all(item.has_default_value() or str(item.type).startswith("Optional") for item in more)
        ):
            yield overload


def _by_name(binding: Binding, op: OpOverload, overload: OpOverload) -> Binding:
    """Return a call of an op as one of an overload that takes more: by name, and None for what has no default."""
    names = [item.name for item in op._schema.arguments]
    given = {**dict(zip(names, binding.positional, strict=False)), **binding.keyword}
    missing = [item for item in overload._schema.arguments if not item.is_out and item.name not in given]
    nothing = {item.name: None for item in missing if not item.has_default_value()}
    return replace(binding, positional=(), keyword={**given, **nothing})


def _arguments(op: OpOverload) -> list[tuple[str, str]]:
    return [(item.name, str(item.type)) for item in op._schema.arguments if not item.is_out]


def _written(overload: OpOverload, binding: Binding) -> list[int] | None:
    """Return the inputs that an overload overwrites, in its order; None where a written argument is no input."""
    written: list[int] = []
    for place, item in enumerate(overload._schema.arguments):
        if item.is_out or item.alias_info is None or not item.alias_info.is_write:
            continue
        is_positional = place < len(binding.positional)
        template = binding.positional[place] if is_positional else binding.keyword.get(item.name)
        for part in template if isinstance(template, list) else [template]:
            if not isinstance(part, Slot):
                return None
            written.append(part.index)
    return written


def _with_keywords(binding: Binding, keywords: dict[str, Any]) -> Binding:
    return replace(binding, keyword={**binding.keyword, **keywords})


def _replaced(binding: Binding, slots: dict[int, Slot]) -> Binding:
    """Return a binding in which other slots stand for some inputs."""

    def other(item: Any) -> Any:
        if type(item) is list:
            return [other(part) for part in item]
        return slots.get(item.index, item) if isinstance(item, Slot) else item

    keyword = {name: other(item) for name, item in binding.keyword.items()}
    return replace(binding, positional=tuple(map(other, binding.positional)), keyword=keyword)


def _flat(result: Any) -> list[Any]:
    if isinstance(result, (tuple, list)):
        return [leaf for part in result for leaf in _flat(part)]
    return [result]

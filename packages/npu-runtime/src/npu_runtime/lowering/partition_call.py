"""Calls of a partition that a backend has prepared: inputs in their stated strides, outputs checked."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from npu_ir import TensorType
from npu_ir.core.storage import copy_memory, copy_with_strides
from npu_ir.core.types import Type
from npu_ir.errors import BackendError
from npu_ir.ops.execution import describe, is_of_type
from npu_ir.plugins.backend import Backend
from npu_runtime._torch.state import below_autograd
from npu_runtime.probing.storage import with_stated_strides


@dataclass(frozen=True, slots=True)
class _Layout:
    """Dtype, shape and strides of a type, as tensors report theirs: quick to compare."""

    dtype: torch.dtype
    sizes: tuple[int, ...]
    strides: tuple[int, ...]


def _static_layout(type: Type) -> _Layout | None:
    """Return the layout of a type; None for numbers, symbolic sizes, and tensors without strides."""
    if not isinstance(type, TensorType) or type.symbols or type.layout is not torch.strided:
        return None
    return _Layout(type.dtype, type.static_shape, type.static_strides)


@dataclass(slots=True)
class _LastConstants:
    """The constants of the last call.

    Attributes:
        given: The list of them.
        program: What runs with them bound; None if they are to be passed.
        is_tried: Whether ``program`` is known. They are bound when they come a second time.
        quick_run: As `Backend.make_quick_run` returns it, of ``program``.
    """

    given: Sequence[Any] | None = None
    program: Any = None
    is_tried: bool = False
    quick_run: Callable[[list[Any]], Sequence[Any] | None] | None = None


class UndoLog:
    """Functions that undo the writes to state of the call in progress, the last one last."""

    def __init__(self) -> None:
        self.entries: list[Callable[[], object]] = []

    def undo(self) -> None:
        """Restore the state, and forget the writes."""
        entries, self.entries[:] = self.entries[::-1], []
        with torch.no_grad():
            for entry in entries:
                entry()


@dataclass(frozen=True, eq=False)
class PartitionCall:
    """A prepared partition as a callable: it takes two lists of inputs and returns the outputs.

    Attributes:
        backend: The backend.
        program: The result of `Backend.prepare`.
        inputs: The types of the inputs.
        outputs: The types of the outputs.
        overwritten: The inputs, by number, that the program overwrites.
        copied: Those that are needed elsewhere: each call copies them first.
        constants: The inputs, by number, that are the same tensors until other weights are bound.
        may_be_lazy: Whether the other inputs may have a lazy conj/neg bit.
        in_place: The inputs, by number, to whose memory it writes, each returned after the outputs.
        log: Where a call adds what undoes these writes.
        updates_in_place: Whether an output may be bound to the memory of the input whose new content it is.
    """

    backend: Backend
    program: Any
    inputs: Sequence[Type]
    outputs: Sequence[Type]
    overwritten: frozenset[int]
    copied: frozenset[int]
    constants: frozenset[int] = frozenset()
    may_be_lazy: bool = True
    updates_in_place: bool = False
    in_place: tuple[int, ...] = ()
    log: UndoLog | None = None
    _last: list[_LastConstants] = field(default_factory=lambda: [_LastConstants()], init=False)

    @functools.cached_property
    def given(self) -> Sequence[int]:
        """The numbers of the inputs without the constants."""
        return [number for number in range(len(self.inputs)) if number not in self.constants]

    @functools.cached_property
    def _input_layouts(self) -> Sequence[_Layout | None]:
        return list(map(_static_layout, self.inputs))

    @functools.cached_property
    def _output_layouts(self) -> Sequence[_Layout | None]:
        return list(map(_static_layout, self.outputs))

    def __call__(self, given: list[Any], constants: Sequence[Any] = ()) -> Sequence[Any]:
        """Run the partition on tensors in stated strides, without lazy conj/neg bits; check its outputs.

        Args:
            given: The inputs without the constants, in their order.
            constants: The others. Whoever passes the same list again has not changed it.
        """
        last = self._last[0]
        if last.quick_run is not None and last.given is constants:
            if self.in_place:
                self._log_undo(last.program, given)
            outputs = last.quick_run(given)
            if outputs is not None:
                return self._with_state(outputs, given) if self.in_place else outputs
        with below_autograd():
            return self._run(given, constants)

    def _log_undo(self, program: Any, inputs: Sequence[Any]) -> None:
        """Add the writes of a run to the log, before it begins: an interrupt may come at any time."""
        if self.log is not None:
            self.log.entries.append(functools.partial(self.backend.undo, program, inputs))

    def _with_state(self, outputs: Sequence[Any], given: Sequence[Any]) -> Sequence[Any]:
        """Return the outputs, and the state that was written to."""
        return [*outputs, *[given[self.given.index(number)] for number in self.in_place]]

    def _run(self, given: Sequence[Any], constants: Sequence[Any]) -> Sequence[Any]:
        stated = given = list(map(self._as_stated, given, self.given))
        for number in self.copied:
            place = self.given.index(number)
            given[place] = copy_with_strides(given[place])
        program = self._program_of(constants)
        if program is None:
            program, given = self.program, self.joined(given, constants)
        if self.in_place:
            self._log_undo(program, given)
        outputs = self.backend.run(program, given)
        if len(outputs) == len(self.outputs):
            for output, layout, type in zip(outputs, self._output_layouts, self.outputs, strict=True):
                if not _has_stated_shape(output, layout) and not is_of_type(output, type):
                    break
            else:
                return self._with_state(outputs, stated) if self.in_place else outputs
        raise BackendError(
            f"the backend {self.backend.name!r} returned {', '.join(map(describe, outputs)) or 'nothing'}"
            f" in place of {', '.join(map(str, self.outputs))}"
        )

    def _as_stated(self, item: Any, number: int) -> Any:
        if not isinstance(item, torch.Tensor) or _has_stated_layout(item, self._input_layouts[number]):
            return item
        return _to_stated_layout(item, self.inputs[number])

    def _program_of(self, constants: Sequence[Any]) -> Any:
        """Return the program with these constants bound, if there are any; None if it takes all inputs."""
        last = self._last[0]
        if last.given is constants and last.is_tried:
            return last.program
        program = None if constants else self.program
        is_tried = last.given is constants or not constants
        if is_tried and constants:
            numbers = sorted(self.constants)
            stated = list(map(self._as_stated, constants, numbers))
            # A copy in other strides is made in each call: the content of the constant may change.
            if all(map(_share_start, constants, stated)):
                program = self.backend.bind_constants(self.program, dict(zip(numbers, stated, strict=True)))
        has_quick_run = program is not None and not self.copied and not self.may_be_lazy
        quick_run = self.backend.make_quick_run(program) if has_quick_run else None
        self._last[0] = _LastConstants(constants, program, is_tried, quick_run)
        return program

    def joined(self, given: Sequence[Any], constants: Sequence[Any] = ()) -> list[Any]:
        """Return all inputs by number, of those that a call takes and the constants."""
        numbered = dict(zip(self.given, given, strict=True))
        for number, item in zip(sorted(self.constants), constants, strict=True):
            numbered[number] = self._as_stated(item, number)
        return [numbered[number] for number in range(len(self.inputs))]

    def forget_constants(self) -> None:
        """Let go of the constants of the last call: others take their place."""
        self._last[0] = _LastConstants()

    def bind(self, inputs: Sequence[torch.Tensor], outputs: Sequence[torch.Tensor]) -> Callable[[], None]:
        """Return a callable that computes the partition over fixed tensors.

        Args:
            inputs: Tensors of the shapes and dtypes of the inputs. Those with other strides or a lazy
                conj/neg bit are copied in each call; overwritten ones are needed nowhere else.
            outputs: Tensors of the types of the outputs. They share no memory with each other, nor with the
                inputs, but for inputs that are updated in place.
        """
        copies = [
            (item, type, copy_with_strides(_to_stated_layout(item, type)))
            for item, type, layout in zip(inputs, self.inputs, self._input_layouts, strict=True)
            if not _has_stated_layout(item, layout)
        ]
        # By identity: one tensor may be passed for several inputs.
        of = {id(item): copy for item, _, copy in copies}
        compute = self.backend.bind(self.program, [of.get(id(item), item) for item in inputs], outputs)
        if not copies:
            return compute

        def refresh_and_compute() -> None:
            for item, type, copy in copies:
                copy_memory(_to_stated_layout(item, type), copy)
            compute()

        return refresh_and_compute


def _to_stated_layout(tensor: torch.Tensor, type: Type) -> Any:
    """Return a tensor in the strides of a type, without lazy conj/neg bits."""
    return with_stated_strides(tensor.resolve_conj().resolve_neg(), type)


def _share_start(item: Any, stated: Any) -> bool:
    """Return whether an item and its form in stated strides are one, or begin at the same place of memory."""
    return item is stated or bool(item.data_ptr() == stated.data_ptr())


def _has_stated_layout(tensor: torch.Tensor, layout: _Layout | None) -> bool:
    """Return whether a tensor has these strides and no lazy conj/neg bit; False if it needs a full check."""
    return (
        layout is not None
        and tensor.layout is torch.strided
        and tensor.stride() == layout.strides
        and not tensor.is_neg()
        and not tensor.is_conj()
    )


def _has_stated_shape(output: Any, layout: _Layout | None) -> bool:
    """Return whether an output has the dtype and shape of its type; False if it needs a full check."""
    return (
        layout is not None
        and isinstance(output, torch.Tensor)
        and output.dtype is layout.dtype
        and output.layout is torch.strided
        and output.shape == layout.sizes
    )

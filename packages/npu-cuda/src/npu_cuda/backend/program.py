"""Pools of native programs: a program runs on one thread and one stream at a time."""

from __future__ import annotations

import copy
import functools
from collections import defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch

from npu_cuda import _C
from npu_cuda.backend.memory_layout import MemoryLayout, Result, SlotView, as_owner
from npu_cuda.backend.selection import kind_of, select_kernel, specs_of
from npu_cuda.backend.state_rows import find_row_updates, memory_to_keep
from npu_cuda.backend.tensor_views import ALIGNMENT, TensorView, tensor_type
from npu_cuda.backend.view_rules import VIEW
from npu_ir import Graph, TensorType
from npu_ir._torch.tensors import make_allocator
from npu_ir.core.storage import has_overlapping_elements
from npu_ir.plugins.backend import BackendOp, Operand

# The strides of inputs, after the number of each.
_Strides: TypeAlias = tuple[tuple[int, tuple[int, ...]], ...]


class ProgramInstance:
    """A native program.

    Args:
        prepared: What it computes.
        is_aligned: Whether its memory is aligned to `ALIGNMENT`.
        strides: Those of inputs by number, where they differ from the stated ones.
    """

    def __init__(self, prepared: PreparedProgram, *, is_aligned: bool, strides: _Strides = ()) -> None:
        layout, device = prepared.layout, prepared.device
        self._alignment = ALIGNMENT if is_aligned else 0
        self.native = _C.Program(prepared.native_device, deterministic=True)
        self._slots: dict[SlotView, int] = {}
        other_strides = dict(strides)
        self.kept = {owner: make() for owner, make in prepared.kept.items()}
        for owner, place in layout.places.items():
            whole = SlotView.whole(owner)
            view = whole.tensor
            if place in other_strides:
                view = view.with_shape(view.shape, other_strides[place])
            (spec,) = specs_of([view], self._alignment)
            is_external = place is not None or owner in self.kept
            self._slots[whole] = self.native.slot(spec, owner.name, external=is_external)
        for op in prepared.kernel_ops:
            self._add_op(op, layout.slots_of(op))
        self.native.finalize(functools.partial(torch.empty, dtype=torch.uint8, device=device))
        self.external = []
        for owner, place in layout.places.items():
            slot = self._slots[SlotView.whole(owner)]
            if owner in self.kept:
                self.native.fix(slot, self.kept[owner])
            if place is None:
                continue
            if place in prepared.constants:
                self.native.fix(slot, prepared.constants[place])
            else:
                self.external.append(slot)

    def bind(self, feeds: Sequence[int], tensors: Sequence[torch.Tensor]) -> None:
        """Bind the program to inputs and outputs permanently."""
        for slot, place in zip(self.external, feeds, strict=True):
            self.native.bind(slot, tensors[place])

    def _add_op(self, op: BackendOp, views: Sequence[SlotView]) -> None:
        slots = [self._slot(view) for view in views]
        count = len(op.inputs)
        is_aligned = self._alignment and not any(view.offset_bytes % ALIGNMENT for view in views)
        which = op.kernel if op.kernel and is_aligned else kind_of(op.kind)
        self.native.add(which, slots[:count], slots[count:], op.schema_id, op.attrs)

    def _slot(self, view: SlotView) -> int:
        if view not in self._slots:
            (spec,) = specs_of([view.tensor], 0)
            owner = self._slots[SlotView.whole(view.owner)]
            self._slots[view] = self.native.view(owner, spec, view.offset_bytes, view.owner.name)
        return self._slots[view]


class PreparedProgram:
    """A lowered graph, ready to run; the result of `NativeBackend.prepare`.

    Instances are created on demand: one per stream and per thread that runs the graph concurrently. A run
    that is captured has those of its capture: the captured graph uses their memory again and again.

    Attributes:
        kernel_ops: The ops that have kernels: those of the native program.
        constants: The inputs that are bound for good, by number.
        input_count: The number of the other inputs.
        feeds: Indices of what each run binds to it, among these inputs, then the outputs.
        places: The same as a tuple; None if it is all of them in order.
        outputs: Allocators, one per output.
        expanded: The inputs, by number, whose elements may share memory: they come in any strides.
        idle: The instances that nobody uses, by stream, whether memory is aligned, and the strides of the
            expanded inputs.
        updates: The ops that write into the memory of inputs.
        kept: Allocators of what a restoration of these inputs reads: each instance has its own.
        needs_alignment: Whether the kernels chosen for aligned memory differ from those for any memory.
        arena_bytes: The memory of one instance between its ops.
        returns_exactly_outputs: Whether the results are exactly the outputs, in order, each once.
    """

    def __init__(
        self,
        graph: Graph,
        ops: Sequence[BackendOp],
        device: torch.device,
        native_device: str,
    ) -> None:
        self.ops = tuple(ops)
        self.kernel_ops = kernel_ops(ops)
        self.device = device
        self.native_device = native_device
        self.layout = MemoryLayout.of(graph, ops)
        self.constants: Mapping[int, Any] = {}
        self.input_count = self.layout.inputs
        self.feeds = [place for place in self.layout.places.values() if place is not None]
        self.outputs = [_allocator_of(owner, device) for owner in self.layout.outputs]
        self.expanded = [
            place
            for owner, place in self.layout.places.items()
            if place is not None and has_overlapping_elements(owner.type)
        ]
        self.updates = find_row_updates(graph, self.kernel_ops)
        self.kept = {
            owner: _allocator_of(owner, device)
            for owner in map(self.layout.owner_of, memory_to_keep(self.updates))
            if self.layout.places[owner] is None
        }
        self._last: tuple[ProgramInstance, Sequence[Any]] | None = None  # that ran, and its inputs
        self._holders = self.layout.holders()
        count = len(graph.inputs) + len(self.outputs)
        self.returns_exactly_outputs = self.layout.results == list(
            map(Result, range(len(graph.inputs), count))
        )
        self.places = _places(self.feeds, count)
        kind = native_device.partition(":")[0]
        self.needs_alignment = any(select_kernel(op, kind, 0)[0] != op.kernel for op in self.kernel_ops)
        self.idle: _Pool = defaultdict(deque)
        self._captured: tuple[int, _Pool] = 0, defaultdict(deque)  # the last capture, and its instances
        # One is created here, for the usual alignment, so that errors surface in prepare().
        first = ProgramInstance(self, is_aligned=self.needs_alignment)
        self.arena_bytes = first.native.arena_bytes
        if not self.expanded:
            self.idle[0, self.needs_alignment, ()].append(first)

    def with_constants(self, constants: Mapping[int, Any]) -> PreparedProgram | None:
        """Return the program with some inputs bound for good; None if results share memory with inputs."""
        if not self.returns_exactly_outputs:
            return None
        places = {
            place: index
            for index, place in enumerate(
                place for place in range(self.layout.inputs + len(self.outputs)) if place not in constants
            )
        }
        bound = copy.copy(self)
        bound.constants = constants
        bound.input_count = self.layout.inputs - len(constants)
        bound.feeds = [places[place] for place in self.feeds if place in places]
        bound.places = _places(bound.feeds, len(places))
        bound.needs_alignment = self.needs_alignment and not any(
            item.data_ptr() % ALIGNMENT for item in constants.values()
        )
        bound.idle, bound._captured = defaultdict(deque), (0, defaultdict(deque))
        # Its memory between ops is not needed twice.
        self.idle.clear()
        return bound

    def are_aligned(self, tensors: Sequence[Any]) -> bool:
        """Return whether the kernels for aligned memory can run; False if there are no others."""
        if not self.needs_alignment:
            return False
        for place in self.feeds:  # noqa: SIM110 - a generator would take longer than the rest of a run
            if tensors[place].data_ptr() % ALIGNMENT:
                return False
        return True

    def instance_for(self, tensors: Sequence[Any]) -> ProgramInstance:
        """Return an instance that is in no pool, bound to these inputs and outputs permanently."""
        key = 0, self.are_aligned(tensors), self._strides_of(tensors)
        try:
            instance = self.idle[key].pop()  # the first one, usually: its memory is not needed twice
        except IndexError:
            instance = ProgramInstance(self, is_aligned=key[1], strides=key[2])
        instance.bind(self.feeds, tensors)
        return instance

    def _strides_of(self, tensors: Sequence[Any]) -> _Strides:
        """Return the numbers and strides of the expanded inputs, constants first."""
        given = [place for place in range(self.layout.inputs) if place not in self.constants]
        bound = {**self.constants, **dict(zip(given, tensors, strict=False))}
        return tuple((place, bound[place].stride()) for place in self.expanded)

    def place_outputs(
        self, inputs: Sequence[Any], results: Sequence[Any]
    ) -> tuple[list[Any], list[tuple[Any, Any]]]:
        """Return the inputs and outputs of a program that computes results in given memory.

        The second list has the results that are to be copied after each run, and of what: those that are
        inputs, parts of an output, or duplicates of another result.
        """
        tensors = list(inputs)
        for number, owner, make in zip(self._holders, self.layout.outputs, self.outputs, strict=True):
            tensors.append(make() if number is None else as_owner(results[number], owner))
        copied = [number for number in range(len(results)) if number not in self._holders]
        return tensors, [(results[number], self.layout.results[number].of(tensors)) for number in copied]

    def run(self, tensors: list[Any], stream: int, inputs: Sequence[Any] = ()) -> None:
        """Compute the outputs from the inputs.

        Args:
            tensors: Inputs, then memory for the outputs.
            stream: The handle of the caller's current stream; 0 if there is only one.
            inputs: The inputs as the caller passed them, which `undo` is asked for.
        """
        # Work of one stream runs in order: the next run on it may use the same memory between ops.
        is_aligned = self.are_aligned(tensors)
        strides = self._strides_of(tensors) if self.expanded else ()
        capture = _C.find_capture(self.native_device, stream) if stream else 0
        idle = (self._pool_of(capture) if capture else self.idle)[stream, is_aligned, strides]
        try:
            instance = idle.pop()
        except IndexError:
            instance = ProgramInstance(self, is_aligned=is_aligned, strides=strides)
        if self.updates:
            self.begin(instance, inputs)
        try:
            if self.places is not None:
                tensors = [tensors[place] for place in self.places]
            instance.native.call(tensors, stream, keep=False)
        finally:
            idle.append(instance)

    def begin(self, instance: ProgramInstance, inputs: Sequence[Any]) -> None:
        """Note which instance is about to write to these inputs."""
        instance.native.take_launched()
        self._last = instance, inputs

    def undo(self, inputs: Sequence[Any]) -> None:
        """Restore these inputs, if the last run has written to them: up to the op that failed if one did."""
        if self._last is None or self._last[1] is not inputs:
            return
        (instance, _), self._last = self._last, None
        launched = instance.native.take_launched()
        numbers = [number for number in range(self.layout.inputs) if number not in self.constants]
        given = {**self.constants, **dict(zip(numbers, inputs, strict=True))}

        def find(operand: Operand) -> Any:
            owner = self.layout.owner_of(operand)
            place = self.layout.places[owner]
            return self.layout.tensor_of(operand, instance.kept[owner] if place is None else given[place])

        for update in reversed(self.updates):
            if update.index < launched:
                update.restore(given[update.state], find)

    def _pool_of(self, capture: int) -> _Pool:
        """Return the instances of a capture; those of the one before go: its graph keeps what it needs."""
        known, pool = self._captured
        if known != capture:
            pool = defaultdict(deque)
            self._captured = capture, pool
        return pool


_Pool = defaultdict[tuple[int, bool, _Strides], deque[ProgramInstance]]  # by stream and alignment, too


def _allocator_of(owner: Operand, device: torch.device) -> Callable[[], torch.Tensor]:
    type = tensor_type(owner)
    return make_allocator(type.static_shape, type.static_strides, type.dtype, device)


def _places(feeds: Sequence[int], count: int) -> tuple[int, ...] | None:
    return None if list(feeds) == list(range(count)) else tuple(feeds)


def kernel_ops(ops: Sequence[BackendOp]) -> tuple[BackendOp, ...]:
    """Return the ops that have kernels; views have none."""
    return tuple(op for op in ops if op.kind != VIEW)


def copy_program(device: str, copies: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> _C.Program:
    """Return a program that copies each first tensor into the second one, in order."""
    program = _C.Program(device, deterministic=True)
    bound: list[tuple[int, torch.Tensor]] = []
    for pair in copies:
        views = [TensorView.from_type(TensorType.of(item)) for item in pair]
        source, target = (program.slot(spec) for spec in specs_of(views, 0))
        program.add(_C.OpKind.Copy, [source], [target])
        bound += zip((source, target), pair, strict=True)
    program.finalize()
    for slot, tensor in bound:
        program.bind(slot, tensor)
    return program

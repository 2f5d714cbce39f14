"""Pools of native programs: a program runs on one thread and one stream at a time."""

from __future__ import annotations

import copy
import functools
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import torch

from npu_cuda import _C
from npu_cuda.backend.memory_layout import MemoryLayout, Result, SlotView, as_owner
from npu_cuda.backend.selection import ALIGNMENT, kind_of, select_kernel, specs_of
from npu_cuda.backend.tensor_views import tensor_type
from npu_cuda.backend.view_rules import VIEW
from npu_ir import Graph
from npu_ir._torch.tensors import make_allocator
from npu_ir.core.storage import has_overlapping_elements
from npu_ir.plugins.backend import BackendOp

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
        for owner, place in layout.places.items():
            whole = SlotView.whole(owner)
            reading = whole.reading
            if place in other_strides:
                reading = reading.with_shape(reading.shape, other_strides[place])
            (spec,) = specs_of([reading], self._alignment)
            self._slots[whole] = self.native.slot(spec, owner.name, external=place is not None)
        for op in prepared.kernel_ops:
            self._add_op(op, layout.slots_of(op))
        self.native.finalize(functools.partial(torch.empty, dtype=torch.uint8, device=device))
        self.external = []
        for owner, place in layout.places.items():
            if place is None:
                continue
            slot = self._slots[SlotView.whole(owner)]
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
            (spec,) = specs_of([view.reading], 0)
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
        needs_alignment: Whether the kernels chosen for aligned memory differ from those for any memory.
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
        types = [tensor_type(owner) for owner in self.layout.outputs]
        self.outputs = [
            make_allocator(type.static_shape, type.static_strides, type.dtype, device) for type in types
        ]
        self.expanded = [
            place
            for owner, place in self.layout.places.items()
            if place is not None and has_overlapping_elements(owner.type)
        ]
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
        """Return a new instance, bound to these inputs and outputs permanently."""
        strides = self._strides_of(tensors)
        instance = ProgramInstance(self, is_aligned=self.are_aligned(tensors), strides=strides)
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

    def run(self, tensors: list[Any], stream: int) -> None:
        """Compute the outputs from the inputs.

        Args:
            tensors: Inputs, then memory for the outputs.
            stream: The handle of the caller's current stream; 0 if there is only one.
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
        try:
            if self.places is not None:
                tensors = [tensors[place] for place in self.places]
            instance.native.call(tensors, stream, keep=False)
        finally:
            idle.append(instance)

    def _pool_of(self, capture: int) -> _Pool:
        """Return the instances of a capture; those of the one before go: its graph keeps what it needs."""
        known, pool = self._captured
        if known != capture:
            pool = defaultdict(deque)
            self._captured = capture, pool
        return pool


_Pool = defaultdict[tuple[int, bool, _Strides], deque[ProgramInstance]]  # by stream and alignment, too


def _places(feeds: Sequence[int], count: int) -> tuple[int, ...] | None:
    return None if list(feeds) == list(range(count)) else tuple(feeds)


def kernel_ops(ops: Sequence[BackendOp]) -> tuple[BackendOp, ...]:
    """Return the ops that have kernels; views have none."""
    return tuple(op for op in ops if op.kind != VIEW)

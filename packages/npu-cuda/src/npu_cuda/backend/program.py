"""Pools of native programs: a program runs on one thread and one stream at a time."""

from __future__ import annotations

import functools
from collections import defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from npu_cuda import _C
from npu_cuda.backend.selection import ALIGNMENT, select_kernel, specs_of
from npu_cuda.backend.tensor_views import TensorView, tensor_type, views_of
from npu_ir import Graph, TensorType
from npu_ir.plugins.backend import BackendOp, Operand


@dataclass(frozen=True, slots=True)
class SlotBinding:
    """The tensor bound to one slot.

    Attributes:
        place: Index among the inputs, then the outputs, then the scratch tensors of a program.
        shape: Shape of the view to bind; None to bind the tensor itself.
        strides: Strides of that view, in elements.
    """

    place: int
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()

    def view(self, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        tensor = tensors[self.place]
        return tensor if self.shape is None else tensor.as_strided(self.shape, self.strides)


@dataclass(slots=True)
class MemoryLayout:
    """The memory of the tensors of a graph, and the slots of a program over it.

    A tensor between ops resides in the arena of the program, except one that kernels read in several shapes:
    it is a scratch tensor.
    """

    inputs: int
    outputs: list[TensorType] = field(default_factory=list)
    scratch: list[TensorType] = field(default_factory=list)
    slots: dict[tuple[Operand, TensorView], SlotBinding | None] = field(
        default_factory=dict
    )  # None: in the arena
    results: list[int] = field(default_factory=list)  # the place of each output of the graph

    @classmethod
    def of(cls, graph: Graph, ops: Sequence[BackendOp]) -> MemoryLayout:
        layout = cls(len(graph.inputs))
        places: dict[Operand, int] = {value: index for index, value in enumerate(graph.inputs)}
        computed = [value for value in dict.fromkeys(graph.outputs) if value not in places]
        layout.outputs = [value.tensor_type for value in computed]
        places.update((value, layout.inputs + index) for index, value in enumerate(computed))
        layout.results = [places[value] for value in graph.outputs]
        uses: dict[Operand, dict[TensorView, None]] = {}
        for op in ops:
            for operand, reading in zip((*op.inputs, *op.outputs), views_of(op), strict=True):
                uses.setdefault(operand, {})[reading] = None
        for operand, readings in uses.items():
            if operand not in places and len(readings) > 1:
                places[operand] = layout.inputs + len(layout.outputs) + len(layout.scratch)
                layout.scratch.append(tensor_type(operand))
            layout.slots.update(
                ((operand, reading), _slot_binding(operand, reading, places.get(operand)))
                for reading in readings
            )
        return layout


def _slot_binding(operand: Operand, reading: TensorView, place: int | None) -> SlotBinding | None:
    if place is None:
        return None
    if reading == TensorView.from_type(tensor_type(operand)):
        return SlotBinding(place)
    return SlotBinding(place, reading.shape, reading.strides)


class ProgramInstance:
    """A native program with its scratch tensors."""

    def __init__(self, prepared: PreparedProgram, *, is_aligned: bool) -> None:
        layout, device = prepared.layout, prepared.device
        alignment = ALIGNMENT if is_aligned else 0
        self.scratch = [make() for make in prepared.scratch]
        self.native = _C.Program(prepared.native_device, deterministic=True)
        slots: dict[tuple[Operand, TensorView], int] = {}
        for (operand, reading), feed in layout.slots.items():
            (spec,) = specs_of([reading], alignment)
            slots[operand, reading] = self.native.slot(spec, operand.name, external=feed is not None)
        for op in prepared.ops:
            places = [slots[pair] for pair in zip((*op.inputs, *op.outputs), views_of(op), strict=True)]
            count = len(op.inputs)
            which = op.kernel if op.kernel and is_aligned else _C.kinds()[op.kind]
            self.native.add(which, places[:count], places[count:], op.schema_id, op.attrs)
        self.native.finalize(functools.partial(torch.empty, dtype=torch.uint8, device=device))
        self.external = [slots[pair] for pair, feed in layout.slots.items() if feed is not None]

    def bind(self, feeds: Sequence[SlotBinding], tensors: Sequence[torch.Tensor]) -> None:
        """Bind the program to inputs and outputs permanently."""
        everything = [*tensors, *self.scratch]
        for slot, feed in zip(self.external, feeds, strict=True):
            self.native.bind(slot, feed.view(everything))


class PreparedProgram:
    """A lowered graph, ready to run; the result of `NativeBackend.prepare`.

    Instances are created on demand: one per stream and per thread that runs the graph concurrently. A run
    that is captured has those of its capture: the captured graph uses their memory again and again.

    Attributes:
        outputs: Allocators, one per output.
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
        self.device = device
        self.native_device = native_device
        self.layout = MemoryLayout.of(graph, ops)
        self.feeds = [feed for feed in self.layout.slots.values() if feed is not None]
        self.outputs = [_allocator(type, device) for type in self.layout.outputs]
        self.scratch = [_allocator(type, device) for type in self.layout.scratch]
        count = len(graph.inputs) + len(self.outputs)
        self.returns_exactly_outputs = self.layout.results == list(range(len(graph.inputs), count))
        self._fed = sorted({feed.place for feed in self.feeds if feed.place < count})
        self._is_plain = [feed.place for feed in self.feeds] == list(range(len(self.feeds))) and not any(
            feed.shape for feed in self.feeds
        )
        kind = native_device.partition(":")[0]
        self.needs_alignment = any(select_kernel(op, kind, 0)[0] != op.kernel for op in ops)
        self._idle: _Pool = defaultdict(deque)
        self._captured: tuple[int, _Pool] = 0, defaultdict(deque)  # the last capture, and its instances
        # One is created here, for the usual alignment, so that errors surface in prepare().
        self._idle[0, self.needs_alignment].append(ProgramInstance(self, is_aligned=self.needs_alignment))

    def are_aligned(self, tensors: Sequence[Any]) -> bool:
        """Return whether the kernels for aligned memory can run; False if there are no others."""
        if not self.needs_alignment:
            return False
        for place in self._fed:  # noqa: SIM110 - a generator would take longer than the rest of a run
            if tensors[place].data_ptr() % ALIGNMENT:
                return False
        return True

    def run(self, tensors: list[Any], stream: int) -> None:
        """Compute the outputs from the inputs.

        Args:
            tensors: Inputs, then memory for the outputs.
            stream: The handle of the caller's current stream; 0 if there is only one.
        """
        # Work of one stream runs in order: the next run on it may use the same memory between ops.
        is_aligned = self.are_aligned(tensors)
        capture = _C.find_capture(self.native_device, stream) if stream else 0
        idle = (self._pool_of(capture) if capture else self._idle)[stream, is_aligned]
        try:
            instance = idle.pop()
        except IndexError:
            instance = ProgramInstance(self, is_aligned=is_aligned)
        try:
            if not self._is_plain:
                everything = [*tensors, *instance.scratch]
                tensors = [feed.view(everything) for feed in self.feeds]
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


_Pool = defaultdict[tuple[int, bool], deque[ProgramInstance]]


def _allocator(type: TensorType, device: torch.device) -> Callable[[], torch.Tensor]:
    """Return an allocator of tensors of a type, with all arguments bound in advance."""
    return functools.partial(
        torch.empty_strided, type.static_shape, type.static_strides, dtype=type.dtype, device=device
    )

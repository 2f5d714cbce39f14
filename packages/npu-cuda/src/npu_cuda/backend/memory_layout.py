"""The memory of the tensors of a lowered graph: which have their own, and where views of them are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from npu_cuda.backend.tensor_views import TensorView, tensor_type, views_of
from npu_cuda.backend.view_rules import VIEW, view_offsets
from npu_ir import Graph, TensorType, Value
from npu_ir.core.storage import is_dense
from npu_ir.graph.partition import in_place_of
from npu_ir.plugins.backend import BackendOp, Operand


@dataclass(frozen=True, slots=True)
class SlotView:
    """A tensor as an op uses it.

    Attributes:
        owner: The tensor in whose memory it resides, which may be itself.
        offset: Its first element, from that of the owner.
        tensor: Its shape and strides.
    """

    owner: Operand
    offset: int
    tensor: TensorView

    @classmethod
    def whole(cls, owner: Operand) -> SlotView:
        return cls(owner, 0, TensorView.from_type(tensor_type(owner)))

    @property
    def offset_bytes(self) -> int:
        """Place of its first element; of a view without elements the owner's, which may have none either."""
        return 0 if 0 in self.tensor.shape else self.offset * tensor_type(self.owner).dtype.itemsize


@dataclass(frozen=True, slots=True)
class Result:
    """A result of a graph: a tensor of a program, or a view of one.

    Attributes:
        place: Index among the inputs, then the outputs of a program.
        shape: Shape of the view; None for the tensor itself.
        strides: Strides of the view, in elements.
        offset: First element of the view, from that of the tensor.
    """

    place: int
    shape: tuple[int, ...] | None = None
    strides: tuple[int, ...] = ()
    offset: int = 0

    def of(self, tensors: Sequence[Any]) -> Any:
        tensor = tensors[self.place]
        if self.shape is None:
            return tensor
        return tensor.as_strided(self.shape, self.strides, tensor.storage_offset() + self.offset)

    def has_all_of(self, type: TensorType) -> bool:
        """Return whether it has all the memory of its tensor, which is of this type, and no gaps."""
        if self.shape is None:
            return True
        is_permuted = is_dense(self.shape, self.strides) and is_dense(type.static_shape, type.static_strides)
        return is_permuted and math.prod(self.shape) == type.numel


@dataclass(slots=True)
class MemoryLayout:
    """The memory of the tensors of a graph, and the slots of a program over it.

    Attributes:
        inputs: The number of inputs.
        outputs: The tensors that have the memory of results, without inputs.
        places: The tensors with memory of their own that ops use: their indices among the inputs, then the
            outputs; None for those in the arena of the program.
        results: The outputs of the graph.
        sources: The location of each view: its owner and its first element.
    """

    inputs: int
    outputs: list[Operand] = field(default_factory=list)
    places: dict[Operand, int | None] = field(default_factory=dict)
    results: list[Result] = field(default_factory=list)
    sources: dict[Operand, tuple[Operand, int]] = field(default_factory=dict)

    @classmethod
    def of(cls, graph: Graph, ops: Sequence[BackendOp]) -> MemoryLayout:
        layout = cls(len(graph.inputs))
        in_place = in_place_of(graph)
        for op in ops:
            if op.kind == VIEW:
                layout._add_view(op)
            for output in op.outputs:
                if isinstance(output, Value) and output in in_place:
                    source = in_place[output]
                    layout.sources[output] = layout.sources.get(source, (source, 0))
        places: dict[Operand, int] = {value: index for index, value in enumerate(graph.inputs)}
        for value in graph.outputs:
            owner, offset = layout.sources.get(value, (value, 0))
            if owner not in places:
                places[owner] = layout.inputs + len(layout.outputs)
                layout.outputs.append(owner)
            view = () if value is owner else (*_layout_of(value), offset)
            layout.results.append(Result(places[owner], *view))
        for op in ops:
            if op.kind != VIEW:
                layout.places.update((slot.owner, places.get(slot.owner)) for slot in layout.slots_of(op))
        return layout

    def slots_of(self, op: BackendOp) -> list[SlotView]:
        """Return the operands of an op that has a kernel, inputs first."""
        operands = (*op.inputs, *op.outputs)
        return [
            SlotView(*self.sources.get(operand, (operand, 0)), view)
            for operand, view in zip(operands, views_of(op), strict=True)
        ]

    def owner_of(self, operand: Operand) -> Operand:
        """Return the tensor in whose memory an operand resides."""
        return self.sources.get(operand, (operand, 0))[0]

    def tensor_of(self, operand: Operand, owner: torch.Tensor) -> torch.Tensor:
        """Return an operand as a view of the tensor in whose memory it resides."""
        _, offset = self.sources.get(operand, (operand, 0))
        return owner.as_strided(*_layout_of(operand), owner.storage_offset() + offset)

    def holders(self) -> list[int | None]:
        """Return for each of the `outputs` the number of the result that has all its memory, if any."""
        holders: list[int | None] = []
        for place, owner in enumerate(self.outputs, self.inputs):
            type = tensor_type(owner)
            fitting = (
                number
                for number, result in enumerate(self.results)
                if result.place == place and result.has_all_of(type)
            )
            holders.append(next(fitting, None))
        return holders

    def _add_view(self, op: BackendOp) -> None:
        (source,) = op.inputs
        owner, start = self.sources.get(source, (source, 0))
        for output, offset in zip(op.outputs, view_offsets(op), strict=True):
            self.sources[output] = owner, start + offset


def as_owner(result: torch.Tensor, owner: Operand) -> torch.Tensor:
    """Return a result that has all the memory of its owner in the shape and strides of the owner."""
    return result.as_strided(*_layout_of(owner))


def _layout_of(operand: Operand) -> tuple[tuple[int, ...], tuple[int, ...]]:
    type = tensor_type(operand)
    return type.static_shape, type.static_strides

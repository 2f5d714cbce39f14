"""What has been decided of a plan: what is called, and where values lie."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch

from npu_ir import Value
from npu_ir.core.types import TensorType
from npu_runtime.lowering.instruction import Step
from npu_runtime.planned.buffers import Action, Kind, Piece, Whole, dense_type


@dataclass(slots=True)
class Placement:
    """What was decided.

    Attributes:
        actions: What binding does, in order.
        pieces: The fixed memory.
        kinds: Of each value.
        lies_in: The pieces in which a value lies, or may lie.
        reasons: Why a value is made in each run.
        allocated: Those of them that may take memory then: what is known to be a view takes none.
        compute: The calls of the first phase.
        commit: Those of the second one.
        stand_ins: What holds a result, or new content, in place of the value itself.
        last: The number of the last step that needs a value.
    """

    actions: list[Action] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)
    kinds: dict[Value, Kind] = field(default_factory=dict)
    lies_in: dict[Value, tuple[Piece, ...]] = field(default_factory=dict)
    reasons: dict[Value, str] = field(default_factory=dict)
    allocated: list[Value] = field(default_factory=list)
    compute: list[Step] = field(default_factory=list)
    commit: list[Step] = field(default_factory=list)
    stand_ins: dict[Value, Value] = field(default_factory=dict)
    last: dict[Value, int] = field(default_factory=dict)

    def last_step(self, piece: Piece) -> int:
        """Return the number of the last step that needs a piece of memory."""
        return max(self.last[value] for value in piece.values)

    def is_fixed(self, value: Value) -> bool:
        """Whether a value is a tensor that is the same object in each run."""
        return self.kinds[value] not in (Kind.MADE, Kind.NUMBER)

    def put(self, value: Value, piece: Piece) -> None:
        """Make a value the whole of a new piece of memory."""
        self.pieces.append(piece)
        self.kinds[value] = piece.kind
        self.actions.append(Whole(value, piece))
        self.lay_in(value, [piece])

    def lay_in(self, value: Value, pieces: Sequence[Piece]) -> None:
        """Note that a value lies in pieces of memory, or may do so."""
        self.last.setdefault(value, -1)
        self.lies_in[value] = tuple(pieces)
        for piece in pieces:
            piece.values.append(value)

    def stand_in(self, value: Value, first: int, last: int) -> Value:
        """Return a value for a copy of another."""
        type = dense_type(value.tensor_type)
        copy = Value(-1 - len(self.pieces), f"{value.name}_copy", type)
        self.last[copy] = last
        self.put(copy, Piece(copy, Kind.ARENA, first=first))
        return copy


def is_placeable(value: Value) -> bool:
    """Return whether a value is a tensor whose memory can be planned."""
    return isinstance(value.type, TensorType) and value.type.layout is torch.strided

"""Finding memory for the outputs of a step: a place of their own, or one that nothing needs any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npu_ir import Graph, TensorType, Value
from npu_runtime.lowering.instruction import Step
from npu_runtime.planned.assignment import Placement
from npu_runtime.planned.buffers import Kind, Piece, bytes_of
from npu_runtime.probing.out_variants import Form


@dataclass(frozen=True, slots=True)
class Offer:
    """How a form can be used.

    Attributes:
        homes: For each output the memory that it takes over; None for memory of its own.
        cost: How many copies it takes, and how many bytes of memory.
    """

    form: Form
    homes: tuple[Piece | None, ...]
    cost: tuple[int, int]


class Homes:
    """Finds memory.

    Args:
        graph: The program.
        done: What has been decided of the steps before.
        middle: The number behind which steps may write state.
    """

    def __init__(self, graph: Graph, done: Placement, middle: int) -> None:
        self._graph = graph
        self._done = done
        self._middle = middle
        self._target = {new: target for target, new in reversed(list(graph.updates.items()))}

    def offer(self, form: Form, step: Step, index: int) -> Offer | None:
        """Return how a form could be used; None where an output cannot be planned."""
        homes: list[Piece | None] = []
        copies = fresh = 0
        for number, (value, source) in enumerate(zip(step.outputs, form.over, strict=True)):
            if not isinstance(value.type, TensorType):
                return None
            home = self._home(value, step, index, form, number, homes)
            homes.append(home)
            fresh += bytes_of(value) if home is None else 0
            copies += source is not None and not self.is_in(step.inputs[source], home)
        return Offer(form, tuple(homes), (copies, fresh))

    def is_in(self, value: Value, piece: Piece | None) -> bool:
        """Return whether a value lies in a piece of memory."""
        return piece is not None and piece in self._done.lies_in[value]

    def _home(
        self, value: Value, step: Step, index: int, form: Form, number: int, taken: Sequence[Piece | None]
    ) -> Piece | None:
        """Return the memory that an output can take over; None where it needs its own."""
        source = form.over[number]
        readable = form.within if source is None else frozenset([source])
        candidates: list[Piece] = []
        target = self._target.get(value)
        if target is not None and index > self._middle and target.type == value.type:
            candidates += self._done.lies_in[target]
        for operand in sorted(readable):
            candidates += self._done.lies_in[step.inputs[operand]]
        for piece in candidates:
            if piece not in taken and self._is_free(piece, value, step, index, readable):
                return piece
        return None

    def _is_free(self, piece: Piece, value: Value, step: Step, index: int, readable: frozenset[int]) -> bool:
        """Whether a step may write an output over the whole of a piece of memory."""
        is_state = index > self._middle and piece.owner in self._graph.updates
        if piece.kind is not Kind.ARENA and not is_state:
            return False
        if piece.owner.type != value.type or self._done.last_step(piece) > index:
            return False
        reading = [at for at, item in enumerate(step.inputs) if piece in self._done.lies_in[item]]
        # A view may conjugate or negate lazily: the memory holds something else.
        if any(self._done.kinds[step.inputs[at]] is Kind.VIEW for at in reading):
            return False
        return not reading or (
            len(reading) == 1
            and reading[0] in readable
            and step.inputs[reading[0]].type == value.type
            and self._done.is_fixed(step.inputs[reading[0]])
        )

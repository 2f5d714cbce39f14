"""Reuse candidates: memory that the outputs of an instruction can take over instead of a new allocation.

For each out-variant and output, the candidates are tried in this order:

1. Donation (commit phase only): the memory of the parameter, buffer or optimizer state whose new content
   the output is. It saves the copy at the end.
2. In-place reuse: the memory of the operand that the out-variant overwrites, or of any operand of an
   elementwise op.

A candidate is taken if it has the type of the output, no value in it is used after this instruction, and no
other operand of the instruction resides in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from npu_ir import Graph, TensorType, Value
from npu_ir.core.storage import span_bytes
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.planned.assignment import BufferAssignment
from npu_runtime.planned.buffers import Allocation, BufferKind
from npu_runtime.probing.out_variants import OutVariant


@dataclass(frozen=True, slots=True)
class ReuseCandidate:
    """A reuse candidate: one out-variant with the memory of its outputs.

    Attributes:
        form: The out-variant.
        homes: For each output the allocation that it takes over; None for a new one.
        cost: The number of copies, then the bytes of new allocations; compared in this order.
    """

    out_variant: OutVariant
    allocations: tuple[Allocation | None, ...]
    cost: tuple[int, int]


class ReuseCandidates:
    """The search for reuse candidates.

    Args:
        graph: The program.
        done: The assignment so far.
        middle: The number of the copies between the phases: later instructions may write state.
    """

    def __init__(self, graph: Graph, done: BufferAssignment, middle: int) -> None:
        self._graph = graph
        self._assignment = done
        self._phase_boundary = middle
        self._target = {new: target for target, new in reversed(list(graph.updates.items()))}

    def best_candidate(self, form: OutVariant, step: Instruction, index: int) -> ReuseCandidate | None:
        """Return the best use of an out-variant; None if an output is not a tensor."""
        homes: list[Allocation | None] = []
        copies = fresh = 0
        for number, (value, source) in enumerate(zip(step.outputs, form.overwritten_inputs, strict=True)):
            if not isinstance(value.type, TensorType):
                return None
            home = self._find_allocation(value, step, index, form, number, homes)
            homes.append(home)
            fresh += span_bytes(value.type) if home is None else 0
            copies += source is not None and not self.resides_in(step.inputs[source], home)
        return ReuseCandidate(form, tuple(homes), (copies, fresh))

    def resides_in(self, value: Value, piece: Allocation | None) -> bool:
        """Return whether a value resides in an allocation."""
        return piece is not None and piece in self._assignment.allocations_of[value]

    def _find_allocation(
        self,
        value: Value,
        step: Instruction,
        index: int,
        form: OutVariant,
        number: int,
        taken: Sequence[Allocation | None],
    ) -> Allocation | None:
        """Return the allocation that an output can take over; None if it needs a new one."""
        source = form.overwritten_inputs[number]
        readable = form.reusable_inputs if source is None else frozenset([source])
        candidates: list[Allocation] = []
        # Donation comes first: it saves the copy into the state at the end.
        target = self._target.get(value)
        if target is not None and index > self._phase_boundary and target.type == value.type:
            candidates += self._assignment.allocations_of[target]
        for operand in sorted(readable):
            candidates += self._assignment.allocations_of[step.inputs[operand]]
        for piece in candidates:
            # `taken`: two outputs of one call never share memory.
            if piece not in taken and self._is_free(piece, value, step, index, readable):
                return piece
        return None

    def _is_free(
        self, piece: Allocation, value: Value, step: Instruction, index: int, readable: frozenset[int]
    ) -> bool:
        """Return whether an instruction may overwrite the whole of an allocation with an output."""
        # Inputs and constants are never overwritten, and state only after everything that may fail.
        is_state = index > self._phase_boundary and piece.owner in self._graph.updates
        if piece.kind is not BufferKind.ARENA and not is_state:
            return False
        if piece.owner.type != value.type or self._assignment.last_use_of(piece) > index:
            return False
        reading = [
            at for at, item in enumerate(step.inputs) if piece in self._assignment.allocations_of[item]
        ]
        # A view may have a lazy conj/neg bit: the memory then holds other numbers than the operand.
        if any(self._assignment.kinds[step.inputs[at]] is BufferKind.VIEW for at in reading):
            return False
        return not reading or (
            len(reading) == 1
            and reading[0] in readable
            and step.inputs[reading[0]].type == value.type
            and self._assignment.is_fixed(step.inputs[reading[0]])
        )

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
from npu_runtime.planned.buffers import Allocation, BufferAssignment, BufferKind
from npu_runtime.probing.out_variants import OutVariant


@dataclass(frozen=True, slots=True)
class ReuseCandidate:
    """A reuse candidate: one out-variant with the memory of its outputs.

    Attributes:
        out_variant: The out-variant.
        allocations: For each output the allocation that it takes over; None for a new one.
        cost: The number of copies, then the bytes of new allocations; compared in this order.
    """

    out_variant: OutVariant
    allocations: tuple[Allocation | None, ...]
    cost: tuple[int, int]


class ReuseCandidates:
    """The search for reuse candidates.

    Args:
        graph: The program.
        assignment: The assignment so far.
        phase_boundary: The number of the copies between the phases: later instructions may write state.
    """

    def __init__(self, graph: Graph, assignment: BufferAssignment, phase_boundary: int) -> None:
        self._graph = graph
        self._assignment = assignment
        self._phase_boundary = phase_boundary
        # Of several targets of one new content, the first one: the others are copies of it.
        self._target = {new: target for target, new in reversed(list(graph.updates.items()))}

    def best_candidate(
        self, out_variant: OutVariant, instruction: Instruction, index: int
    ) -> ReuseCandidate | None:
        """Return the best use of an out-variant; None if an output is not a tensor."""
        allocations: list[Allocation | None] = []
        copies = fresh = 0
        # Greedy: an output is not moved to make room for a later one.
        pairs = zip(instruction.outputs, out_variant.overwritten_inputs, strict=True)
        for number, (value, source) in enumerate(pairs):
            if not isinstance(value.type, TensorType):
                return None
            allocation = self._find_allocation(value, instruction, index, out_variant, number, allocations)
            allocations.append(allocation)
            fresh += span_bytes(value.type) if allocation is None else 0
            # The out-variant expects the operand's content in the output: elsewhere, it is copied there.
            copies += source is not None and not self.resides_in(instruction.inputs[source], allocation)
        return ReuseCandidate(out_variant, tuple(allocations), (copies, fresh))

    def find_target(
        self, value: Value, instruction: Instruction, index: int, taken: Sequence[Allocation | None]
    ) -> Allocation | None:
        """Return the memory of the state whose new content an output is, if a partition may write there."""
        target = self._target.get(value)
        if target is None or index <= self._phase_boundary or target.type != value.type:
            return None
        readable = frozenset(number for number, item in enumerate(instruction.inputs) if item is target)
        for allocation in self._assignment.allocations_of[target]:
            if allocation not in taken and self._is_free(allocation, value, instruction, index, readable):
                return allocation
        return None

    def resides_in(self, value: Value, allocation: Allocation | None) -> bool:
        """Return whether a value resides in an allocation."""
        return allocation is not None and allocation in self._assignment.allocations_of[value]

    def is_free(self, instruction: Instruction, number: int, index: int) -> bool:
        """Return whether an instruction may overwrite the memory of an input: nothing else needs it."""
        allocations_of = self._assignment.allocations_of
        allocations = allocations_of[instruction.inputs[number]]
        others = (*instruction.inputs[:number], *instruction.inputs[number + 1 :])
        return all(
            item.kind is BufferKind.ARENA
            and self._assignment.last_use_of(item) <= index
            and not any(item in allocations_of[other] for other in others)
            for item in allocations
        )

    def _find_allocation(
        self,
        value: Value,
        instruction: Instruction,
        index: int,
        out_variant: OutVariant,
        number: int,
        taken: Sequence[Allocation | None],
    ) -> Allocation | None:
        """Return the allocation that an output can take over; None if it needs a new one."""
        source = out_variant.overwritten_inputs[number]
        readable = out_variant.reusable_inputs if source is None else frozenset([source])
        candidates: list[Allocation] = []
        # Donation comes first: it saves the copy into the state at the end.
        target = self._target.get(value)
        if target is not None and index > self._phase_boundary and target.type == value.type:
            candidates += self._assignment.allocations_of[target]
        for operand in sorted(readable):
            candidates += self._assignment.allocations_of[instruction.inputs[operand]]
        for allocation in candidates:
            # `taken`: two outputs of one call never share memory.
            if allocation not in taken and self._is_free(allocation, value, instruction, index, readable):
                return allocation
        return None

    def _is_free(
        self,
        allocation: Allocation,
        value: Value,
        instruction: Instruction,
        index: int,
        readable: frozenset[int],
    ) -> bool:
        """Return whether an instruction may overwrite the whole of an allocation with an output."""
        # Inputs and constants are never overwritten, and state only after everything that may fail.
        is_state = index > self._phase_boundary and allocation.owner in self._graph.updates
        if allocation.kind is not BufferKind.ARENA and not is_state:
            return False
        if allocation.owner.type != value.type or self._assignment.last_use_of(allocation) > index:
            return False
        allocations_of = self._assignment.allocations_of
        operands = [
            (number, item)
            for number, item in enumerate(instruction.inputs)
            if allocation in allocations_of[item]
        ]
        # A view may have a lazy conj/neg bit: the memory then holds other numbers than the operand.
        if any(self._assignment.kinds[item] is BufferKind.VIEW for _, item in operands):
            return False
        # Read once at most, by an operand of which each element is read before its own place is written.
        if not operands:
            return True
        number, operand = operands[0]
        is_read_once = len(operands) == 1 and number in readable
        return is_read_once and operand.type == value.type and self._assignment.is_fixed(operand)

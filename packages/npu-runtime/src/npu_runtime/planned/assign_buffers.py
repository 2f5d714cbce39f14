"""Buffer assignment: the callable of each instruction, and the memory of each value.

One greedy pass in program order. For each instruction:

1. A view of one fixed allocation is created at bind time and costs nothing per run.
2. A partition of another backend is bound to fixed buffers.
3. Otherwise each out-variant is matched with reuse candidates (`buffer_reuse`): in-place reuse of an operand
   at its last use, and donation of the state whose new content is computed. The out-variant with the fewest
   copies wins, then the one with the least new memory; outputs without a candidate get a new allocation in
   the arena.
4. An instruction without out-variant allocates its outputs in each run (dynamic values).

Offsets are assigned afterwards, from the sizes and live ranges of all allocations: greedy by size (`arena`).

Live ranges are intervals of instruction numbers: the compute phase from 0, the copies between the phases at
``_phase_boundary``, the commit phase from the number after it, the copies into state at ``_end``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npu_ir import Graph, TensorType, Value
from npu_ir.core.storage import has_overlapping_elements
from npu_ir.ops.calls import Binding
from npu_passes.ops.training import BIND
from npu_runtime.lowering.instruction import Instruction, Returns
from npu_runtime.planned.binding import DeferredBinding
from npu_runtime.planned.buffer_reuse import ReuseCandidate, ReuseCandidates
from npu_runtime.planned.buffers import (
    Alias,
    Allocation,
    BufferAssignment,
    BufferKind,
    Evaluate,
    is_plannable,
)
from npu_runtime.planned.copies import append_staging_copies, commit_copies, copy_instruction


class BufferAssigner:
    """Buffer assigner: one greedy pass over the instructions.

    ``constants`` are known at bind time, in order; the instructions ``once`` compute some of these.
    """

    def __init__(
        self,
        graph: Graph,
        compute: Sequence[Instruction],
        commit: Sequence[Instruction],
        constants: Sequence[Value],
        once: Sequence[Instruction],
    ) -> None:
        self.assignment = BufferAssignment()
        self._graph = graph
        self._compute, self._commit = compute, commit
        self._phase_boundary = len(compute)  # the number of the copies between the phases
        self._end = self._phase_boundary + len(commit) + 1
        self.assignment.last_use = self._last_reads()
        self._reuse = ReuseCandidates(graph, self.assignment, self._phase_boundary)
        for value in (*graph.inputs, *graph.arguments):
            if value not in self.assignment.kinds and value not in constants:
                self._assign_argument(value)
        for value in constants:
            self.assignment.assign_new(value, BufferKind.CONSTANT)
        self.assignment.actions += [Evaluate(instruction) for instruction in once]

    def assign(self) -> BufferAssignment:
        """Assign all buffers; return the assignment."""
        for index, instruction in enumerate(self._compute):
            self.assignment.compute += self._assign_outputs(instruction, index)
        late = {value for instruction in self._commit for value in instruction.outputs}
        append_staging_copies(self._graph, self.assignment, late, self._phase_boundary, self._end)
        for index, instruction in enumerate(self._commit_through_copies(), self._phase_boundary + 1):
            self.assignment.commit += self._assign_outputs(instruction, index)
        self.assignment.commit += commit_copies(self._graph, self.assignment, self._end)
        return self.assignment

    def _commit_through_copies(self) -> list[Instruction]:
        """Return the commit instructions, reading dynamic values of the compute phase through staging copies.

        So gradients have fixed addresses even if an op allocates them, and an optimizer checks its tensor
        lists once.
        """
        copies: dict[Value, Value] = {}
        read = dict.fromkeys(value for instruction in self._commit for value in instruction.inputs)
        defined_at = {
            value: index for index, instruction in enumerate(self._compute) for value in instruction.outputs
        }
        for value in read:
            is_dynamic = self.assignment.kinds.get(value) is BufferKind.DYNAMIC
            if not is_dynamic or value not in defined_at or not is_plannable(value):
                continue
            copies[value] = self.assignment.add_staging_copy(
                value, defined_at[value], self.assignment.last_use[value]
            )
            producer = next(
                position
                for position, call in enumerate(self.assignment.compute)
                if any(item is value for item in call.outputs)
            )
            # Right after its producer, not between the phases: the dynamic tensor is freed early.
            self.assignment.compute.insert(producer + 1, copy_instruction(copies[value], value))
            # The commit phase reads the copy: the value itself ends with its last reader before.
            others = (index for index, reader in enumerate(self._compute) if value in reader.inputs)
            self.assignment.last_use[value] = max(others, default=defined_at[value])
        return [
            replace(instruction, inputs=tuple(copies.get(value, value) for value in instruction.inputs))
            for instruction in self._commit
        ]

    # Arguments

    def _assign_argument(self, value: Value) -> None:
        assert value.argument is not None
        if not isinstance(value.type, TensorType):
            self.assignment.kinds[value], self.assignment.allocations_of[value] = BufferKind.SCALAR, ()
            return
        is_input = value.argument.kind.value == "input"
        self.assignment.assign_new(value, BufferKind.INPUT if is_input else BufferKind.STATE)

    def _last_reads(self) -> dict[Value, int]:
        last: dict[Value, int] = {}
        numbered = [*enumerate(self._compute), *enumerate(self._commit, self._phase_boundary + 1)]
        for index, instruction in numbered:
            last.update(dict.fromkeys((*instruction.inputs, *instruction.outputs), index))
        for value in self._graph.returned_values:
            # An argument that is returned is copied between the phases.
            last[value] = (
                self._end if value.argument is None else max(last.get(value, 0), self._phase_boundary)
            )
        return last

    # Instructions

    def _assign_outputs(self, instruction: Instruction, index: int) -> list[Instruction]:
        """Assign the outputs of an instruction; return the instructions to run in its place."""
        if self._is_fixed_view(instruction):
            self._assign_view(instruction)
            return []
        if instruction.is_partition:
            return self._assign_partition(instruction, index)
        out_variants = instruction.traits.out_variants if instruction.traits is not None else ()
        candidates = [
            candidate
            for out_variant in out_variants
            if (candidate := self._reuse.best_candidate(out_variant, instruction, index)) is not None
        ]
        if not candidates:
            self._mark_dynamic(instruction)
            return [instruction]
        # Of equal costs, the first one: out-variants are in order of speed.
        best = min(candidates, key=lambda candidate: candidate.cost)
        return self._assign_candidate(best, instruction, index)

    def _is_fixed_view(self, instruction: Instruction) -> bool:
        """Return whether an instruction is a view of one allocation, the same in each run."""
        traits = instruction.traits
        if traits is None or not traits.is_view or instruction.needs_symbols or instruction.is_partition:
            return False
        shared = frozenset[int]().union(*traits.shares)
        viewed = {
            allocation
            for index in shared
            for allocation in self.assignment.allocations_of[instruction.inputs[index]]
        }
        return (
            len(viewed) == 1
            and len(shared) == len(instruction.inputs)
            and all(map(self.assignment.is_fixed, instruction.inputs))
        )

    def _assign_view(self, instruction: Instruction) -> None:
        self.assignment.actions.append(Evaluate(instruction))
        for value in instruction.outputs:
            self.assignment.kinds[value] = BufferKind.VIEW
            self.assignment.assign_existing(value, self.assignment.allocations_of[instruction.inputs[0]])

    def _mark_dynamic(self, instruction: Instruction) -> None:
        """Mark the outputs of an instruction as allocated by its op in each run."""
        for value, shared in zip(instruction.outputs, instruction.shares, strict=True):
            is_tensor = isinstance(value.type, TensorType)
            self.assignment.kinds[value] = BufferKind.DYNAMIC if is_tensor else BufferKind.SCALAR
            # It may be a view of any of these: they stay allocated until its own last use.
            viewed = dict.fromkeys(
                allocation
                for index in shared
                for allocation in self.assignment.allocations_of[instruction.inputs[index]]
            )
            self.assignment.assign_existing(value, tuple(viewed) if is_tensor else ())
            if is_tensor:
                self.assignment.reasons[value] = _dynamic_reason(instruction)
                if instruction.traits is None or not instruction.traits.is_view:
                    self.assignment.allocated.append(value)

    # Instructions with an out-variant

    def _assign_candidate(
        self, candidate: ReuseCandidate, instruction: Instruction, index: int
    ) -> list[Instruction]:
        """Assign the outputs of an instruction to a reuse candidate; return the instructions to run."""
        calls = []
        for value, allocation, source in zip(
            instruction.outputs, candidate.allocations, candidate.out_variant.overwritten_inputs, strict=True
        ):
            is_there = source is not None and self._reuse.resides_in(instruction.inputs[source], allocation)
            self._place_output(value, allocation, index)
            if source is not None and not is_there:
                calls.append(copy_instruction(value, instruction.inputs[source]))
        written = replace(
            instruction,
            kernel=candidate.out_variant.kernel,
            function=candidate.out_variant.function,
            binding=candidate.out_variant.binding,
            inputs=(*instruction.inputs, *instruction.outputs),
            outputs=(),
            returns=Returns.NOTHING,
            traits=None,
        )
        if not calls and set(self._graph.outputs).issuperset(instruction.outputs):
            self.assignment.functional[written] = instruction
        return [*calls, self._bind_lists(written)]

    def _place_output(self, value: Value, allocation: Allocation | None, index: int) -> None:
        """Give an output new memory in the arena, or the memory that it takes over."""
        if allocation is None:
            self.assignment.assign_new(value, BufferKind.ARENA, index)
            return
        self.assignment.kinds[value] = allocation.kind
        self.assignment.actions.append(Alias(value, allocation.owner))
        self.assignment.assign_existing(value, [allocation])

    def _bind_lists(self, instruction: Instruction) -> Instruction:
        """Return an optimizer instruction with its lists of fixed tensors bound; any other one unchanged."""
        bind = BIND.get(instruction.node.op_type)
        lists = instruction.binding.positional
        if bind is None or not all(type(item) is list for item in lists):
            return instruction
        values = [[instruction.inputs[slot.index] for slot in item] for item in lists]
        if not all(self.assignment.is_fixed(value) for item in values for value in item):
            return instruction
        return replace(
            instruction,
            function=DeferredBinding(values, bind),
            binding=replace(instruction.binding, positional=()),
        )

    # Partitions of other backends

    def _assign_partition(self, instruction: Instruction, index: int) -> list[Instruction]:
        """Return a partition bound to fixed buffers.

        Staging copies precede it: of dynamic inputs, and of those that it overwrites and others need.
        """
        outputs = instruction.outputs
        if not all(
            is_plannable(value) and not has_overlapping_elements(value.type)
            for value in (*instruction.inputs, *outputs)
        ):
            # An overlap stated in a type promises nothing about the tensors of a call.
            self._mark_dynamic(instruction)
            return [instruction]
        call = instruction.partition
        assert call is not None
        calls, inputs = [], []
        for number, value in enumerate(instruction.inputs):
            is_needed = number in call.overwritten and not self._reuse.is_free(instruction, number, index)
            if is_needed or not self.assignment.is_fixed(value):
                inputs.append(self.assignment.add_staging_copy(value, index, index))
                calls.append(copy_instruction(inputs[-1], value))
            else:
                inputs.append(value)
        taken: list[Allocation | None] = []
        for value in outputs:
            found = (
                self._reuse.find_target(value, instruction, index, taken) if call.updates_in_place else None
            )
            taken.append(found)
            self._place_output(value, found, index)
        bound = replace(
            instruction,
            function=DeferredBinding([inputs, outputs], call.bind),
            binding=Binding((), {}),
            inputs=(*inputs, *outputs),
            outputs=(),
            returns=Returns.NOTHING,
            traits=None,
        )
        return [*calls, bound]


def _dynamic_reason(instruction: Instruction) -> str:
    """Return the reason that the outputs of an instruction are allocated in each run."""
    if instruction.traits is None or not instruction.traits.is_certain:
        return "nothing is known of what the op does with memory"
    if instruction.traits.is_view:
        return "a view of what is made in each run, or that depends on numbers"
    return "the op has no kernel that writes into given memory and leaves the same bits"

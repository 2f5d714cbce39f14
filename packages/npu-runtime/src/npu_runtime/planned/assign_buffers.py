"""Buffer assignment: the callable of each instruction, and the memory of each value.

One greedy pass in program order. For each instruction:

1. A view of one fixed allocation is created at bind time and costs nothing per run.
2. A partition of another backend is bound to fixed buffers.
3. Otherwise each out-variant is matched with reuse candidates (`homes`): in-place reuse of an operand at
   its last use, and donation of the state whose new content is computed. The out-variant with the fewest
   copies wins, then the one with the least new memory; outputs without a candidate get a new allocation in
   the arena.
4. An instruction without out-variant allocates its outputs in each run (dynamic values).

Offsets are assigned afterwards, from the sizes and live ranges of all allocations: greedy by size (`arena`).

Live ranges are intervals of instruction numbers: the compute phase from 0, the copies between the phases at
``middle``, the commit phase from ``middle + 1``, the copies into state at ``end``.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import replace

from npu_ir import Graph, TensorType, Value
from npu_ir.core.storage import has_overlapping_elements
from npu_ir.ops.calls import Binding
from npu_passes.ops.training import BIND
from npu_runtime.lowering.aten_calls import ObservedInstruction
from npu_runtime.lowering.backend_calls import bind_partition
from npu_runtime.lowering.instruction import Instruction, Returns
from npu_runtime.planned.assignment import BufferAssignment, is_plannable
from npu_runtime.planned.buffer_reuse import ReuseCandidate, ReuseCandidates
from npu_runtime.planned.buffers import Alias, Allocation, BufferKind, Evaluate
from npu_runtime.planned.copies import append_staging_copies, commit_copies, copy_instruction
from npu_runtime.planned.unbound import DeferredBinding


class BufferAssigner:
    """Buffer assigner: one greedy pass over the instructions.

    Args:
        graph: The program.
        compute: The instructions of the compute phase.
        commit: The instructions of the commit phase.
        constants: The values that are known at bind time, in order.
        once: The instructions that compute some of these.
    """

    def __init__(
        self,
        graph: Graph,
        compute: Sequence[ObservedInstruction],
        commit: Sequence[ObservedInstruction],
        constants: Sequence[Value],
        once: Sequence[ObservedInstruction],
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
            self.assignment.assign_new(value, Allocation(value, BufferKind.CONSTANT))
        self.assignment.actions += [Evaluate(item.instruction) for item in once]

    def assign(self) -> BufferAssignment:
        """Assign all buffers; return the assignment."""
        for index, item in enumerate(self._compute):
            self.assignment.compute += self._assign_outputs(item, index)
        late = {value for item in self._commit for value in item.instruction.outputs}
        append_staging_copies(self._graph, self.assignment, late, self._phase_boundary, self._end)
        for index, item in enumerate(self._commit_through_copies()):
            self.assignment.commit += self._assign_outputs(item, self._phase_boundary + 1 + index)
        self.assignment.commit += commit_copies(self._graph, self.assignment, self._end)
        return self.assignment

    def _commit_through_copies(self) -> list[ObservedInstruction]:
        """Return the commit instructions, reading dynamic values of the compute phase through staging copies.

        So gradients have fixed addresses even if an op allocates them, and an optimizer checks its tensor
        lists once.
        """
        copies: dict[Value, Value] = {}
        read = dict.fromkeys(value for item in self._commit for value in item.instruction.inputs)
        defined_at = {
            value: index for index, item in enumerate(self._compute) for value in item.instruction.outputs
        }
        for value in read:
            is_made = self.assignment.kinds.get(value) is BufferKind.DYNAMIC
            if not is_made or value not in defined_at or not is_plannable(value):
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
            others = (index for index, item in enumerate(self._compute) if value in item.instruction.inputs)
            self.assignment.last_use[value] = max(others, default=defined_at[value])
        return [
            ObservedInstruction(
                replace(
                    item.instruction,
                    inputs=tuple(copies.get(value, value) for value in item.instruction.inputs),
                ),
                item.traits,
            )
            for item in self._commit
        ]

    # Arguments

    def _assign_argument(self, value: Value) -> None:
        assert value.argument is not None
        if not isinstance(value.type, TensorType):
            self.assignment.kinds[value], self.assignment.allocations_of[value] = BufferKind.SCALAR, ()
            return
        is_input = value.argument.kind.value == "input"
        self.assignment.assign_new(
            value, Allocation(value, BufferKind.INPUT if is_input else BufferKind.STATE)
        )

    def _last_reads(self) -> dict[Value, int]:
        last: dict[Value, int] = {}
        numbered = [*enumerate(self._compute), *enumerate(self._commit, self._phase_boundary + 1)]
        for index, item in numbered:
            last.update(dict.fromkeys((*item.instruction.inputs, *item.instruction.outputs), index))
        for value in self._graph.returned_values:
            # An argument that is returned is copied between the phases.
            last[value] = (
                self._end if value.argument is None else max(last.get(value, 0), self._phase_boundary)
            )
        return last

    # Instructions

    def _assign_outputs(self, item: ObservedInstruction, index: int) -> list[Instruction]:
        """Assign the outputs of an instruction; return the instructions to run in its place."""
        if self._is_fixed_view(item):
            self._assign_view(item)
            return []
        if item.instruction.is_partition:
            return self._assign_partition(item, index)
        forms = item.traits.out_variants if item.traits is not None else ()
        offers = [
            offer
            for form in forms
            if (offer := self._reuse.best_candidate(form, item.instruction, index)) is not None
        ]
        if not offers:
            self._mark_dynamic(item)
            return [item.instruction]
        return self._assign_candidate(min(offers, key=lambda offer: offer.cost), item.instruction, index)

    def _is_fixed_view(self, item: ObservedInstruction) -> bool:
        step, seen = item.instruction, item.traits
        if seen is None or not seen.is_view or step.needs_symbols or step.is_partition:
            return False
        shared = frozenset[int]().union(*seen.shares)
        pieces = {piece for index in shared for piece in self.assignment.allocations_of[step.inputs[index]]}
        return (
            len(pieces) == 1
            and len(shared) == len(step.inputs)
            and all(map(self.assignment.is_fixed, step.inputs))
        )

    def _assign_view(self, item: ObservedInstruction) -> None:
        self.assignment.actions.append(Evaluate(item.instruction))
        for value in item.instruction.outputs:
            self.assignment.kinds[value] = BufferKind.VIEW
            self.assignment.assign_existing(value, self.assignment.allocations_of[item.instruction.inputs[0]])

    def _mark_dynamic(self, item: ObservedInstruction) -> None:
        """Mark the outputs of an instruction as allocated by its op in each run."""
        for value, shared in zip(item.instruction.outputs, item.shares, strict=True):
            is_tensor = isinstance(value.type, TensorType)
            self.assignment.kinds[value] = BufferKind.DYNAMIC if is_tensor else BufferKind.SCALAR
            pieces = {
                piece: None
                for index in shared
                for piece in self.assignment.allocations_of[item.instruction.inputs[index]]
            }
            self.assignment.assign_existing(value, tuple(pieces) if is_tensor else ())
            if is_tensor:
                self.assignment.reasons[value] = _dynamic_reason(item)
                if item.traits is None or not item.traits.is_view:
                    self.assignment.allocated.append(value)

    # Instructions with an out-variant

    def _assign_candidate(self, offer: ReuseCandidate, step: Instruction, index: int) -> list[Instruction]:
        """Assign the outputs of an instruction to a reuse candidate; return the instructions to run."""
        calls = []
        for value, home, source in zip(
            step.outputs, offer.allocations, offer.out_variant.overwritten_inputs, strict=True
        ):
            is_there = source is not None and self._reuse.resides_in(step.inputs[source], home)
            if home is None:
                self.assignment.assign_new(value, Allocation(value, BufferKind.ARENA, first=index))
            else:
                self.assignment.kinds[value] = home.kind
                self.assignment.actions.append(Alias(value, home.owner))
                self.assignment.assign_existing(value, [home])
            if source is not None and not is_there:
                calls.append(copy_instruction(value, step.inputs[source]))
        written = replace(
            step,
            kernel=offer.out_variant.kernel,
            function=offer.out_variant.function,
            binding=offer.out_variant.binding,
            inputs=(*step.inputs, *step.outputs),
            outputs=(),
            returns=Returns.NOTHING,
        )
        return [*calls, self._bind_lists(written)]

    def _bind_lists(self, step: Instruction) -> Instruction:
        """Return an optimizer instruction with its lists of fixed tensors bound; any other one unchanged."""
        bind = BIND.get(step.node.op_type)
        lists = step.binding.positional
        if bind is None or not all(type(item) is list for item in lists):
            return step
        values = [[step.inputs[slot.index] for slot in item] for item in lists]
        if not all(self.assignment.is_fixed(value) for item in values for value in item):
            return step
        return replace(
            step, function=DeferredBinding(values, bind), binding=replace(step.binding, positional=())
        )

    # Partitions of other backends

    def _assign_partition(self, item: ObservedInstruction, index: int) -> list[Instruction]:
        """Return a partition bound to fixed buffers, preceded by staging copies of dynamic inputs."""
        step = item.instruction
        if not all(
            is_plannable(value) and not has_overlapping_elements(value.type)
            for value in (*step.inputs, *step.outputs)
        ):
            self._mark_dynamic(item)  # stated overlaps of elements are no promise about the tensors of a call
            return [step]
        calls, inputs = [], []
        for value in step.inputs:
            if not self.assignment.is_fixed(value):
                inputs.append(self.assignment.add_staging_copy(value, index, index))
                calls.append(copy_instruction(inputs[-1], value))
            else:
                inputs.append(value)
        for value in step.outputs:
            self.assignment.assign_new(value, Allocation(value, BufferKind.ARENA, first=index))
        ends = replace(step, inputs=(*inputs, *step.outputs), outputs=(), returns=Returns.NOTHING)
        assert step.prepared is not None
        bind = functools.partial(bind_partition, step.prepared, [value.type for value in step.inputs])
        function = DeferredBinding([inputs, step.outputs], bind)
        calls.append(replace(ends, function=function, binding=Binding((), {})))
        return calls


def _dynamic_reason(item: ObservedInstruction) -> str:
    """Return the reason that the outputs of an instruction are allocated in each run."""
    if item.traits is None or not item.traits.is_certain:
        return "nothing is known of what the op does with memory"
    if item.traits.is_view:
        return "a view of what is made in each run, or that depends on numbers"
    return "the op has no kernel that writes into given memory and leaves the same bits"

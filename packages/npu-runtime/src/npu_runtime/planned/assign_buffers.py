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
from npu_ir.ops.calls import Binding
from npu_passes.ops.training import BIND
from npu_runtime.lowering.aten_calls import NodeStep
from npu_runtime.lowering.backend_calls import bind_segment
from npu_runtime.lowering.instruction import Returns, Step
from npu_runtime.planned.assignment import Placement, is_placeable
from npu_runtime.planned.buffer_reuse import Homes, Offer
from npu_runtime.planned.buffers import Kind, Once, Piece, Same
from npu_runtime.planned.copies import copies_at_the_end, copies_between, copy_call
from npu_runtime.planned.unbound import Unbound
from npu_runtime.probing.storage import overlaps


class Placer:
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
        compute: Sequence[NodeStep],
        commit: Sequence[NodeStep],
        constants: Sequence[Value],
        once: Sequence[NodeStep],
    ) -> None:
        self.done = Placement()
        self._graph = graph
        self._compute, self._commit = compute, commit
        self._middle = len(compute)  # the number of the copies between the phases
        self._end = self._middle + len(commit) + 1
        self.done.last = self._last_reads()
        self._homes = Homes(graph, self.done, self._middle)
        for value in (*graph.inputs, *graph.arguments):
            if value not in self.done.kinds and value not in constants:
                self._from_outside(value)
        for value in constants:
            self.done.put(value, Piece(value, Kind.CONSTANT))
        self.done.actions += [Once(item.step) for item in once]

    def placed(self) -> Placement:
        """Assign all buffers; return the assignment."""
        for index, item in enumerate(self._compute):
            self.done.compute += self._calls(item, index)
        late = {value for item in self._commit for value in item.step.outputs}
        copies_between(self._graph, self.done, late, self._middle, self._end)
        for index, item in enumerate(self._handed_over()):
            self.done.commit += self._calls(item, self._middle + 1 + index)
        self.done.commit += copies_at_the_end(self._graph, self.done, self._end)
        return self.done

    def _handed_over(self) -> list[NodeStep]:
        """Return the commit instructions, reading dynamic values of the compute phase through staging copies.

        So gradients have fixed addresses even if an op allocates them, and an optimizer checks its tensor
        lists once.
        """
        copies: dict[Value, Value] = {}
        read = dict.fromkeys(value for item in self._commit for value in item.step.inputs)
        defined_at = {value: index for index, item in enumerate(self._compute) for value in item.step.outputs}
        for value in read:
            is_made = self.done.kinds.get(value) is Kind.MADE
            if not is_made or value not in defined_at or not is_placeable(value):
                continue
            copies[value] = self.done.stand_in(value, defined_at[value], self.done.last[value])
            producer = next(
                position
                for position, call in enumerate(self.done.compute)
                if any(item is value for item in call.outputs)
            )
            # Right after its producer, not between the phases: the dynamic tensor is freed early.
            self.done.compute.insert(producer + 1, copy_call(copies[value], value))
            others = (index for index, item in enumerate(self._compute) if value in item.step.inputs)
            self.done.last[value] = max(others, default=defined_at[value])
        return [
            NodeStep(
                replace(item.step, inputs=tuple(copies.get(value, value) for value in item.step.inputs)),
                item.seen,
            )
            for item in self._commit
        ]

    # Arguments

    def _from_outside(self, value: Value) -> None:
        assert value.argument is not None
        if not isinstance(value.type, TensorType):
            self.done.kinds[value], self.done.lies_in[value] = Kind.NUMBER, ()
            return
        is_input = value.argument.kind.value == "input"
        self.done.put(value, Piece(value, Kind.INPUT if is_input else Kind.STATE))

    def _last_reads(self) -> dict[Value, int]:
        last: dict[Value, int] = {}
        numbered = [*enumerate(self._compute), *enumerate(self._commit, self._middle + 1)]
        for index, item in numbered:
            last.update(dict.fromkeys((*item.step.inputs, *item.step.outputs), index))
        returned = [*self._graph.results[1], *self._graph.updates.values()]
        for value in returned:
            if isinstance(value, Value):
                # An argument that is returned is copied between the phases.
                last[value] = self._end if value.argument is None else max(last.get(value, 0), self._middle)
        return last

    # Instructions

    def _calls(self, item: NodeStep, index: int) -> list[Step]:
        """Assign the outputs of an instruction; return the instructions to run in its place."""
        if self._is_fixed_view(item):
            self._view(item)
            return []
        if item.step.is_segment:
            return self._segment_calls(item, index)
        forms = item.seen.forms if item.seen is not None else ()
        offers = [offer for form in forms if (offer := self._homes.offer(form, item.step, index)) is not None]
        if not offers:
            self._make(item)
            return [item.step]
        return self._take(min(offers, key=lambda offer: offer.cost), item.step, index)

    def _is_fixed_view(self, item: NodeStep) -> bool:
        step, seen = item.step, item.seen
        if seen is None or not seen.is_view or step.needs_symbols or step.is_segment:
            return False
        shared = frozenset[int]().union(*seen.shares)
        pieces = {piece for index in shared for piece in self.done.lies_in[step.inputs[index]]}
        return (
            len(pieces) == 1 and len(shared) == len(step.inputs) and all(map(self.done.is_fixed, step.inputs))
        )

    def _view(self, item: NodeStep) -> None:
        self.done.actions.append(Once(item.step))
        for value in item.step.outputs:
            self.done.kinds[value] = Kind.VIEW
            self.done.lay_in(value, self.done.lies_in[item.step.inputs[0]])

    def _make(self, item: NodeStep) -> None:
        """Mark the outputs of an instruction as allocated by its op in each run."""
        for value, shared in zip(item.step.outputs, item.shares, strict=True):
            is_tensor = isinstance(value.type, TensorType)
            self.done.kinds[value] = Kind.MADE if is_tensor else Kind.NUMBER
            pieces = {piece: None for index in shared for piece in self.done.lies_in[item.step.inputs[index]]}
            self.done.lay_in(value, tuple(pieces) if is_tensor else ())
            if is_tensor:
                self.done.reasons[value] = _reason(item)
                if item.seen is None or not item.seen.is_view:
                    self.done.allocated.append(value)

    # Instructions with an out-variant

    def _take(self, offer: Offer, step: Step, index: int) -> list[Step]:
        """Assign the outputs of an instruction to a reuse candidate; return the instructions to run."""
        calls = []
        for value, home, source in zip(step.outputs, offer.homes, offer.form.over, strict=True):
            is_there = source is not None and self._homes.is_in(step.inputs[source], home)
            if home is None:
                self.done.put(value, Piece(value, Kind.ARENA, first=index))
            else:
                self.done.kinds[value] = home.kind
                self.done.actions.append(Same(value, home.owner))
                self.done.lay_in(value, [home])
            if source is not None and not is_there:
                calls.append(copy_call(value, step.inputs[source]))
        written = replace(
            step,
            kernel=offer.form.kernel,
            function=offer.form.function,
            binding=offer.form.binding,
            inputs=(*step.inputs, *step.outputs),
            outputs=(),
            returns=Returns.NOTHING,
        )
        return [*calls, self._bound_to_lists(written)]

    def _bound_to_lists(self, step: Step) -> Step:
        """Return an optimizer instruction with its lists of fixed tensors bound; any other one unchanged."""
        bind = BIND.get(step.node.op_type)
        lists = step.binding.positional
        if bind is None or not all(type(item) is list for item in lists):
            return step
        values = [[step.inputs[slot.index] for slot in item] for item in lists]
        if not all(self.done.is_fixed(value) for item in values for value in item):
            return step
        return replace(step, function=Unbound(values, bind), binding=replace(step.binding, positional=()))

    # Partitions of other backends

    def _segment_calls(self, item: NodeStep, index: int) -> list[Step]:
        """Return a partition bound to fixed buffers, preceded by staging copies of dynamic inputs."""
        step = item.step
        if not all(
            is_placeable(value) and not overlaps(value.type) for value in (*step.inputs, *step.outputs)
        ):
            self._make(item)  # stated overlaps of elements are no promise about the tensors of a call
            return [step]
        calls, inputs = [], []
        for value in step.inputs:
            if not self.done.is_fixed(value):
                inputs.append(self.done.stand_in(value, index, index))
                calls.append(copy_call(inputs[-1], value))
            else:
                inputs.append(value)
        for value in step.outputs:
            self.done.put(value, Piece(value, Kind.ARENA, first=index))
        ends = replace(step, inputs=(*inputs, *step.outputs), outputs=(), returns=Returns.NOTHING)
        assert step.prepared is not None
        bind = functools.partial(bind_segment, step.prepared, [value.type for value in step.inputs])
        function = Unbound([inputs, step.outputs], bind)
        calls.append(replace(ends, function=function, binding=Binding((), {})))
        return calls


def _reason(item: NodeStep) -> str:
    """Return the reason that the outputs of an instruction are allocated in each run."""
    if item.seen is None or not item.seen.is_certain:
        return "nothing is known of what the op does with memory"
    if item.seen.is_view:
        return "a view of what is made in each run, or that depends on numbers"
    return "the op has no kernel that writes into given memory and leaves the same bits"

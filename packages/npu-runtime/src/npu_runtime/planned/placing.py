"""Deciding for each step what is called, and for each value where it lies."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.node import NO_PROVENANCE
from npu_ir.ops.calls import Binding, Slot
from npu_passes.training_ops import BIND
from npu_runtime.forms import Form
from npu_runtime.node_steps import ATEN, NodeStep
from npu_runtime.planned.places import Action, Kind, Once, Piece, Same, Whole, bytes_of, dense_type
from npu_runtime.planned.unbound import Unbound
from npu_runtime.steps import Returns, Step


@dataclass(slots=True)
class Placement:
    """What was decided.

    Attributes:
        actions: What binding does, in order.
        pieces: The fixed memory.
        kinds: Of each value.
        lies_in: The pieces in which a value lies, or may lie.
        reasons: Why a value is made in each run.
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


class Placer:
    """Places values step by step.

    Args:
        graph: The program.
        compute: The steps of the first phase.
        commit: The steps of the second one.
        constants: Values that are known when the program is bound, in order.
        once: The steps that make some of them.
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
        self._target = {new: target for target, new in reversed(list(graph.updates.items()))}
        self._ids = count(-1, -1)
        for value in (*graph.inputs, *graph.arguments):
            if value not in self.done.kinds and value not in constants:
                self._from_outside(value)
        for value in constants:
            self._put(value, Piece(value, Kind.CONSTANT))
        self.done.actions += [Once(item.step) for item in once]

    def placed(self) -> Placement:
        """Place everything; returns what was decided."""
        for index, item in enumerate(self._compute):
            self.done.compute += self._calls(item, index)
        new = self._kept_apart()
        for index, item in enumerate(self._commit):
            self.done.commit += self._calls(item, self._middle + 1 + index)
        self.done.commit += self._copies(new)
        return self.done

    # Values from outside

    def _from_outside(self, value: Value) -> None:
        assert value.argument is not None
        if not isinstance(value.type, TensorType):
            self.done.kinds[value], self.done.lies_in[value] = Kind.NUMBER, ()
            return
        is_input = value.argument.kind.value == "input"
        self._put(value, Piece(value, Kind.INPUT if is_input else Kind.STATE))

    def _put(self, value: Value, piece: Piece) -> None:
        """Make a value the whole of a new piece of memory."""
        self.done.pieces.append(piece)
        self.done.kinds[value] = piece.kind
        self.done.actions.append(Whole(value, piece))
        self._lies_in(value, [piece])

    def _lies_in(self, value: Value, pieces: Sequence[Piece]) -> None:
        self.done.last.setdefault(value, -1)
        self.done.lies_in[value] = tuple(pieces)
        for piece in pieces:
            piece.values.append(value)

    def _last_reads(self) -> dict[Value, int]:
        last: dict[Value, int] = {}
        numbered = [*enumerate(self._compute), *enumerate(self._commit, self._middle + 1)]
        for index, item in numbered:
            last.update(dict.fromkeys((*item.step.inputs, *item.step.outputs), index))
        returned = [*self._graph.results[1], *self._graph.updates.values()]
        for value in returned:
            if isinstance(value, Value):
                # What is there before is copied between the phases.
                last[value] = self._end if value.argument is None else max(last.get(value, 0), self._middle)
        return last

    # Steps

    def _calls(self, item: NodeStep, index: int) -> list[Step]:
        """Return the calls that do what a step does."""
        if self._is_fixed_view(item):
            self._view(item)
            return []
        if item.step.is_segment:
            return self._segment_calls(item, index)
        forms = item.seen.forms if item.seen is not None else ()
        offers = [offer for form in forms if (offer := self._offer(form, item.step, index)) is not None]
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
            self._lies_in(value, self.done.lies_in[item.step.inputs[0]])

    def _make(self, item: NodeStep) -> None:
        """Let the outputs of a step be made in each run."""
        for value, shared in zip(item.step.outputs, item.shares, strict=True):
            is_tensor = isinstance(value.type, TensorType)
            self.done.kinds[value] = Kind.MADE if is_tensor else Kind.NUMBER
            pieces = {piece: None for index in shared for piece in self.done.lies_in[item.step.inputs[index]]}
            self._lies_in(value, tuple(pieces) if is_tensor else ())
            if is_tensor:
                self.done.reasons[value] = _reason(item)

    # Steps with a form

    def _offer(self, form: Form, step: Step, index: int) -> _Offer | None:
        """Return how a form could be used; None where an output cannot be planned."""
        homes: list[Piece | None] = []
        copies = fresh = 0
        for number, (value, source) in enumerate(zip(step.outputs, form.over, strict=True)):
            if not isinstance(value.type, TensorType):
                return None
            home = self._home(value, step, index, form, number, homes)
            homes.append(home)
            fresh += bytes_of(value) if home is None else 0
            copies += source is not None and not self._is_in(step.inputs[source], home)
        return _Offer(form, tuple(homes), (copies, fresh))

    def _is_in(self, value: Value, piece: Piece | None) -> bool:
        return piece is not None and piece in self.done.lies_in[value]

    def _home(
        self, value: Value, step: Step, index: int, form: Form, number: int, taken: Sequence[Piece | None]
    ) -> Piece | None:
        """Return the memory that an output can take over; None where it needs its own."""
        source = form.over[number]
        readable = form.within if source is None else frozenset([source])
        candidates: list[Piece] = []
        target = self._target.get(value)
        if target is not None and index > self._middle and target.type == value.type:
            candidates += self.done.lies_in[target]
        for operand in sorted(readable):
            candidates += self.done.lies_in[step.inputs[operand]]
        for piece in candidates:
            if piece not in taken and self._is_free(piece, value, step, index, readable):
                return piece
        return None

    def _is_free(self, piece: Piece, value: Value, step: Step, index: int, readable: frozenset[int]) -> bool:
        """Whether a step may write an output over the whole of a piece of memory."""
        is_state = index > self._middle and piece.owner in self._graph.updates
        if piece.kind is not Kind.ARENA and not is_state:
            return False
        if piece.owner.type != value.type or self.done.last_step(piece) > index:
            return False
        if value.tensor_type.dtype.is_complex and any(
            self.done.kinds[item] is Kind.VIEW for item in step.inputs
        ):
            return False  # a view may conjugate lazily: the memory holds something else
        reading = [at for at, item in enumerate(step.inputs) if piece in self.done.lies_in[item]]
        return not reading or (
            len(reading) == 1
            and reading[0] in readable
            and step.inputs[reading[0]].type == value.type
            and self.done.is_fixed(step.inputs[reading[0]])
        )

    def _take(self, offer: _Offer, step: Step, index: int) -> list[Step]:
        """Place the outputs of a step as offered; returns its calls."""
        calls = []
        for value, home, source in zip(step.outputs, offer.homes, offer.form.over, strict=True):
            is_there = source is not None and self._is_in(step.inputs[source], home)
            if home is None:
                self._put(value, Piece(value, Kind.ARENA, first=index))
            else:
                self.done.kinds[value] = home.kind
                self.done.actions.append(Same(value, home.owner))
                self._lies_in(value, [home])
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
        """Return the step of an optimizer such that it looks at its lists of tensors once; any other as it is."""
        bind = BIND.get(step.node.op_type)
        lists = step.binding.positional
        if bind is None or not all(type(item) is list for item in lists):
            return step
        values = [[step.inputs[slot.index] for slot in item] for item in lists]
        if not all(self.done.is_fixed(value) for item in values for value in item):
            return step
        return replace(step, function=Unbound(values, bind), binding=replace(step.binding, positional=()))

    # Segments of other backends

    def _segment_calls(self, item: NodeStep, index: int) -> list[Step]:
        """Return the call of a segment that is bound to fixed memory: what is made is copied there first."""
        step = item.step
        if any(not _is_placeable(value) for value in (*step.inputs, *step.outputs)):
            self._make(item)
            return [step]
        calls, inputs = [], []
        for value in step.inputs:
            if not self.done.is_fixed(value):
                inputs.append(self._stand_in(value, index, index))
                calls.append(copy_call(inputs[-1], value))
            else:
                inputs.append(value)
        for value in step.outputs:
            self._put(value, Piece(value, Kind.ARENA, first=index))
        ends = replace(step, inputs=(*inputs, *step.outputs), outputs=(), returns=Returns.NOTHING)
        assert step.prepared is not None
        bind = functools.partial(step.prepared.backend.bind, step.prepared.program)
        function = Unbound([inputs, step.outputs], bind)
        calls.append(replace(ends, function=function, binding=Binding((), {})))
        return calls

    # Copies

    def _stand_in(self, value: Value, first: int, last: int) -> Value:
        """Return a value for a copy of another."""
        type = dense_type(value.tensor_type)
        copy = Value(next(self._ids), f"{value.name}_copy", type)
        self.done.last[copy] = last
        self._put(copy, Piece(copy, Kind.ARENA, first=first))
        return copy

    def _kept_apart(self) -> dict[Value, Value]:
        """Return what stands for results and new contents that are in memory that is not the program's own.

        They are copied between the phases: what the first phase has made stays as it is.
        """
        late = {value for item in self._commit for value in item.step.outputs}
        changed = {piece for target in self._graph.updates for piece in self.done.lies_in[target]}
        found: dict[Value, Value] = {}
        for value in dict.fromkeys((*self._graph.results[1], *self._graph.updates.values())):
            if not isinstance(value, Value) or value in late or not _is_placeable(value):
                continue
            is_result = any(item is value for item in self._graph.results[1])
            is_own = self.done.is_fixed(value) and all(
                piece.kind is Kind.ARENA for piece in self.done.lies_in[value]
            )
            is_torn = not changed.isdisjoint(self.done.lies_in[value])
            is_kept = is_result or any(
                new is value and target is not value for target, new in self._graph.updates.items()
            )
            if is_kept and not is_own and (is_result or is_torn):
                found[value] = self._stand_in(value, self._middle, self._end)
                self.done.compute.append(copy_call(found[value], value))
        self.done.stand_ins.update(found)
        return found

    def _copies(self, stand_ins: Mapping[Value, Value]) -> list[Step]:
        """Return the calls that copy new contents to where they belong."""
        pairs = [
            (target, stand_ins.get(new, new))
            for target, new in self._graph.updates.items()
            if new in stand_ins or not self._is_there(target, new)
        ]
        written = {piece for target, _ in pairs for piece in self.done.lies_in[target]}
        calls = []
        for index, (target, new) in enumerate(pairs):
            if not written.isdisjoint(self.done.lies_in[new]):
                copy = self._stand_in(new, self._end, self._end)
                calls.append(copy_call(copy, new))
                pairs[index] = target, copy
        if len(pairs) < 2:
            return calls + [copy_call(target, new) for target, new in pairs]
        targets, contents = [list(items) for items in zip(*pairs, strict=True)]
        slots = [Slot(index) for index in range(2 * len(pairs))]
        several = replace(
            copy_call(targets[0], contents[0]),
            kernel="torch._C._VariableFunctions._foreach_copy_",
            function=torch._foreach_copy_,
            binding=Binding((slots[: len(pairs)], slots[len(pairs) :]), {}),
            inputs=(*targets, *contents),
        )
        return [*calls, several]

    def _is_there(self, target: Value, new: Value) -> bool:
        """Whether new content lies where it belongs."""
        is_own = self.done.kinds[new] in (Kind.STATE, Kind.INPUT)
        return new is target or (is_own and self.done.lies_in[new] == self.done.lies_in[target])


@dataclass(frozen=True, slots=True)
class _Offer:
    """How a form can be used.

    Attributes:
        homes: For each output the memory that it takes over; None for memory of its own.
        cost: How many copies it takes, and how many bytes of memory.
    """

    form: Form
    homes: tuple[Piece | None, ...]
    cost: tuple[int, int]


def copy_call(target: Value, source: Value) -> Step:
    """Return the call that copies one value to where another lies."""
    producer = source.producer or target.producer
    provenance = NO_PROVENANCE if producer is None else producer.provenance
    return Step(
        nodes=(OpNode(f"copy of {source.name}", "copy", (), None, {}, provenance),),
        backend=ATEN,
        kernel="torch._C.TensorBase.copy_",
        function=torch.Tensor.copy_,
        binding=Binding((Slot(0), Slot(1)), {}),
        inputs=(target, source),
        outputs=(),
        returns=Returns.NOTHING,
    )


def _is_placeable(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.layout is torch.strided


def _reason(item: NodeStep) -> str:
    """Return why the outputs of a step are allocated in each run."""
    if item.seen is None or not item.seen.is_certain:
        return "nothing is known of what the op does with memory"
    if item.seen.is_view:
        return "a view of what is made in each run, or that depends on numbers"
    return "the op has no kernel that writes into given memory and leaves the same bits"

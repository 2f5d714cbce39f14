"""Copies of a planned program: of results in foreign memory, and of new contents into mutated state."""

from __future__ import annotations

from dataclasses import replace

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.core.node import NO_PROVENANCE
from npu_ir.ops.calls import Binding, Slot
from npu_runtime._torch import quick_callables
from npu_runtime.lowering.aten_calls import ATEN
from npu_runtime.lowering.instruction import Returns, Step
from npu_runtime.planned.assignment import Placement, is_placeable
from npu_runtime.planned.buffers import Kind


def copies_between(
    graph: Graph, done: Placement, late: set[Value], middle: int, end: int
) -> dict[Value, Value]:
    """Append staging copies to the compute phase, before the other phase writes state; return them by value.

    Copied are results that do not reside in the arena, and new contents in memory that the commit phase
    writes.
    """
    changed = {piece for target in graph.updates for piece in done.lies_in[target]}
    copies: dict[Value, Value] = {}
    for value in dict.fromkeys((*graph.results[1], *graph.updates.values())):
        if not isinstance(value, Value) or value in late or not is_placeable(value):
            continue
        is_result = any(item is value for item in graph.results[1])
        is_own = done.is_fixed(value) and all(piece.kind is Kind.ARENA for piece in done.lies_in[value])
        # The commit phase writes into its memory.
        is_torn = not changed.isdisjoint(done.lies_in[value])
        is_kept = is_result or any(
            new is value and target is not value for target, new in graph.updates.items()
        )
        if is_kept and not is_own and (is_result or is_torn):
            copies[value] = done.stand_in(value, middle, end)
            done.compute.append(copy_call(copies[value], value))
    done.stand_ins.update(copies)
    return copies


def copies_at_the_end(graph: Graph, done: Placement, end: int) -> list[Step]:
    """Return the instructions that copy new contents into mutated state.

    This is a parallel copy: if a source resides in memory that another copy writes (two buffers that are
    swapped), it is first copied aside. The rest is one ``_foreach_copy_``.
    """
    stand_ins = done.stand_ins
    pairs = [
        (target, stand_ins.get(new, new))
        for target, new in graph.updates.items()
        if new in stand_ins or not _is_there(done, target, new)
    ]
    written = {piece for target, _ in pairs for piece in done.lies_in[target]}
    calls = []
    for index, (target, new) in enumerate(pairs):
        if not written.isdisjoint(done.lies_in[new]):
            copy = done.stand_in(new, end, end)
            calls.append(copy_call(copy, new))
            pairs[index] = target, copy
    if len(pairs) < 2:
        return calls + [copy_call(target, new) for target, new in pairs]
    targets, contents = [list(items) for items in zip(*pairs, strict=True)]
    slots = [Slot(index) for index in range(2 * len(pairs))]
    kernel, function = next(quick_callables(torch.ops.aten._foreach_copy_.default))
    several = replace(
        copy_call(targets[0], contents[0]),
        kernel=kernel,
        function=function,
        binding=Binding((slots[: len(pairs)], slots[len(pairs) :]), {}),
        inputs=(*targets, *contents),
    )
    return [*calls, several]


def _is_there(done: Placement, target: Value, new: Value) -> bool:
    """Return whether new content already resides in the memory of its target."""
    is_own = done.kinds[new] in (Kind.STATE, Kind.INPUT)
    return new is target or (is_own and done.lies_in[new] == done.lies_in[target])


def copy_call(target: Value, source: Value) -> Step:
    """Return the instruction that copies ``source`` into ``target``."""
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

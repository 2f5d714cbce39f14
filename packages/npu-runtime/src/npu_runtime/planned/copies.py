"""Copies of a planned program: of results in foreign memory, and of new contents into mutated state."""

from __future__ import annotations

from dataclasses import replace

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.core.node import NO_PROVENANCE
from npu_ir.ops.calls import Binding, Slot
from npu_runtime._torch.fast_calls import fast_callables
from npu_runtime.backends.partition import ATEN
from npu_runtime.lowering.instruction import Instruction, Returns
from npu_runtime.planned.buffers import BufferAssignment, BufferKind, is_plannable

_COPY = "copy"


def append_staging_copies(
    graph: Graph, assignment: BufferAssignment, late: set[Value], phase_boundary: int, end: int
) -> None:
    """Append staging copies to the compute phase, before the other phase writes state.

    Copied are results that do not reside in the arena, and new contents in memory that the commit phase
    writes.
    """
    changed = {item for target in graph.updates for item in assignment.allocations_of[target]}
    results = set(graph.outputs)
    for value in dict.fromkeys(graph.returned_values):
        if value in late or not is_plannable(value):
            continue
        is_result = value in results
        is_own = assignment.is_fixed(value) and all(
            item.kind is BufferKind.ARENA for item in assignment.allocations_of[value]
        )
        # The commit phase writes into its memory.
        is_torn = not changed.isdisjoint(assignment.allocations_of[value])
        # An update of a value by itself writes nothing: it is in its own memory already.
        is_kept = is_result or any(
            new is value and target is not value for target, new in graph.updates.items()
        )
        if is_kept and not is_own and (is_result or is_torn):
            copy = assignment.add_staging_copy(value, phase_boundary, end)
            assignment.staging_copies[value] = copy
            assignment.compute.append(copy_instruction(copy, value))


def commit_copies(graph: Graph, assignment: BufferAssignment, end: int) -> list[Instruction]:
    """Return the instructions that copy new contents into mutated state.

    This is a parallel copy: if a source resides in memory that another copy writes (two buffers that are
    swapped), it is first copied aside. The rest is one ``_foreach_copy_``.
    """
    staging_copies = assignment.staging_copies
    pairs = [
        (target, staging_copies.get(new, new))
        for target, new in graph.updates.items()
        if new in staging_copies or not _is_in_target_memory(assignment, target, new)
    ]
    # Conservative: two copies in a suitable order would often do, but a swap has none.
    written = {item for target, _ in pairs for item in assignment.allocations_of[target]}
    calls = []
    for index, (target, new) in enumerate(pairs):
        if not written.isdisjoint(assignment.allocations_of[new]):
            copy = assignment.add_staging_copy(new, end, end)
            calls.append(copy_instruction(copy, new))
            pairs[index] = target, copy
    if len(pairs) < 2:
        return calls + [copy_instruction(target, new) for target, new in pairs]
    targets, contents = [list(items) for items in zip(*pairs, strict=True)]
    slots = [Slot(index) for index in range(2 * len(pairs))]
    kernel, function = next(fast_callables(torch.ops.aten._foreach_copy_.default))
    several = replace(
        copy_instruction(targets[0], contents[0]),
        kernel=kernel,
        function=function,
        binding=Binding((slots[: len(pairs)], slots[len(pairs) :]), {}),
        inputs=(*targets, *contents),
    )
    return [*calls, several]


def _is_in_target_memory(assignment: BufferAssignment, target: Value, new: Value) -> bool:
    """Return whether new content already resides in the memory of its target."""
    is_own = assignment.kinds[new] in (BufferKind.STATE, BufferKind.INPUT)
    return new is target or (is_own and assignment.allocations_of[new] == assignment.allocations_of[target])


def copied_values(instruction: Instruction) -> list[tuple[Value, Value]]:
    """Return pairs of a value and that which the instruction copies it into; none if it is not a copy."""
    if instruction.node.op_type != _COPY:
        return []
    half = len(instruction.inputs) // 2
    return list(zip(instruction.inputs[half:], instruction.inputs[:half], strict=True))


def copy_instruction(target: Value, source: Value) -> Instruction:
    """Return the instruction that copies ``source`` into ``target``."""
    producer = source.producer or target.producer
    provenance = NO_PROVENANCE if producer is None else producer.provenance
    return Instruction(
        nodes=(OpNode(f"copy of {source.name}", _COPY, (), None, {}, provenance),),
        backend=ATEN,
        kernel="torch._C.TensorBase.copy_",
        function=torch.Tensor.copy_,
        binding=Binding((Slot(0), Slot(1)), {}),
        inputs=(target, source),
        outputs=(),
        returns=Returns.NOTHING,
    )

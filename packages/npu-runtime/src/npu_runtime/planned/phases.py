"""Two phases of a planned program: compute, which changes no state, and commit, which writes it.

Compute writes only to the arena, so that a failure there leaves all state unchanged. Commit consists of
instructions that cannot fail for reasons of data: views, elementwise ops and optimizers, in place in the
state, and copies.

The split is found in two sweeps. Backward: a candidate is an instruction that cannot fail, produces no
result of the graph, and is read by candidates only. Forward: of these, only those that write state in
place, or depend on such, are deferred.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from npu_ir import Graph, Value
from npu_ir.ops.effects import is_random
from npu_ir.ops.schema import find_op
from npu_runtime._torch.ops import OpOverload
from npu_runtime.lowering.aten_calls import ObservedInstruction


def split_phases(
    graph: Graph, steps: Sequence[ObservedInstruction]
) -> tuple[list[ObservedInstruction], list[ObservedInstruction]]:
    """Return the instructions of the compute phase, and those of the commit phase, each in order."""
    late = _select_deferred(graph, steps, _find_deferrable(graph, steps))
    return [item for item in steps if item not in late], [item for item in steps if item in late]


def _find_deferrable(graph: Graph, steps: Sequence[ObservedInstruction]) -> set[ObservedInstruction]:
    """Return the instructions that may be deferred: neither results nor other instructions depend on them."""
    results = set(graph.outputs)
    new = set(graph.updates.values())
    possible: set[ObservedInstruction] = set()
    readers: dict[Value, list[ObservedInstruction]] = {}
    # In reverse, all readers of an instruction are classified before it.
    for item in reversed(steps):
        outputs = item.instruction.outputs
        is_read = any(value in new or value in readers for value in outputs)
        reading = [reader for value in outputs for reader in readers.get(value, ())]
        if (
            is_read
            and results.isdisjoint(outputs)
            and all(reader in possible for reader in reading)
            and _cannot_fail(item)
        ):
            possible.add(item)
        for value in item.instruction.inputs:
            readers.setdefault(value, []).append(item)
    return possible


def _select_deferred(
    graph: Graph, steps: Sequence[ObservedInstruction], possible: set[ObservedInstruction]
) -> set[ObservedInstruction]:
    """Return the deferrable instructions that write state, or that read outputs of these."""
    new = set(graph.updates.values())
    # Forward, an instruction that reads a deferred output is deferred, too.
    late: set[ObservedInstruction] = set()
    late_values: set[Value] = set()
    for item in steps:
        if item not in possible:
            continue
        step, forms = item.instruction, item.traits.out_variants if item.traits is not None else ()
        overwritten = {
            step.inputs[index] for form in forms for index in form.overwritten_inputs if index is not None
        }
        if (
            (forms and not new.isdisjoint(step.outputs))
            or not late_values.isdisjoint(step.inputs)
            or any(value in graph.updates for value in overwritten)
        ):
            late.add(item)
            late_values.update(step.outputs)
    return late


def _cannot_fail(item: ObservedInstruction) -> bool:
    """Return whether an instruction is a view, elementwise, or the in-place op of an optimizer."""
    step, seen = item.instruction, item.traits
    if seen is None or step.is_partition or any(map(is_random, step.nodes)):
        return False
    if seen.is_view:
        return True
    op = find_op(step.node.op_type)
    if not isinstance(op, OpOverload) or not seen.out_variants:
        return False
    # An out-variant that overwrites an input for every output: an in-place op of an optimizer.
    return torch.Tag.pointwise in op.tags or any(
        None not in form.overwritten_inputs for form in seen.out_variants
    )

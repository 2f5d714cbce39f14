"""Two phases: what computes, and what changes state.

The first one writes to nothing but the arena, so that a step that fails there has changed no state. The second one
consists of what cannot fail for reasons of data: elementwise ops and optimizers, in the memory of the state itself,
and copies.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from npu_ir import Graph, Value
from npu_ir.ops.effects import is_random
from npu_ir.ops.schema import find_op
from npu_runtime._torch import OpOverload
from npu_runtime.lowering.aten_calls import NodeStep


def split_phases(graph: Graph, steps: Sequence[NodeStep]) -> tuple[list[NodeStep], list[NodeStep]]:
    """Return the steps that compute, and those that are done with the changing of state, each in order."""
    late = _necessary(graph, steps, _possible(graph, steps))
    return [item for item in steps if item not in late], [item for item in steps if item in late]


def _possible(graph: Graph, steps: Sequence[NodeStep]) -> set[NodeStep]:
    """Return the steps that nothing but steps of the same kind depends on."""
    results = {item for item in graph.results[1] if isinstance(item, Value)}
    new = set(graph.updates.values())
    found: set[NodeStep] = set()
    readers: dict[Value, list[NodeStep]] = {}
    for item in reversed(steps):
        outputs = item.step.outputs
        is_read = any(value in new or value in readers for value in outputs)
        reading = [reader for value in outputs for reader in readers.get(value, ())]
        if (
            is_read
            and results.isdisjoint(outputs)
            and all(reader in found for reader in reading)
            and _cannot_fail(item)
        ):
            found.add(item)
        for value in item.step.inputs:
            readers.setdefault(value, []).append(item)
    return found


def _necessary(graph: Graph, steps: Sequence[NodeStep], possible: set[NodeStep]) -> set[NodeStep]:
    """Return those that write state, or read what has been written there."""
    new = set(graph.updates.values())
    late: set[NodeStep] = set()
    late_values: set[Value] = set()
    for item in steps:
        if item not in possible:
            continue
        step, forms = item.step, item.seen.forms if item.seen is not None else ()
        overwritten = {step.inputs[index] for form in forms for index in form.over if index is not None}
        if (
            (forms and not new.isdisjoint(step.outputs))
            or not late_values.isdisjoint(step.inputs)
            or any(value in graph.updates for value in overwritten)
        ):
            late.add(item)
            late_values.update(step.outputs)
    return late


def _cannot_fail(item: NodeStep) -> bool:
    """Whether a step looks at tensors, works element by element, or is the in-place op of an optimizer."""
    step, seen = item.step, item.seen
    if seen is None or step.is_segment or any(map(is_random, step.nodes)):
        return False
    if seen.is_view:
        return True
    op = find_op(step.node.op_type)
    if not isinstance(op, OpOverload) or not seen.forms:
        return False
    return torch.Tag.pointwise in op.tags or any(None not in form.over for form in seen.forms)

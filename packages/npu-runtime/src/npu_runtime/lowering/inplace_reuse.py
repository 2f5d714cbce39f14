"""Results in the memory of inputs that nobody reads any more."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npu_ir import Value
from npu_runtime.lowering.alias_sets import Memory
from npu_runtime.lowering.aten_calls import ATEN, NodeStep
from npu_runtime.lowering.instruction import Step


def overwriting(steps: Sequence[NodeStep], memory: Memory) -> list[Step]:
    """Return the steps; an input that is read for the last time is overwritten where the op can do so."""
    own = {value for item in steps if _makes_own_memory(item) for value in item.step.outputs}
    outside = {memory.group(value) for value in memory.last_use if value not in own}
    whole: set[Value] = set()  # what fills its memory from the begin: no view of something larger
    chosen = []
    for index, item in enumerate(steps):
        step, in_place = item.step, item.seen.in_place if item.seen is not None else None
        if in_place is not None and step.inputs[0] in whole:
            first, *others = step.inputs
            group = memory.group(first)
            is_free = group not in outside and memory.end(first) == index
            if is_free and all(memory.group(value) is not group for value in others):
                kernel, function = in_place
                step = replace(step, kernel=kernel, function=function, overwrites=first)
        if item.seen is not None and not any(item.seen.shares):
            at_start = zip(step.outputs, item.seen.is_at_start, strict=True)
            whole.update(value for value, is_so in at_start if is_so)
        chosen.append(step)
    return chosen


def _makes_own_memory(item: NodeStep) -> bool:
    """Whether nobody else can hold the memory of the outputs: PyTorch's own ops keep no tensors."""
    is_known = item.seen is not None and item.step.backend == ATEN
    return is_known and item.step.node.op_type.partition(".")[0] in ("aten", "mkl", "mkldnn")

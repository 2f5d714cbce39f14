"""In-place reuse: an output takes over the memory of an input at its last use.

An instruction is switched to its in-place callable if its first input is dead afterwards. That is safe only
if

- the input fills its memory from the start, and was allocated by an ATen op of this call: nobody else holds
  it,
- no alias of it is used later or returned, and
- no other input of the instruction is an alias of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npu_ir import Value
from npu_runtime.lowering.alias_sets import AliasSets
from npu_runtime.lowering.aten_calls import ATEN, ObservedInstruction
from npu_runtime.lowering.instruction import Instruction


def reuse_in_place(steps: Sequence[ObservedInstruction], memory: AliasSets) -> list[Instruction]:
    """Return the instructions, with in-place callables where the first input is at its last use."""
    own = {value for item in steps if _owns_output_memory(item) for value in item.instruction.outputs}
    outside = {memory.representative(value) for value in memory.last_use if value not in own}
    whole: set[Value] = set()  # values that start at the beginning of their memory, and are not views
    chosen = []
    for index, item in enumerate(steps):
        step, in_place = item.instruction, item.traits.in_place if item.traits is not None else None
        if in_place is not None and step.inputs[0] in whole:
            first, *others = step.inputs
            group = memory.representative(first)
            is_free = group not in outside and memory.end_of(first) == index
            if is_free and all(memory.representative(value) is not group for value in others):
                kernel, function = in_place
                step = replace(step, kernel=kernel, function=function, overwrites=first)
        if item.traits is not None and not any(item.traits.shares):
            at_start = zip(step.outputs, item.traits.starts_storage, strict=True)
            whole.update(value for value, is_so in at_start if is_so)
        chosen.append(step)
    return chosen


def _owns_output_memory(item: ObservedInstruction) -> bool:
    """Return whether the outputs have no other owner: PyTorch's own ops retain no tensors."""
    is_known = item.traits is not None and item.instruction.backend == ATEN
    return is_known and item.instruction.node.op_type.partition(".")[0] in ("aten", "mkl", "mkldnn")

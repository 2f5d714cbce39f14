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
from npu_runtime.lowering.aten_calls import ATEN
from npu_runtime.lowering.instruction import Instruction


def reuse_in_place(instructions: Sequence[Instruction], alias_sets: AliasSets) -> list[Instruction]:
    """Return the instructions, with in-place callables where the first input is at its last use."""
    own = {value for item in instructions if _owns_output_memory(item) for value in item.outputs}
    # One foreign member is enough: any value of its set may reside in memory that others hold.
    foreign = {alias_sets.representative(value) for value in alias_sets.last_use if value not in own}
    whole: set[Value] = set()  # values that start at the beginning of their memory, and are not views
    rewritten = []
    for index, instruction in enumerate(instructions):
        traits = instruction.traits
        if traits is not None and traits.in_place is not None and instruction.inputs[0] in whole:
            rewritten.append(_overwrite_first(instruction, index, alias_sets, foreign))
        else:
            rewritten.append(instruction)
        # In place or not, its output is whole: the input that it takes over was.
        if traits is not None and not any(traits.shares):
            at_start = zip(instruction.outputs, traits.starts_storage, strict=True)
            whole.update(value for value, is_so in at_start if is_so)
    return rewritten


def _overwrite_first(
    instruction: Instruction, index: int, alias_sets: AliasSets, foreign: set[Value]
) -> Instruction:
    """Return an instruction with its in-place callable; unchanged if its first input is needed elsewhere."""
    assert instruction.traits is not None
    assert instruction.traits.in_place is not None
    first, *others = instruction.inputs
    alias_set = alias_sets.representative(first)
    if alias_set in foreign or alias_sets.end_of(first) != index:
        return instruction
    # The op would read elements of another alias after it has overwritten them.
    if any(alias_sets.representative(value) is alias_set for value in others):
        return instruction
    kernel, function = instruction.traits.in_place
    return replace(instruction, kernel=kernel, function=function, overwrites=first)


def _owns_output_memory(instruction: Instruction) -> bool:
    """Return whether the outputs have no other owner: PyTorch's own ops retain no tensors."""
    is_known = instruction.traits is not None and instruction.backend == ATEN
    return is_known and instruction.node.op_type.partition(".")[0] in ("aten", "mkl", "mkldnn")

"""In-place reuse: an instruction writes into the memory of an input at its last use.

The output of an ATen op takes over the memory of its first input, if the op has an in-place callable. A
partition gets the inputs that it overwrites as they are, instead of copies. That is safe only if

- the input was allocated by an ATen op of this call: nobody else holds its memory,
- no alias of it is used later or returned, and
- no other input of the instruction is an alias of it.

An input that becomes an output must fill its memory from the start, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from npu_ir import Value
from npu_runtime.backends.partition import ATEN
from npu_runtime.lowering.alias_sets import AliasSets
from npu_runtime.lowering.instruction import Instruction


def reuse_in_place(instructions: Sequence[Instruction], alias_sets: AliasSets) -> list[Instruction]:
    """Return the instructions, which overwrite inputs at their last use where they can."""
    own = {value for item in instructions if _owns_output_memory(item) for value in item.outputs}
    # One foreign member is enough: any value of its set may reside in memory that others hold.
    foreign = {alias_sets.representative(value) for value in alias_sets.last_use if value not in own}

    def is_free(instruction: Instruction, index: int, number: int) -> bool:
        value = instruction.inputs[number]
        alias_set = alias_sets.representative(value)
        others = (*instruction.inputs[:number], *instruction.inputs[number + 1 :])
        return (
            alias_set not in foreign
            and alias_sets.end_of(value) == index
            # The op would read elements of another alias after it has overwritten them.
            and not any(alias_sets.representative(other) is alias_set for other in others)
        )

    whole: set[Value] = set()  # values that start at the beginning of their memory, and are not views
    rewritten = []
    for index, instruction in enumerate(instructions):
        traits, call = instruction.traits, instruction.partition
        if call is not None and call.overwritten:
            needed = frozenset(
                number for number in call.overwritten if not is_free(instruction, index, number)
            )
            call = replace(call, copied=needed)
            rewritten.append(replace(instruction, function=call, partition=call))
        elif (
            traits is not None
            and traits.in_place is not None
            and instruction.inputs[0] in whole
            and is_free(instruction, index, 0)
        ):
            kernel, function = traits.in_place
            rewritten.append(
                replace(instruction, kernel=kernel, function=function, overwrites=instruction.inputs[0])
            )
        else:
            rewritten.append(instruction)
        # In place or not, its output is whole: the input that it takes over was.
        if traits is not None and not any(traits.shares):
            at_start = zip(instruction.outputs, traits.starts_storage, strict=True)
            whole.update(value for value, is_so in at_start if is_so)
    return rewritten


def _owns_output_memory(instruction: Instruction) -> bool:
    """Return whether the outputs have no other owner: PyTorch's own ops retain no tensors."""
    is_known = instruction.traits is not None and instruction.backend == ATEN
    return is_known and instruction.node.op_type.partition(".")[0] in ("aten", "mkl", "mkldnn")

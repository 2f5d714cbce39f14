"""Phases of a planned program: constants, once; compute, which changes no state; commit, which writes it.

Constant folding comes first: instructions that yield the same in each run are run once, at bind time.

Compute writes only to the arena, so that a failure there leaves all state unchanged. Commit consists of
instructions that cannot fail for reasons of data: views, elementwise ops and optimizers, in place in the
state, partitions of other backends that update in place, and copies.

The rest is split in two sweeps. Backward: an instruction is deferrable if it cannot fail, produces no
result of the graph, and is read by deferrable instructions only. Forward: of these, only those that write
state in place, or depend on such, are deferred.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from npu_ir import Graph, TensorType, Value
from npu_ir.core.node import InputKind
from npu_ir.ops.effects import is_pure, is_random
from npu_ir.ops.schema import find_op
from npu_runtime._torch.ops import OpOverload
from npu_runtime.lowering.instruction import Instruction

# These read only the type of their first argument.
_TYPE_ONLY_OPS = frozenset(
    f"aten.{name}.default"
    for name in ("ones_like", "zeros_like", "full_like", "new_zeros", "new_ones", "new_full")
)


def find_constants(graph: Graph) -> set[Value]:
    """Return the values that are constant before the first instruction: constants and prologue outputs."""
    constants = {value for node in graph.prologue for value in node.outputs}
    for value in graph.arguments:
        is_constant = value.argument is not None and value.argument.kind is InputKind.CONSTANT
        if is_constant and value not in graph.updates:
            constants.add(value)
    return constants


def split_constants(
    instructions: Sequence[Instruction], constants: set[Value]
) -> tuple[list[Instruction], list[Instruction]]:
    """Return the instructions that depend on constants alone, and the others.

    Args:
        instructions: The instructions, in order.
        constants: Constant values; extended by the outputs of the first group.
    """
    once, rest = [], []
    for instruction in instructions:
        if _is_constant(instruction, constants):
            once.append(instruction)
            constants.update(instruction.outputs)
        else:
            rest.append(instruction)
    return once, rest


def _is_constant(instruction: Instruction, constants: set[Value]) -> bool:
    if instruction.traits is None or instruction.is_partition or not all(map(is_pure, instruction.nodes)):
        return False
    read = instruction.inputs
    if instruction.node.op_type in _TYPE_ONLY_OPS and read and isinstance(read[0].type, TensorType):
        read = read[1:]
    return constants.issuperset(read)


def split_phases(
    graph: Graph, instructions: Sequence[Instruction]
) -> tuple[list[Instruction], list[Instruction]]:
    """Return the instructions of the compute phase, and those of the commit phase, each in order."""
    deferred = _select_deferred(graph, instructions, _find_deferrable(graph, instructions))
    early = [instruction for instruction in instructions if instruction not in deferred]
    return early, [instruction for instruction in instructions if instruction in deferred]


def _find_deferrable(graph: Graph, instructions: Sequence[Instruction]) -> set[Instruction]:
    """Return the instructions that may be deferred: neither results nor other instructions depend on them."""
    results = set(graph.outputs)
    new = set(graph.updates.values())
    deferrable: set[Instruction] = set()
    readers: dict[Value, list[Instruction]] = {}
    # In reverse, all readers of an instruction are classified before it.
    for instruction in reversed(instructions):
        outputs = instruction.outputs
        is_read = any(value in new or value in readers for value in outputs)
        reading = [reader for value in outputs for reader in readers.get(value, ())]
        if (
            is_read
            and results.isdisjoint(outputs)
            and all(reader in deferrable for reader in reading)
            and _cannot_fail(instruction)
        ):
            deferrable.add(instruction)
        for value in instruction.inputs:
            readers.setdefault(value, []).append(instruction)
    return deferrable


def _select_deferred(
    graph: Graph, instructions: Sequence[Instruction], deferrable: set[Instruction]
) -> set[Instruction]:
    """Return the deferrable instructions that write state, or that read outputs of these."""
    new = set(graph.updates.values())
    # Forward, an instruction that reads a deferred output is deferred, too.
    deferred: set[Instruction] = set()
    deferred_values: set[Value] = set()
    for instruction in instructions:
        if instruction not in deferrable:
            continue
        out_variants = instruction.traits.out_variants if instruction.traits is not None else ()
        overwritten = {
            instruction.inputs[index]
            for out_variant in out_variants
            for index in out_variant.overwritten_inputs
            if index is not None
        }
        if (
            ((out_variants or instruction.updates_in_place) and not new.isdisjoint(instruction.outputs))
            or not deferred_values.isdisjoint(instruction.inputs)
            or any(value in graph.updates for value in overwritten)
        ):
            deferred.add(instruction)
            deferred_values.update(instruction.outputs)
    return deferred


def _cannot_fail(instruction: Instruction) -> bool:
    """Return whether an instruction is a view, elementwise, or the in-place op of an optimizer."""
    if instruction.updates_in_place:
        return True
    traits = instruction.traits
    if traits is None or instruction.is_partition or any(map(is_random, instruction.nodes)):
        return False
    if traits.is_view:
        return True
    op = find_op(instruction.node.op_type)
    if not isinstance(op, OpOverload) or not traits.out_variants:
        return False
    # An out-variant that overwrites an input for every output: an in-place op of an optimizer.
    return torch.Tag.pointwise in op.tags or any(
        None not in out_variant.overwritten_inputs for out_variant in traits.out_variants
    )

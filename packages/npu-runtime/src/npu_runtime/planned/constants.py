"""Constant folding at bind time: instructions that yield the same in each run are run once."""

from __future__ import annotations

from collections.abc import Sequence

from npu_ir import Graph, TensorType, Value
from npu_ir.core.node import InputKind
from npu_ir.ops.effects import is_pure
from npu_runtime.lowering.aten_calls import ObservedInstruction

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
    steps: Sequence[ObservedInstruction], constants: set[Value]
) -> tuple[list[ObservedInstruction], list[ObservedInstruction]]:
    """Return the instructions that depend on constants alone, and the others.

    Args:
        steps: The instructions, in order.
        constants: Constant values; extended by the outputs of the first group.
    """
    once, rest = [], []
    for item in steps:
        if _is_constant(item, constants):
            once.append(item)
            constants.update(item.instruction.outputs)
        else:
            rest.append(item)
    return once, rest


def _is_constant(item: ObservedInstruction, constants: set[Value]) -> bool:
    step = item.instruction
    if item.traits is None or step.is_partition or not all(map(is_pure, step.nodes)):
        return False
    read = step.inputs
    if step.node.op_type in _TYPE_ONLY_OPS and read and isinstance(read[0].type, TensorType):
        read = read[1:]
    return constants.issuperset(read)

"""Detection of allocations outside the memory plan, by running a planned program once, op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from npu_ir import TensorType
from npu_ir.core.storage import storage_key
from npu_runtime._torch.ops import OpOverload
from npu_runtime._torch.state import observe_calls
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.planned import PlannedProgram
from npu_runtime.training.checks.violations import Violation, node_location


def find_unplanned_allocations(program: PlannedProgram, numbers: Sequence[Any]) -> Iterator[Violation]:
    """Yield a note for each allocation by an instruction whose outputs have planned memory.

    Instructions that allocate their outputs are not reported: the plan lists these allocations.

    Args:
        program: Run once; its state changes.
        numbers: The scalar arguments of the run.
    """
    instructions = {
        id(instruction.function): instruction
        for calls in program.plan.calls.values()
        for instruction in calls
    }
    running: list[Instruction] = []  # the current instruction
    allocations: dict[tuple[Instruction, str], list[torch.Tensor]] = {}

    def begin(function: Callable[..., Any]) -> None:
        running[:] = [instructions[id(function)]]

    def see(op: OpOverload, given: list[Any], results: list[Any]) -> None:
        if running and not running[0].outputs:
            allocated = _new_tensors(given, results)
            if allocated:
                allocations.setdefault((running[0], str(op)), allocated)

    watched = program.with_observer(begin)
    with observe_calls(see):
        watched.run(*numbers)
    for (instruction, op), tensors in allocations.items():
        listed = ", ".join(str(TensorType.of(item)) for item in tensors)
        yield Violation(
            "allocation",
            f"{instruction.kernel} allocates {listed} by {op} in each run, which is in no plan",
            node_location(instruction.node),
            "allocate it once, when the program is prepared or bound, and keep it there",
            is_note=True,
        )


def _new_tensors(given: Sequence[Any], results: Sequence[Any]) -> list[torch.Tensor]:
    memory = {storage_key(item) for item in given if _is_strided(item)}
    return [
        item for item in results if _is_strided(item) and item.numel() and storage_key(item) not in memory
    ]


def _is_strided(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.layout is torch.strided

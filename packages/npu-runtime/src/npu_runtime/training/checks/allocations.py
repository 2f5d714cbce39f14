"""Allocations of a step although its plan gave it memory: seen by running it once, op by op."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from npu_ir import TensorType
from npu_runtime._torch import OpOverload, memory_id, seeing_calls
from npu_runtime.lowering.instruction import Step
from npu_runtime.planned import PlannedProgram
from npu_runtime.training.checks.violations import Violation, place_of_node


def unplanned_allocations(program: PlannedProgram, numbers: Sequence[Any]) -> Iterator[Violation]:
    """Yield what is allocated by steps that write into given memory; it is in no plan.

    A step that makes its outputs anew in each run is part of the plan, and told with it.

    Args:
        program: It is run once; its state changes.
        numbers: What it takes.
    """
    steps = {id(step.function): step for calls in program.plan.calls.values() for step in calls}
    running: list[Step] = []
    found: dict[tuple[Step, str], list[torch.Tensor]] = {}

    def begin(function: Callable[..., Any]) -> None:
        running[:] = [steps[id(function)]]

    def see(op: OpOverload, given: list[Any], results: list[Any]) -> None:
        if running and not running[0].outputs:
            made = _new_tensors(given, results)
            if made:
                found.setdefault((running[0], str(op)), made)

    watched = program.watched(begin)
    with seeing_calls(see):
        watched.run(*numbers)
    for (step, op), made in found.items():
        listed = ", ".join(str(TensorType.of(item)) for item in made)
        yield Violation(
            "allocation",
            f"{step.kernel} allocates {listed} by {op} in each run, which is in no plan",
            place_of_node(step.node),
            "allocate it once, when the program is prepared or bound, and keep it there",
            is_note=True,
        )


def _new_tensors(given: Sequence[Any], results: Sequence[Any]) -> list[torch.Tensor]:
    known = {memory_id(item) for item in given if _is_strided(item)}
    return [item for item in results if _is_strided(item) and item.numel() and memory_id(item) not in known]


def _is_strided(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.layout is torch.strided

"""Recording of the call log of a planned program."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from npu_ir import ExecutionError
from npu_runtime.lowering.aten_calls import ATEN
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.lowering.lowered_graph import Lowered
from npu_runtime.planned import PlannedProgram
from npu_runtime.planned.buffers import Evaluate
from npu_runtime.training.capture.runners import state_of
from npu_runtime.training.capture.snapshots import preserve_state
from npu_runtime.training.dumps.call_log import Call, CallLog


def record_call_log(
    program: PlannedProgram,
    lowered: Lowered,
    numbers: Sequence[Any] = (),
    generators: Sequence[torch.Generator] = (),
) -> CallLog:
    """Run a program once on the contents of its inputs, restore its state, and return its call log.

    Args:
        program: The planned program, which runs op by op here even if a device has recorded it.
        lowered: Its lowered graph, which has the ops of each partition.
        numbers: The scalar arguments of `PlannedProgram.run`.
        generators: Further generators that the step draws from.

    Raises:
        ExecutionError: A node fails, or the calls are not those that were planned.
    """
    called: list[Callable[..., Any]] = []
    observed = program.with_observer(called.append)
    with preserve_state(state_of(program).values(), generators):
        observed.run(*numbers)
    planned = [(phase, item) for phase, instructions in program.plan.calls.items() for item in instructions]
    if [id(function) for function in called] != [id(instruction.function) for _, instruction in planned]:
        raise ExecutionError(
            f"{len(called)} calls were made, and {len(planned)} others were planned",
            where=f"the program of graph {lowered.graph.name!r}",
            fix="this is a bug of npu-runtime: please report it with the dump 40_plan",
        )
    once = [action.instruction for action in program.plan.actions if isinstance(action, Evaluate)]
    calls = [("bind", instruction) for instruction in once] + planned
    return CallLog(lowered.graph.name, tuple(_log_entries(calls, lowered)))


def _log_entries(instructions: Sequence[tuple[str, Instruction]], lowered: Lowered) -> Iterator[Call]:
    ops = {node: item for item in reversed(lowered.ops) for node in item.op.nodes}
    for phase, instruction in instructions:
        nodes = set(instruction.nodes)
        if instruction.backend == ATEN:
            kinds = tuple(node.op_type for node in instruction.nodes)
        else:
            kinds = tuple(item.op.kind for item in lowered.ops if nodes.issuperset(item.op.nodes))
        names = tuple(node.name for node in instruction.nodes if node in ops)
        yield Call(phase, instruction.backend, instruction.kernel, kinds if names else (), names)

"""The call log of a captured step: recorded, compared with the lowered graph, as text and as plain data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch

from npu_ir import ExecutionError
from npu_runtime.backends.partition import ATEN
from npu_runtime.errors import CaptureError
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.lowering.lowered_graph import LoweredGraph
from npu_runtime.planned import PlannedProgram
from npu_runtime.planned.buffers import Evaluate
from npu_runtime.training.capture.runners import state_of
from npu_runtime.training.capture.snapshots import preserve_state

_MAX_LISTED = 6


@dataclass(frozen=True, slots=True)
class Call:
    """One call of a step.

    Attributes:
        phase: ``"bind"`` for calls when the program is bound (views of fixed memory), ``"compute"`` or
            ``"commit"``.
        backend: The backend that ran it.
        kernel: The name or description of the callable.
        kinds: The kinds of the ops that it computed, as in the lowered graph.
        nodes: The names of the nodes that it computed; none for a copy into state.
    """

    phase: str
    backend: str
    kernel: str
    kinds: tuple[str, ...]
    nodes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class CallLog:
    """The call log of one step.

    Attributes:
        graph: The name of its graph.
        calls: The calls, in order.
    """

    graph: str
    calls: tuple[Call, ...]

    def count(self, kind: str) -> int:
        """Return the number of ops of a kind that ran."""
        return sum(call.kinds.count(kind) for call in self.calls)

    def require(self, kind: str, count: int | None = None) -> None:
        """Raise unless ops of a kind ran.

        Args:
            kind: The kind of the ops in the lowered graph: ``"npu.adam_step.default"``, ``"Gemm"``.
            count: The exact number; None for at least one.

        Raises:
            CaptureError: Another number ran.
        """
        actual = self.count(kind)
        if actual == count or (count is None and actual):
            return
        known = Counter(name for call in self.calls for name in call.kinds)
        listed = ", ".join(f"{name} x{number}" for name, number in sorted(known.items())[:_MAX_LISTED])
        wanted = "at least one" if count is None else str(count)
        raise CaptureError(
            f"the trace has {actual} ops {kind!r}, not {wanted}",
            where=f"the trace of graph {self.graph!r}",
            fix=f"it has {listed or 'nothing'}{', ...' if len(known) > _MAX_LISTED else ''}: "
            "passes may have made other"
            " ops of these, and backends other kinds; the dumps 30_lowered and 50_runtime_trace show both",
        )

    def to_dict(self) -> dict[str, Any]:
        """Return the calls as plain data."""
        calls = [
            {**asdict(call), "kinds": list(call.kinds), "nodes": list(call.nodes)} for call in self.calls
        ]
        return {"graph": self.graph, "calls": calls}

    def __str__(self) -> str:
        lines = [f"trace of {self.graph!r}: {len(self.calls)} calls"]
        for index, call in enumerate(self.calls):
            nodes = f"  <- {', '.join(call.nodes)}" if call.nodes else ""
            kinds = " ".join(call.kinds) or "-"
            lines.append(
                f"  #{index:03d} {call.phase:<7} {kinds} kid={call.kernel} backend={call.backend}{nodes}"
            )
        return "\n".join(lines)

    def require_lowering(self, lowered: LoweredGraph) -> None:
        """Raise unless every op of a lowered graph ran exactly once, on the same backend.

        Raises:
            CaptureError: Names the ops that did not run, that ran more than once or unexpectedly, or
                elsewhere.
        """
        problems = list(_lowering_differences(self, lowered))
        if problems:
            more = [f"... and {len(problems) - _MAX_LISTED} more"] if len(problems) > _MAX_LISTED else []
            raise CaptureError(
                "what ran is not what was lowered:\n    " + "\n    ".join(problems[:_MAX_LISTED] + more),
                where=f"the trace of graph {self.graph!r}",
                fix="the graph was edited after it was lowered, or a step of the plan is missing:"
                " compare the dumps 30_lowered and 50_runtime_trace",
            )


def _lowering_differences(trace: CallLog, lowered: LoweredGraph) -> Iterator[str]:
    wanted = {node.name: item.backend for item in lowered.ops for node in item.op.nodes}
    kinds = Counter((item.backend, item.op.kind) for item in lowered.ops)
    ran = Counter(name for call in trace.calls for name in call.nodes)
    elsewhere = {name: call.backend for call in trace.calls for name in call.nodes}
    yield from (f"node {name!r} did not run" for name in wanted if not ran[name])
    for name, count in ran.items():
        if name not in wanted:
            yield f"node {name!r} ran, and was not lowered"
        elif count > 1:
            yield f"node {name!r} ran {count} times"
        elif elsewhere[name] != wanted[name]:
            yield f"node {name!r} ran on {elsewhere[name]!r}, and was lowered for {wanted[name]!r}"
    done = Counter((call.backend, kind) for call in trace.calls for kind in call.kinds)
    for key in dict.fromkeys([*kinds, *done]):
        if kinds[key] != done[key]:
            yield f"{key[1]} of {key[0]!r} ran {done[key]} times, and was lowered {kinds[key]} times"


def record_call_log(
    program: PlannedProgram, numbers: Sequence[Any] = (), generators: Sequence[torch.Generator] = ()
) -> CallLog:
    """Run a program once on the contents of its inputs, restore its state, and return its call log.

    Args:
        program: The planned program, which runs op by op here even if a device has recorded it.
        numbers: The scalar arguments of `PlannedProgram.run`.
        generators: Further generators that the step draws from.

    Raises:
        ExecutionError: A node fails, or the calls are not those that were planned.
    """
    plan = program.plan
    called: list[Callable[..., Any]] = []
    observed = program.with_observer(called.append)
    with preserve_state(state_of(program).values(), generators):
        observed.run(*numbers)
    planned = [(phase, item) for phase, instructions in plan.calls.items() for item in instructions]
    if [id(function) for function in called] != [id(instruction.function) for _, instruction in planned]:
        raise ExecutionError(
            f"{len(called)} calls were made, and {len(planned)} others were planned",
            where=f"the program of graph {plan.graph.name!r}",
            fix="this is a bug of npu-runtime: please report it with the dump 40_plan",
        )
    once = [action.instruction for action in plan.actions if isinstance(action, Evaluate)]
    calls = [("bind", instruction) for instruction in once] + planned
    return CallLog(plan.graph.name, tuple(_log_entries(calls, plan.lowered)))


def _log_entries(instructions: Sequence[tuple[str, Instruction]], lowered: LoweredGraph) -> Iterator[Call]:
    kinds_of = {item.partition.nodes: tuple(op.kind for op in item.ops) for item in lowered.partitions}
    body = {node for nodes in kinds_of for node in nodes}
    for phase, instruction in instructions:
        if instruction.backend == ATEN:
            kinds = tuple(node.op_type for node in instruction.nodes)
        else:
            kinds = kinds_of[instruction.nodes]
        names = tuple(node.name for node in instruction.nodes if node in body)
        yield Call(phase, instruction.backend, instruction.kernel, kinds if names else (), names)

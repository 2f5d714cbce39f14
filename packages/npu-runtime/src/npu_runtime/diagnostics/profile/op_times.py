"""Times of the ops inside of a program that a backend runs as one instruction."""

from __future__ import annotations

import functools
import itertools
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from npu_ir import OpNode, TensorType
from npu_ir.plugins.backend import BackendOp, Operand
from npu_passes.manager.statistics import FlopCounter
from npu_runtime.diagnostics.profile.report import StepTime
from npu_runtime.diagnostics.profile.traffic import read_bytes

if TYPE_CHECKING:
    from npu_runtime.executor.executor import IRExecutor
    from npu_runtime.lowering.partition_call import PartitionCall


@dataclass(slots=True)
class OpTimes:
    """The times of the ops of one partition.

    Attributes:
        backend: The name of the backend.
        ops: Its ops, in order.
        runs: Of each run the seconds of each op.
    """

    backend: str
    ops: Sequence[BackendOp]
    runs: list[Sequence[float]] = field(default_factory=list)

    def steps(self, seconds: float, count: FlopCounter) -> list[StepTime]:
        """Return the times of the ops that take any; they are scaled down to ``seconds`` in all.

        Their own clocks add to the times of very short ops. The FLOPs of a node are those of its longest op.
        """
        columns = list(zip(*self.runs, strict=True))
        medians = list(map(statistics.median, columns))
        scale = min(1.0, seconds / sum(medians)) if any(medians) else 1.0
        longest = {
            node: index
            for index in sorted(range(len(medians)), key=medians.__getitem__)
            for node in self.ops[index].nodes
        }
        return [
            StepTime(
                name=op.nodes[-1].name,
                nodes=tuple(node.name for node in op.nodes),
                op_type=op.nodes[-1].op_type,
                backend=self.backend,
                kernel=op.kernel or op.kind,
                module=op.nodes[-1].provenance.module,
                source=op.nodes[-1].provenance.source,
                phase=op.nodes[-1].provenance.phase,
                seconds=median * scale,
                fastest_seconds=min(columns[index]) * scale,
                share=0.0,  # of a total that is not known yet
                flops=_flops([node for node in op.nodes if longest[node] == index], count),
                bytes_read=read_bytes(
                    op.nodes[-1].op_type, list(map(_nbytes, dict.fromkeys(op.inputs))), _written(op)
                ),
                bytes_written=_written(op),
            )
            for index, (op, median) in enumerate(zip(self.ops, medians, strict=True))
            if median
        ]

    def spans(self, steps: Sequence[StepTime], span: tuple[float, float]) -> Iterator[float]:
        """Yield when each step begins and ends, one after the other within the span of all of them."""
        begin, end = span
        for step in steps:
            yield begin
            begin = min(begin + step.seconds, end)
            yield begin


def measure_ops(
    executor: IRExecutor, args: tuple[Any, ...], kwargs: Mapping[str, Any], repeat: int
) -> dict[int, OpTimes]:
    """Return the times of ops of so many runs, by the number of the instruction that runs them."""
    lowered = (item for item in executor.lowered.partitions if item.program is not None)
    known: dict[int, OpTimes] = {}
    calls: dict[int, PartitionCall] = {}
    for number, instruction in enumerate(executor.instructions):
        call = instruction.partition
        if call is None:
            continue
        item = next(lowered)
        if call.backend.timed_ops(call.program) is not None:
            known[number], calls[number] = OpTimes(call.backend.name, item.ops), call
    if not known:
        return {}
    numbers = itertools.count()

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        number = next(numbers)
        if number not in known:
            return function
        return functools.partial(_run_timed, calls[number], known[number].runs, function)

    timed = executor.instrumented(wrap)
    for _ in range(repeat):
        timed(*args, **kwargs)
    return {number: times for number, times in known.items() if times.runs}


def _run_timed(
    call: PartitionCall,
    runs: list[Sequence[float]],
    function: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    context = call.backend.timed_ops(call.program)
    assert context is not None
    with context as seconds:
        results = function(*args, **kwargs)
    if seconds:
        runs.append(seconds)
    return results


def _flops(nodes: Sequence[OpNode], count: FlopCounter) -> int | None:
    found = list(map(count, nodes))
    return None if None in found else sum(item or 0 for item in found)


def _written(op: BackendOp) -> int:
    return sum(map(_nbytes, op.outputs))


def _nbytes(operand: Operand) -> int:
    nbytes = operand.type.nbytes if isinstance(operand.type, TensorType) else 0
    return nbytes if isinstance(nbytes, int) else 0  # of open sizes, no program of a backend is timed

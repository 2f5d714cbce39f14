"""Measurement of a profile: a clock around each instruction of an executor's own program, and its traffic."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from npu_ir.core.storage import shares_memory
from npu_ir.errors import UsageError
from npu_ir.ops.execution import flatten_results
from npu_passes.manager.statistics import FlopCounter
from npu_runtime.codegen.call_binder import positional_tuple
from npu_runtime.diagnostics.profile.report import Profile, StepTime

if TYPE_CHECKING:
    from npu_runtime.executor.executor import IRExecutor
    from npu_runtime.lowering.instruction import Instruction

_CALIBRATIONS = 1000


def profile(
    executor: IRExecutor,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    repeat: int = 20,
    warmup: int = 3,
) -> Profile:
    """Return the time of each instruction of a call.

    The program of the executor runs with a clock around each instruction. The overhead of a clock, calibrated
    on calls of an empty function, is subtracted. Calls without clocks are timed alternately. Buffers of the
    executor are not changed.

    Args:
        executor: The executor.
        args: Positional arguments of the call.
        kwargs: Its keyword arguments.
        repeat: The number of runs with clocks, and of runs without.
        warmup: The number of runs of both before that.

    Raises:
        UsageError: ``repeat`` is less than 1, or ``warmup`` is negative.
        ExecutionError: As for a call.
    """
    if repeat < 1 or warmup < 0:
        raise UsageError(
            f"repeat={repeat}, warmup={warmup}: a program is run at least once, after no warm-up or some"
        )
    given, named = positional_tuple(args), dict(kwargs or {})
    traffic = _measure_traffic(executor, given, named)
    clock = Clock()
    timed, untimed = executor.instrumented(clock.wrap), executor.instrumented(lambda function: function)
    for _ in range(warmup):
        untimed(*given, **named)
        timed(*given, **named)
    calls, runs = [], []
    for _ in range(repeat):
        calls.append(_seconds(lambda: untimed(*given, **named)))
        clock.readings.clear()
        seconds = _seconds(lambda: timed(*given, **named))
        runs.append(TimedRun(seconds, tuple(clock.readings)))
    return _make_profile(executor, calls, runs, traffic, ClockCost.measure())


@dataclass(frozen=True, slots=True)
class TimedRun:
    """The time of one run with clocks, and the readings before and after each instruction."""

    seconds: float
    readings: tuple[float, ...]

    @property
    def instruction_seconds(self) -> list[float]:
        return [end - start for start, end in zip(self.readings[::2], self.readings[1::2], strict=True)]


class Clock:
    """A clock around each call of an instrumented executor.

    Attributes:
        readings: Two per call, before and after it, in seconds.
    """

    def __init__(self) -> None:
        self.readings: list[float] = []

    def wrap(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same, and is timed."""
        now, take = time.perf_counter, self.readings.append

        def call(*args: Any, **kwargs: Any) -> Any:
            start = now()
            result = function(*args, **kwargs)
            end = now()
            take(start)  # after the second reading, which must not time the list
            take(end)
            return result

        return call


@dataclass(frozen=True, slots=True)
class ClockCost:
    """The overhead of a clock, in seconds.

    Attributes:
        inside: The part between its two readings.
        outside: The rest.
    """

    inside: float
    outside: float

    @staticmethod
    def measure() -> ClockCost:
        """Return the overhead, measured by clocks around an empty function."""
        clock = Clock()
        timed = clock.wrap(lambda *_args: None)
        whole = statistics.median(_seconds(lambda: timed(1, 2)) for _ in range(_CALIBRATIONS))
        # The time between readings includes the call of the empty function itself.
        read = statistics.median(TimedRun(0.0, tuple(clock.readings)).instruction_seconds)
        return ClockCost(read, max(0.0, whole - read))


def _make_profile(
    executor: IRExecutor,
    calls: list[float],
    runs: list[TimedRun],
    traffic: list[tuple[int, int]],
    cost: ClockCost,
) -> Profile:
    instructions = executor.instructions
    columns = list(zip(*(run.instruction_seconds for run in runs), strict=True))
    taken = [[max(0.0, seconds - cost.inside) for seconds in column] for column in columns]
    total = sum(map(statistics.median, taken))
    count = FlopCounter()
    between = statistics.median(run.seconds - sum(run.instruction_seconds) for run in runs)
    typical = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
    steps = [
        _summarize(instruction, times, total, moved, count)
        for instruction, times, moved in zip(instructions, taken, traffic, strict=True)
    ]
    return Profile(
        graph=executor.graph.name,
        steps=tuple(steps),
        call_seconds=statistics.median(calls),
        timed_call_seconds=statistics.median(run.seconds for run in runs),
        between_seconds=max(0.0, between - len(instructions) * cost.outside),
        clock_seconds=cost.inside,
        repeat=len(runs),
        threads=executor.threads or torch.get_num_threads(),
        device=str(executor.device),
        readings=typical.readings,
    )


def _summarize(
    instruction: Instruction, times: list[float], total: float, traffic: tuple[int, int], count: FlopCounter
) -> StepTime:
    origin = instruction.node.provenance
    seconds = statistics.median(times)
    flops = [count(node) for node in instruction.nodes]
    return StepTime(
        name=instruction.node.name,
        nodes=tuple(node.name for node in instruction.nodes),
        op_type=instruction.node.op_type,
        backend=instruction.backend,
        kernel=instruction.kernel,
        module=origin.module,
        source=origin.source,
        seconds=seconds,
        fastest_seconds=min(times),
        share=seconds / total if total else 0.0,
        flops=None if None in flops else sum(item or 0 for item in flops),
        bytes_read=traffic[0],
        bytes_written=traffic[1],
    )


def _measure_traffic(
    executor: IRExecutor, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> list[tuple[int, int]]:
    """Return the bytes of the tensors that each instruction of a call reads, and those that it writes.

    Both are 0 for a view, which accesses no element.
    """
    traffic: list[tuple[int, int]] = []

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            read = _select_tensors((given, list(named.values())))
            result = function(*given, **named)
            outputs = _select_tensors(result)
            overwrites = executor.instructions[len(traffic)].overwrites is not None
            made = [
                item
                for item in outputs
                if overwrites or not any(shares_memory(item, other) for other in read)
            ]
            distinct = {id(item): item for item in read}.values()
            is_view = outputs and not made
            traffic.append((0, 0) if is_view else (sum(map(_nbytes, distinct)), sum(map(_nbytes, made))))
            return result

        return call

    executor.instrumented(wrap)(*args, **kwargs)
    return traffic


def _select_tensors(items: Any) -> list[torch.Tensor]:
    return [item for item in flatten_results(items) if isinstance(item, torch.Tensor)]


def _nbytes(item: torch.Tensor) -> int:
    return item.numel() * item.element_size()


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start

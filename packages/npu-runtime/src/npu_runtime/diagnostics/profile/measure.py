"""Measurement of a profile: clocks around each instruction of an executor's own program."""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from npu_ir.errors import UsageError
from npu_passes.manager.flops import FlopCounter
from npu_runtime.codegen.call_binder import positional_tuple
from npu_runtime.diagnostics.profile.costs import Traffic, TrafficMeter, instruction_flops
from npu_runtime.diagnostics.profile.report import Profile
from npu_runtime.diagnostics.profile.step_times import StepTime

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
    given = positional_tuple(args), dict(kwargs or {})
    meter, clock = TrafficMeter(executor.instructions), Clock()
    executor.instrumented(meter.wrap)(*given[0], **given[1])
    timed, untimed = executor.instrumented(clock.wrap), executor.instrumented(lambda function: function)
    for _ in range(warmup):
        untimed(*given[0], **given[1])
        timed(*given[0], **given[1])
    calls, runs = [], []
    for _ in range(repeat):
        calls.append(_seconds(lambda: untimed(*given[0], **given[1])))
        clock.readings.clear()
        seconds = _seconds(lambda: timed(*given[0], **given[1]))
        runs.append(TimedRun(seconds, tuple(clock.readings)))
    return _make_profile(executor, calls, runs, meter.traffic, ClockCost.measure())


@dataclass(frozen=True, slots=True)
class TimedRun:
    """The time of one run with clocks, and the readings before and after each instruction."""

    seconds: float
    readings: tuple[float, ...]

    def instruction_seconds(self, index: int) -> float:
        return self.readings[2 * index + 1] - self.readings[2 * index]

    def between_seconds(self) -> float:
        """Return the seconds outside of the instructions."""
        return self.seconds - sum(map(self.instruction_seconds, range(len(self.readings) // 2)))


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
        empty: Callable[..., Any] = lambda *_args: None  # noqa: E731
        timed = clock.wrap(empty)
        whole, bare = [], []
        for _ in range(_CALIBRATIONS):
            whole.append(_seconds(lambda: timed(1, 2)))
            bare.append(_seconds(lambda: empty(1, 2)))
        pairs = zip(clock.readings[::2], clock.readings[1::2], strict=True)
        read = statistics.median(end - start for start, end in pairs)
        # The time between readings includes the call of the empty function itself.
        return ClockCost(read, max(0.0, statistics.median(whole) - read))


def _make_profile(
    executor: IRExecutor, calls: list[float], runs: list[TimedRun], traffic: list[Traffic], cost: ClockCost
) -> Profile:
    taken = [
        [max(0.0, run.instruction_seconds(index) - cost.inside) for run in runs]
        for index in range(len(executor.instructions))
    ]
    medians = [statistics.median(column) for column in taken]
    total = sum(medians)
    count = FlopCounter()
    flops = [instruction_flops(instruction, count) for instruction in executor.instructions]
    shares = [median / total if total else 0.0 for median in medians]
    columns = zip(executor.instructions, taken, shares, traffic, flops, strict=True)
    between = statistics.median(run.between_seconds() for run in runs)
    typical = sorted(runs, key=lambda run: run.seconds)[len(runs) // 2]
    return Profile(
        graph=executor.graph.name,
        steps=tuple(itertools.starmap(_summarize_instruction, columns)),
        call_seconds=statistics.median(calls),
        timed_call_seconds=statistics.median(run.seconds for run in runs),
        between_seconds=max(0.0, between - len(executor.instructions) * cost.outside),
        clock_seconds=cost.inside,
        repeat=len(runs),
        threads=executor.threads or torch.get_num_threads(),
        device=str(executor.device),
        readings=typical.readings,
    )


def _summarize_instruction(
    instruction: Instruction, times: list[float], share: float, traffic: Traffic, flops: int | None
) -> StepTime:
    origin = instruction.node.provenance
    return StepTime(
        name=instruction.node.name,
        nodes=tuple(node.name for node in instruction.nodes),
        op_type=instruction.node.op_type,
        backend=instruction.backend,
        kernel=instruction.kernel,
        module=origin.module,
        source=origin.source,
        seconds=statistics.median(times),
        fastest_seconds=min(times),
        share=share,
        flops=flops,
        bytes_read=traffic.read,
        bytes_written=traffic.written,
    )


def _seconds(function: Callable[[], Any]) -> float:
    start = time.perf_counter()
    function()
    return time.perf_counter() - start

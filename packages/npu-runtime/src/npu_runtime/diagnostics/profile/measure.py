"""Measurement of a profile: a clock around each instruction of an executor's own program, and its traffic.

Where a backend can tell the times of its ops, these take the place of the instruction that runs them all.
"""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from npu_ir.core.storage import shares_memory
from npu_ir.errors import UsageError
from npu_ir.graph.requirement import positional_tuple
from npu_ir.ops.execution import flatten_results
from npu_passes.manager.statistics import FlopCounter
from npu_runtime.diagnostics.profile.op_times import OpTimes, measure_ops
from npu_runtime.diagnostics.profile.report import Profile, StepTime
from npu_runtime.diagnostics.profile.traffic import read_bytes
from npu_runtime.executor.requirement import require_executor

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
    """Return the time of each instruction of a call, and of each op of a native program.

    The program of the executor runs with a clock around each instruction. The overhead of a clock, calibrated
    on calls of an empty function, is subtracted. Calls without clocks are timed before; after it, backends
    time their own ops (`Backend.timed_ops`); a trace by `npu_cuda.trace` that is running is lost by it.
    Buffers of the executor are not changed.

    Args:
        executor: The executor.
        args: Positional arguments of the call.
        kwargs: Its keyword arguments.
        repeat: The number of runs with clocks, and of runs without.
        warmup: The number of runs of both before that.

    Raises:
        UsageError: ``repeat`` is less than 1, or ``warmup`` is negative; or the executor runs on ``meta``.
        ExecutionError: As for a call.
    """
    require_executor(executor)
    if repeat < 1 or warmup < 0:
        raise UsageError(
            f"repeat={repeat}, warmup={warmup}: a program is run at least once, after no warm-up or some"
        )
    if executor.device.type == "meta":
        raise UsageError("the executor runs on meta, where nothing is computed that could be timed")
    given, named = positional_tuple(args), dict(kwargs or {})
    executor = executor.for_call(given, named)
    traffic = _measure_traffic(executor, given, named)
    readings: list[float] = []
    timed, untimed = (
        executor.instrumented(wrap) for wrap in (functools.partial(_add_clock, readings), lambda item: item)
    )
    # One after the other: where they take turns, backends bind their constants anew in each call.
    for _ in range(warmup):
        untimed(*given, **named)
    calls = [_seconds(lambda: untimed(*given, **named)) for _ in range(repeat)]
    for _ in range(warmup):
        timed(*given, **named)
    runs = []
    for _ in range(repeat):
        readings.clear()
        seconds = _seconds(lambda: timed(*given, **named))
        runs.append((seconds, tuple(readings)))
    return _make_profile(executor, calls, runs, traffic, measure_ops(executor, given, named, repeat))


def _add_clock(readings: list[float], function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that does the same, and appends the time before and after it, in seconds."""
    now, take = time.perf_counter, readings.append

    def call(*args: Any, **kwargs: Any) -> Any:
        start = now()
        result = function(*args, **kwargs)
        end = now()
        take(start)  # after the second reading, which must not time the list
        take(end)
        return result

    return call


def _instruction_seconds(readings: Sequence[float]) -> list[float]:
    return [end - start for start, end in zip(readings[::2], readings[1::2], strict=True)]


def _clock_seconds() -> tuple[float, float]:
    """Return the overhead of a clock between its readings and outside of them, around an empty function."""
    readings: list[float] = []
    timed = _add_clock(readings, lambda *_args: None)
    whole = statistics.median(_seconds(lambda: timed(1, 2)) for _ in range(_CALIBRATIONS))
    # The time between readings includes the call of the empty function itself.
    read = statistics.median(_instruction_seconds(readings))
    return read, max(0.0, whole - read)


def _make_profile(
    executor: IRExecutor,
    calls: list[float],
    runs: list[tuple[float, tuple[float, ...]]],
    traffic: list[tuple[int, int]],
    op_times: Mapping[int, OpTimes],
) -> Profile:
    inside, outside = _clock_seconds()
    instructions = executor.instructions
    columns = list(zip(*(_instruction_seconds(readings) for _, readings in runs), strict=True))
    taken = [[max(0.0, seconds - inside) for seconds in column] for column in columns]
    count = FlopCounter()
    between = statistics.median(seconds - sum(_instruction_seconds(readings)) for seconds, readings in runs)
    _, typical = sorted(runs, key=lambda run: run[0])[len(runs) // 2]
    steps: list[StepTime] = []
    spans: list[float] = []
    for number, (instruction, times, moved) in enumerate(zip(instructions, taken, traffic, strict=True)):
        span = typical[2 * number], typical[2 * number + 1]
        if number in op_times:
            inner = op_times[number].steps(statistics.median(times), count)
            between += statistics.median(times) - sum(step.seconds for step in inner)
            spans += op_times[number].spans(inner, span)
            steps += inner
        else:
            steps.append(_summarize(instruction, times, moved, count))
            spans += span
    total = sum(step.seconds for step in steps)
    return Profile(
        graph=executor.graph.name,
        steps=tuple(replace(step, share=step.seconds / total if total else 0.0) for step in steps),
        call_seconds=statistics.median(calls),
        timed_call_seconds=statistics.median(seconds for seconds, _ in runs),
        between_seconds=max(0.0, between - len(instructions) * outside),
        clock_seconds=inside,
        repeat=len(runs),
        threads=executor.threads or torch.get_num_threads(),
        device=str(executor.device),
        readings=tuple(spans),
    )


def _summarize(
    instruction: Instruction, times: list[float], traffic: tuple[int, int], count: FlopCounter
) -> StepTime:
    origin = instruction.node.provenance
    flops = [count(node) for node in instruction.nodes]
    return StepTime(
        name=instruction.node.name,
        nodes=tuple(node.name for node in instruction.nodes),
        op_type=instruction.node.op_type,
        backend=instruction.backend,
        kernel=instruction.kernel,
        module=origin.module,
        source=origin.source,
        phase=origin.phase,
        seconds=statistics.median(times),
        fastest_seconds=min(times),
        share=0.0,  # of a total that is not known yet
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
            instruction = executor.instructions[len(traffic)]
            overwrites = instruction.overwrites is not None
            made = [
                item
                for item in outputs
                if overwrites or not any(shares_memory(item, other) for other in read)
            ]
            distinct = {id(item): item for item in read}.values()
            is_view = outputs and not made
            written = sum(map(_nbytes, made))
            # A partition looks up in one of many ops, and is taken as a whole.
            op_type = "" if instruction.is_partition else instruction.node.op_type
            read_all = read_bytes(op_type, list(map(_nbytes, distinct)), written)
            traffic.append((0, 0) if is_view else (read_all, written))
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

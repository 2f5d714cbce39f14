"""One contender in a process of its own: `runtime.py` forks it, and tells it when to run.

So nothing that one contender sets, caches or allocates has an influence on another, and all are measured in turns all the same.
"""

from __future__ import annotations

import contextlib
import gc
import json
import multiprocessing
import os
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch
from runtime_contenders import CONTENDERS, Call, Case

BURST_SECONDS = 0.03
LOUD = "NPU_BENCH_LOUD"  # set to see what the contenders have to say
PAUSE_SECONDS = 0.005  # other processes' idle threads stop spinning


class Worker:
    """A contender, made ready in a process of its own, as seen from outside.

    Attributes:
        facts: What is known of it once it is ready: compile time, peak memory, difference from eager; or the error.
        seconds: Of a call, one entry per turn.
    """

    def __init__(self, name: str, case: Case, expected: torch.Tensor, cache: Path) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=serve, args=(other, name, case, expected, cache))
        self._process.start()
        other.close()
        self.name = name
        self.seconds: list[float] = []
        self.facts: dict[str, Any] = self._answer()

    def _answer(self) -> dict[str, Any]:
        try:
            answer: dict[str, Any] = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(10)
            return {"error": f"its process ended with code {self._process.exitcode}"}
        return answer

    @property
    def is_ready(self) -> bool:
        return "error" not in self.facts

    def take_turn(self) -> None:
        time.sleep(PAUSE_SECONDS)
        if self.is_ready:
            self.facts |= self._asked("run")
        if self.is_ready:
            self.seconds.append(self.facts.pop("turn"))

    def overhead(self) -> dict[str, Any]:
        return self._asked("overhead")

    def _asked(self, order: str) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):
            self._connection.send(order)
        return self._answer()

    def stop(self) -> None:
        with contextlib.suppress(BrokenPipeError):
            self._connection.send("stop")
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()

    def result(self) -> dict[str, Any]:
        if not self.is_ready:
            return {"error": self.facts["error"]}
        return {**self.facts, "seconds": statistics.median(self.seconds), "turns": len(self.seconds)}


def serve(connection: Connection, name: str, case: Case, expected: torch.Tensor, cache: Path) -> None:
    """Make the contender ready, and run it whenever told to."""
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        torch.set_num_threads(case.threads)
        if not os.environ.get(LOUD):
            silence()
        try:
            call, facts = ready(name, case, expected)
        except Exception as error:  # noqa: BLE001 - what does not run is a result of the benchmark
            traceback.print_exc()
            connection.send({"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]})
            return
        connection.send(facts)
        answer: dict[str, Callable[[], dict[str, Any]]] = {
            "run": lambda: {"turn": burst(call, case.args)},
            "overhead": lambda: overhead(call, case.args),
        }
        with CONTENDERS[name].mode():
            for order in iter(connection.recv, "stop"):
                connection.send(answer[order]())


def silence() -> None:
    """Send what this process writes nowhere, libraries included."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)


def ready(name: str, case: Case, expected: torch.Tensor) -> tuple[Call, dict[str, Any]]:
    """Return a contender ready to be called, and what was found out on the way."""
    contender = CONTENDERS[name]
    with contextlib.ExitStack() as stack:
        build = contender.prepare(case)
        gc.collect()
        stack.enter_context(contender.mode())
        start = time.perf_counter()
        call = build()
        result = call(*case.args)
        first = time.perf_counter() - start
        facts = {"difference": difference(result, expected)}
        for _ in range(3):
            call(*case.args)
        facts["compile_seconds"] = max(0.0, first - burst(call, case.args)) if contender.is_compiled else None
        facts["peak_bytes"] = peak_bytes(call, case.args)
    return call, facts


def difference(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest expected value; inf or nan where there is no telling."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return float("inf")
    if torch.equal(result, expected):
        return 0.0
    return float((result.double() - expected.double()).abs().max() / expected.double().abs().max())


def burst(call: Call, args: tuple[Any, ...]) -> float:
    """Return the seconds that a call takes, as the mean of those that fit into a burst."""
    start = time.perf_counter()
    call(*args)
    once = time.perf_counter() - start
    count = int(BURST_SECONDS / once)
    if count < 2:
        return once
    gc.disable()
    start = time.perf_counter()
    for _ in range(count):
        call(*args)
    taken = time.perf_counter() - start
    gc.enable()
    return taken / count


def peak_bytes(call: Call, args: tuple[Any, ...]) -> int | None:
    """Return the most memory that a call holds at once, beyond what was there before: intermediates and results.

    The sum of what PyTorch's CPU allocator hands out and takes back while one call runs, as torch.profiler tells. Memory
    that libraries take from elsewhere is not seen; of ONNX Runtime, none is.
    """
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, profile_memory=True) as profiler:
        result = call(*args)
    del result
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "trace.json")
        profiler.export_chrome_trace(str(path))
        events = json.loads(path.read_text())["traceEvents"]
    changes = [event for event in events if event["name"] == "[memory]"]
    held = peak = 0
    for event in sorted(changes, key=lambda event: event["ts"]):
        held += event["args"]["Bytes"]
        peak = max(peak, held)
    return peak or None


def overhead(call: Any, args: tuple[Any, ...]) -> dict[str, Any]:
    """Return what a call of our executor takes beside the same kernel calls one after another, with fixed arguments."""
    from runtime_overhead import kernel_calls

    sequence, count = kernel_calls(call, args)
    pairs = [(burst(call, args), burst(sequence, ())) for _ in range(15)]
    whole, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"steps": count, "bare_seconds": bare, "overhead_us": (whole - bare) / count * 1e6}


@contextlib.contextmanager
def workers(names: list[str], case: Case, expected: torch.Tensor, cache: Path) -> Iterator[list[Worker]]:
    """Return the contenders that can run, ready; stops them afterwards."""
    with contextlib.ExitStack() as stack:
        made = []
        for name in names:
            worker = Worker(name, case, expected, cache)
            stack.callback(worker.stop)
            made.append(worker)
        yield made

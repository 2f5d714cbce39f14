"""Contenders in processes of their own, which take turns on request.

So nothing that one contender sets, caches or allocates has an influence on another, and all are measured in
turns all the same. Between its turns a process is stopped: threads that wait for work by spinning would take
a core from the others. The processes are forked: Linux only, and there must be no threads before.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import multiprocessing
import os
import signal
import statistics
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

Call = Callable[..., Any]
Facts = dict[str, Any]

BURST_SECONDS = 0.03
LOUD = "NPU_BENCH_LOUD"  # set to see what the contenders have to say
_PR_SET_PDEATHSIG = 1  # of prctl(2)


@dataclass(frozen=True, slots=True)
class Ready:
    """A contender that can run.

    Attributes:
        call: What is measured.
        args: With what it is called.
        facts: What is known of it already, for JSON.
        orders: What else it can be asked for, by name.
        mode: The context that calls are made in; entered once, not per call.
        steps: What a call does as many times: the time of one is reported.
    """

    call: Call
    args: tuple[Any, ...]
    facts: Facts
    orders: Mapping[str, Callable[[], Facts]] = field(default_factory=dict)
    mode: Callable[[], Any] = contextlib.nullcontext
    steps: int = 1


class Worker:
    """A contender, made ready in a process of its own, as seen from outside.

    Attributes:
        facts: What is known of it once it is ready; or the error.
        seconds: Of a call, one entry per turn.
    """

    def __init__(self, name: str, make_ready: Callable[[], Ready], threads: int, cache: Path) -> None:
        context = multiprocessing.get_context("fork")
        self._connection, other = context.Pipe()
        self._process = context.Process(target=serve, args=(other, make_ready, threads, cache))
        self._process.start()
        other.close()
        self.name = name
        self.seconds: list[float] = []
        self.facts: Facts = self._answer()

    def _answer(self) -> Facts:
        try:
            answer: Facts = self._connection.recv()
        except (EOFError, ConnectionResetError):
            self._process.join(10)
            return {"error": f"its process ended with code {self._process.exitcode}"}
        self._signal(signal.SIGSTOP)
        return answer

    def _signal(self, number: signal.Signals) -> None:
        if self._process.is_alive() and self._process.pid is not None:
            os.kill(self._process.pid, number)

    @property
    def is_ready(self) -> bool:
        return "error" not in self.facts

    def take_turn(self) -> None:
        if self.is_ready:
            self.facts |= self.asked("run")
        if self.is_ready:
            self.seconds.append(self.facts.pop("turn"))

    def asked(self, order: str) -> Facts:
        self._signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):
            self._connection.send(order)
        return self._answer()

    def stop(self) -> None:
        self._signal(signal.SIGCONT)
        with contextlib.suppress(BrokenPipeError):
            self._connection.send("stop")
        self._process.join(10)
        if self._process.is_alive():
            self._process.kill()

    def result(self) -> Facts:
        if not self.is_ready:
            return {"error": self.facts["error"]}
        return {**self.facts, "seconds": statistics.median(self.seconds), "turns": len(self.seconds)}


def serve(connection: Connection, make_ready: Callable[[], Ready], threads: int, cache: Path) -> None:
    """Prepare a contender, and run it on request."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # stopped, it would outlive its parent
    with tempfile.TemporaryDirectory(dir=cache) as folder:
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = folder
        torch.set_num_threads(threads)
        if not os.environ.get(LOUD):
            silence()
        try:
            made = make_ready()
        except Exception as error:  # noqa: BLE001 - what does not run is a result of the benchmark
            traceback.print_exc()
            connection.send({"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]})
            return
        connection.send(made.facts)
        orders = {"run": lambda: {"turn": burst(made.call, made.args) / made.steps}, **made.orders}
        with made.mode():
            for order in iter(connection.recv, "stop"):
                connection.send(orders[order]())


def silence() -> None:
    """Discard the output of this process, that of libraries included."""
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)


def measure(contenders: list[Worker], seconds: float) -> None:
    """Let them take turns for so many seconds each, another one first each time, at least five times."""
    end = time.perf_counter() + seconds * len(contenders)
    turn = 0
    while turn < 5 or time.perf_counter() < end:
        first = turn % max(1, len(contenders))
        for worker in (*contenders[first:], *contenders[:first]):
            worker.take_turn()
        turn += 1


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
    """Return the peak memory of a call beyond what was there before: intermediates and results.

    The sum of what PyTorch's CPU allocator hands out and takes back while one call runs, as torch.profiler
    tells. Memory that libraries take from elsewhere is not seen; of ONNX Runtime, none is.
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


@contextlib.contextmanager
def workers(ready: Mapping[str, Callable[[], Ready]], threads: int, cache: Path) -> Iterator[list[Worker]]:
    """Return the contenders, each ready or with its error; stops them afterwards."""
    with contextlib.ExitStack() as stack:
        made = []
        for name, make_ready in ready.items():
            worker = Worker(name, make_ready, threads, cache)
            stack.callback(worker.stop)
            made.append(worker)
        yield made

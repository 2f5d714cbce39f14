"""Worker processes that judge operators, or models: a crash or a hang costs one call, never the run.

A worker reads ``{"op": name, "skip": count}`` lines and answers with one line per event: each stage
that begins, each verdict, and the end. What it was doing when it died is thus known. The worker is
then replaced, and goes on behind the call that killed it.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.coverage_runs.outcomes import Outcome
from tests.support.places import ROOT

START_LIMIT_S = 300.0
MOST_CRASHES = 3

# In which stage a worker died tells whose fault it is.
_BLAME = {"samples": Outcome.EAGER_REFUSES, "eager": Outcome.EAGER_REFUSES, "export": Outcome.EXPORT_REFUSES}

Result = dict[str, Any]


@dataclass(slots=True)
class OpResult:
    op: str
    results: list[Result] = field(default_factory=list)
    seconds: float = 0.0


class _WorkerDied(Exception):
    """A worker ended or was ended; the message says how."""


class _Worker:
    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @classmethod
    async def start(cls, command: Sequence[str], log: Path) -> _Worker:
        """Return a worker that is ready."""
        with log.open("ab") as errors:
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                cwd=ROOT,
                env={**os.environ, "OMP_NUM_THREADS": "1"},
            )
        worker = cls(process)
        try:
            ready = await worker._event(START_LIMIT_S)
        except _WorkerDied as death:
            raise RuntimeError(f"a worker does not start: {death}; see {log}") from death
        assert ready == {"event": "ready"}, ready
        return worker

    async def events(self, op: str, skip: int, limit_s: float) -> AsyncIterator[Any]:
        """Yield what the worker reports about ``op``, but for its first ``skip`` calls."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, "skip": skip}).encode() + b"\n")
        while (event := await self._event(limit_s))["event"] != "done":
            yield event

    async def _event(self, limit_s: float) -> Any:
        assert self._process.stdout is not None
        try:
            line = await asyncio.wait_for(self._process.stdout.readline(), limit_s)
        except asyncio.TimeoutError:
            await self.stop()
            raise _WorkerDied(f"no answer in {limit_s:g} s") from None
        if not line.endswith(b"\n"):
            raise _WorkerDied(_end_of(await self._process.wait()))
        return json.loads(line)

    async def stop(self) -> None:
        """End the process."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()


def _end_of(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"


@dataclass(frozen=True, slots=True)
class Pool:
    """Worker processes with one queue of operators.

    Attributes:
        size: How many there are.
        limit_s: The longest time that a worker may be silent.
        folder: Where the workers' error output goes.
        command: Starts a worker.
    """

    folder: Path
    size: int
    limit_s: float
    command: tuple[str, ...]

    def run(self, ops: Sequence[str], report: Callable[[OpResult], None]) -> None:
        asyncio.run(self._run(ops, report))

    async def _run(self, ops: Sequence[str], report: Callable[[OpResult], None]) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        queue = iter(ops)
        jobs = [
            asyncio.ensure_future(self._serve(queue, report, number))
            for number in range(min(self.size, len(ops)))
        ]
        try:
            await asyncio.gather(*jobs)
        finally:
            for job in jobs:
                job.cancel()
            await asyncio.gather(*jobs, return_exceptions=True)

    async def _serve(self, queue: Any, report: Callable[[OpResult], None], number: int) -> None:
        log = self.folder / f"worker-{number}.log"
        worker = await _Worker.start(self.command, log)
        try:
            for op in queue:
                started = time.monotonic()
                result = OpResult(op)
                crashes = 0
                while (crash := await self._judge(worker, result)) is not None:
                    result.results.append(crash)
                    await worker.stop()
                    worker = await _Worker.start(self.command, log)
                    crashes += 1
                    if crashes == MOST_CRASHES:
                        result.results.append(
                            _verdict("the rest", Outcome.FAIL, f"given up after {crashes} crashes")
                        )
                        break
                result.seconds = round(time.monotonic() - started, 2)
                report(result)
        finally:
            await worker.stop()

    async def _judge(self, worker: _Worker, result: OpResult) -> Result | None:
        """Add the verdicts on an operator's calls; where the worker dies, return the verdict on that call."""
        call, stage = {"call": "samples", "dtype": "", "variant": ""}, "samples"
        try:
            async for event in worker.events(result.op, len(result.results), self.limit_s):
                if event["event"] == "stage":
                    call, stage = event["call"], event["stage"]
                else:
                    result.results.append(event["result"])
                    stage = "samples"
        except _WorkerDied as death:
            return {
                **call,
                **_verdict("", _BLAME.get(stage, Outcome.FAIL), f"{stage}: the process ended: {death}"),
            }
        return None


def _verdict(call: str, outcome: Outcome, reason: str) -> Result:
    named = {"call": call, "dtype": "", "variant": ""} if call else {}
    return {**named, "outcome": outcome.value, "reason": reason, "same_strides": True}

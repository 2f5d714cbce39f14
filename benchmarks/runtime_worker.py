"""A contender of `runtime.py` made ready: its first call timed, its result compared, its memory measured."""

from __future__ import annotations

import gc
import statistics
import time
from functools import partial
from typing import Any

import torch
from runtime_contenders import CONTENDERS, Call, Case
from turns import Ready, burst, peak_bytes


def ready(name: str, case: Case, expected: torch.Tensor) -> Ready:
    """Return a contender ready to be called, and its measurements."""
    contender = CONTENDERS[name]
    build = contender.prepare(case)
    gc.collect()
    with contender.mode():
        start = time.perf_counter()
        call = build()
        result = call(*case.args)
        first = time.perf_counter() - start
        facts: dict[str, Any] = {"difference": difference(result, expected)}
        for _ in range(3):
            call(*case.args)
        facts["compile_seconds"] = max(0.0, first - burst(call, case.args)) if contender.is_compiled else None
        facts["peak_bytes"] = peak_bytes(call, case.args)
    return Ready(call, case.args, facts, {"overhead": partial(overhead, call, case.args)}, contender.mode)


def difference(result: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest difference, relative to the largest expected value; inf or nan if undefined."""
    if result.shape != expected.shape or result.dtype != expected.dtype:
        return float("inf")
    if torch.equal(result, expected):
        return 0.0
    return float((result.double() - expected.double()).abs().max() / expected.double().abs().max())


def overhead(call: Call, args: tuple[Any, ...]) -> dict[str, Any]:
    """Return the time of an executor call beyond that of its kernel calls with fixed arguments."""
    from runtime_overhead import kernel_calls

    sequence, count = kernel_calls(call, args)
    pairs = [(burst(call, args), burst(sequence, ())) for _ in range(15)]
    whole, bare = (statistics.median(column) for column in zip(*pairs, strict=True))
    return {"steps": count, "bare_seconds": bare, "overhead_us": (whole - bare) / count * 1e6}

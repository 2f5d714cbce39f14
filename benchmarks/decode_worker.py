"""A contender of `decode.py` made ready: its logits compared, and what it can be asked for."""

from __future__ import annotations

import statistics
import time
from functools import partial
from typing import Any

import torch
from decode_contenders import CONTENDERS, Case
from decode_models import read_bytes
from runtime_worker import difference
from turns import Ready

from npu_runtime import Decoder

COPY = "copy"
_COPIED_BYTES = 256 << 20


def ready(name: str, case: Case, expected: torch.Tensor) -> Ready:
    """Return a contender whose calls generate one token each, after a prompt."""
    if name == COPY:
        source = torch.ones(_COPIED_BYTES // 4)
        target = torch.empty_like(source)
        return Ready(target.copy_, (source,), {"copied_bytes": 2 * _COPIED_BYTES, "difference": 0.0})
    start = time.perf_counter()
    made = CONTENDERS[name].make(case)
    made.feed(case.prompt)
    logits = made.feed(case.token)
    facts: dict[str, Any] = {"ready_seconds": time.perf_counter() - start}
    facts["difference"] = difference(logits, expected)
    token = logits.argmax(-1)[:, None]
    count = case.prompt.shape[1]

    def step() -> None:
        nonlocal token
        if made.position >= count + case.window:
            made.position = count
        token = made.feed(token).argmax(-1)[:, None]

    for _ in range(3):
        step()
    orders = {"prompt": partial(prompt_seconds, made, case)}
    if isinstance(made, Decoder):
        facts["read_bytes"] = read_bytes(made, count + case.window // 2)
        orders["overhead"] = partial(overhead, made, case)
    return Ready(step, (), facts, orders, torch.no_grad)


def prompt_seconds(made: Any, case: Case) -> dict[str, Any]:
    """Return the time of reading the prompt into an empty cache."""
    made.reset()
    start = time.perf_counter()
    made.feed(case.prompt)
    return {"turn": time.perf_counter() - start}


def overhead(decoder: Decoder, case: Case) -> dict[str, Any]:
    """Return the time of a token beyond that of its kernels, as the trace of their launches has it.

    The trace itself takes longer than a launch, so that calls with it and without it take turns, each after a
    call that does not count: reading a trace empties caches. Of each the quickest tenth counts.
    """
    import npu_cuda

    def feed() -> float:
        decoder.position = case.prompt.shape[1]
        decoder.feed(case.token)
        decoder.position = case.prompt.shape[1]
        start = time.perf_counter()
        decoder.feed(case.token)
        return time.perf_counter() - start

    whole, kernels, launches = [], [], 0
    for _ in range(100):
        whole.append(feed())
        npu_cuda.trace_start(1 << 14)
        feed()
        npu_cuda.trace_stop()
        events = npu_cuda.trace_events()
        events = events[len(events) // 2 :]  # of the second of two calls
        launches = len(events)
        kernels.append(sum(event["duration_ns"] for event in events) * 1e-9)
    beyond = statistics.quantiles(whole, n=10)[0] - statistics.quantiles(kernels, n=10)[0]
    return {"overhead_us": beyond * 1e6, "launches": launches}

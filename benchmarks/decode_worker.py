"""A contender of `decode.py` made ready: its logits compared, and what it can be asked for."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
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
_GENERATED, _TURNS = 8, 50  # tokens of a run, and runs, of which what is beyond kernels is measured


def ready(name: str, case: Case, expected: torch.Tensor) -> Ready:
    """Return a contender that generates tokens after a prompt: ours several in a call, others one."""
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

    def steps() -> None:
        nonlocal token
        if made.position + tokens > count + case.window:
            made.position = count
        token = made.generate(token, max_new_tokens=tokens, stop=(), reset=False)[:, -1:]

    tokens = case.window // 2 if isinstance(made, Decoder) else 1
    call = steps if isinstance(made, Decoder) else step
    for _ in range(3):
        call()
    orders = {"prompt": partial(prompt_seconds, made, case)}
    if isinstance(made, Decoder):
        facts["read_bytes"] = read_bytes(made, count + case.window // 2)
        orders["overhead"] = partial(overhead, made, case)
    return Ready(call, (), facts, orders, torch.no_grad, tokens)


def prompt_seconds(made: Any, case: Case) -> dict[str, Any]:
    """Return the time of reading the prompt into an empty cache."""
    made.reset()
    start = time.perf_counter()
    made.feed(case.prompt)
    return {"turn": time.perf_counter() - start}


def overhead(decoder: Decoder, case: Case) -> dict[str, Any]:
    """Return the time of a token beyond that of its kernels, as the trace of their launches has it.

    That of tokens that are generated, of which `generate` makes some more than another time; and that of one
    that is fed by a call of its own.
    """
    count = case.prompt.shape[1]

    def generate(more: int) -> None:
        decoder.position = count
        decoder.generate(case.token, max_new_tokens=2 + more, stop=(), reset=False)

    def feed(more: int) -> None:
        decoder.position = count
        for _ in range(1 + more):
            decoder.feed(case.token)

    beyond, launches = beyond_kernels(generate, _GENERATED)
    fed, _ = beyond_kernels(feed, 1)
    return {"overhead_us": beyond * 1e6, "fed_overhead_us": fed * 1e6, "launches": launches}


def beyond_kernels(run: Callable[[int], None], more: int) -> tuple[float, int]:
    """Return the time beyond that of kernels that so many tokens more take, for each, and its launches.

    The trace itself takes longer than a launch, so that runs with it and without it take turns, each after
    one that does not count: reading a trace empties caches. Of each the quickest tenth counts.
    """
    import npu_cuda

    def seconds(count: int) -> float:
        start = time.perf_counter()
        run(count)
        return time.perf_counter() - start

    few, many, kernels, launches = [], [], [], 0
    for _ in range(_TURNS):
        run(0)
        few.append(seconds(0))
        many.append(seconds(more))
        npu_cuda.trace_start(1 << 14)
        run(0)
        before = len(npu_cuda.trace_events())
        run(more)
        npu_cuda.trace_stop()
        events = npu_cuda.trace_events()
        launches = (len(events) - 2 * before) // more
        kernels.append(sum(event["duration_ns"] for event in events[-launches * more :]) * 1e-9)
    quick = [statistics.quantiles(times, n=10)[0] for times in (few, many, kernels)]
    return (quick[1] - quick[0] - quick[2]) / more, launches

"""Memory of a decoder: what its process holds beyond what it had before, and what a token allocates.

Of pages that are mapped from the checkpoint, those count that calls read: the system drops the others when it
needs memory. Linux only.
"""

from __future__ import annotations

import gc
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from decode_models import bytes_of, cache_bytes, make_model, weights_read
from torch.profiler import ProfilerActivity, profile

from npu_runtime import Decoder, extract_decoder

_TOKENS = 64


def save(size: str, folder: Path) -> None:
    """Write a checkpoint of a model."""
    make_model(size, torch.float32).save_pretrained(folder)


def run(size: str, form: str, folder: Path, length: int, count: int) -> dict[str, Any]:
    """Return the memory of a decoder of a checkpoint; meant for a process that has done nothing else."""
    quantize = None if form == "float32" else form
    torch.set_num_threads(1)
    graphs = extract_decoder(folder, max_length=length, quantize=quantize)
    _use_once(quantize)
    before = private_bytes()
    with peak_of_private_bytes() as peak:
        decoder = Decoder(graphs, folder)
        _decode(decoder, count)
    token = torch.tensor([[1]])
    values = weights_read(graphs.by_count[1])
    read = weights_read(decoder.executor().graph)  # packed matrices in place of weights
    mapped = bytes_of({value for value in read if value.producer is None})
    return {
        "size": size,
        "form": form,
        "weights_bytes": bytes_of(values),
        "cache_bytes": cache_bytes(graphs),
        "held_bytes": private_bytes() - before + mapped,
        "peak_bytes": peak[0] - before + mapped,
        "logits_bytes": decoder.feed(token).nbytes,
        "token_bytes": allocated_bytes(decoder, token),
    }


def _use_once(quantize: str | None) -> None:
    """Load what any decoder needs, with a small one."""
    model = make_model("1M", torch.float32)
    graphs = extract_decoder(model, max_length=64, counts=(), quantize=quantize)
    _decode(Decoder(graphs, model.state_dict()), 8)
    del model
    gc.collect()


def _decode(decoder: Decoder, count: int) -> None:
    decoder.feed(torch.randint(1000, (1, count)))
    for number in range(min(_TOKENS, decoder.graphs.length - count)):
        decoder.feed(torch.tensor([[number]]))


def private_bytes() -> int:
    """Return the resident memory of this process that is not mapped from a file."""
    found = re.search(r"RssAnon:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


@contextmanager
def peak_of_private_bytes() -> Iterator[list[int]]:
    """Yield a list whose item is the largest value of `private_bytes` in the block, looked at every 2 ms."""
    peak, is_over = [private_bytes()], threading.Event()

    def look() -> None:
        while not is_over.wait(0.002):
            peak[0] = max(peak[0], private_bytes())

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield peak
    finally:
        is_over.set()
        thread.join()


def allocated_bytes(decoder: Decoder, token: torch.Tensor) -> int:
    """Return what PyTorch's allocator hands out while a token is made, whether it is given back or not."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        decoder.feed(token)
    events = profiler.profiler.kineto_results.events()
    return sum(max(0, event.nbytes()) for event in events if event.name() == "[memory]")

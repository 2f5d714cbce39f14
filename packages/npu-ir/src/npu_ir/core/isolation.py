"""Contexts: ops isolated from global torch state, which would change their meaning; a paused collector."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import torch


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    """Set the default dtype inside of the context; torch's default is global to all threads."""
    before = torch.get_default_dtype()
    if before is dtype:
        yield
        return
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def isolated_torch_state(device: torch.device) -> Iterator[None]:
    """Disable autograd and autocast, and reset the default device and dtype, inside of the context."""
    accelerated = device.type not in ("cpu", "meta")
    # torch.device as a context is a mode that intercepts every op in Python, so it is entered only if needed.
    cpu = contextlib.nullcontext() if torch.get_default_device().type == "cpu" else torch.device("cpu")
    autocast = torch.autocast(device.type, enabled=False) if accelerated else contextlib.nullcontext()
    with (
        torch.no_grad(),
        cpu,
        torch.autocast("cpu", enabled=False),
        autocast,
        default_dtype(torch.float32),
    ):
        yield


@contextlib.contextmanager
def pause_gc() -> Iterator[None]:
    """Pause the garbage collector: building a graph would spend half its time traversing live objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()

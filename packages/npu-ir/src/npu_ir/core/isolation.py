"""Isolation of ops from global torch state, which would change their meaning."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from npu_ir.core.default_dtype import float32_by_default


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
        float32_by_default(),
    ):
        yield

"""Running ops without what a process has set: it would change what they mean."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import torch

from npu_ir.core.default_dtype import float32_by_default


@contextlib.contextmanager
def no_outside_influence(device: torch.device) -> Iterator[None]:
    """Shut out what would change the meaning of an op: autograd, autocast, the default device and dtype."""
    accelerated = device.type not in ("cpu", "meta")
    # A default device is a mode that sees every op, in Python: it is only set where there is another one.
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

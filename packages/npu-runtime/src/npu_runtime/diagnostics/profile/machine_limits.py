"""Limits of the machine, measured: the speed of a large product, and of a large copy."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir.errors import UsageError

_PRODUCT = 512  # rows and columns: large enough for full speed, and short enough to run undisturbed
_COPY_BYTES = 1 << 26  # more than the caches of one core
_REPEAT = 20


@dataclass(frozen=True, slots=True)
class MachineLimits:
    """Limits of a machine, for one number of threads.

    Attributes:
        gflops: Billions of floating-point operations per second of a product of float32 matrices.
        gbytes: Billions of bytes per second that a copy reads and writes.
        threads: The number of threads that both may use.
    """

    gflops: float
    gbytes: float
    threads: int

    def __str__(self) -> str:
        return f"{self.gflops:.3g} GFLOP/s of a product, {self.gbytes:.3g} GB/s of a copy"


def measure_limits(device: torch.device | str = "cpu") -> MachineLimits:
    """Measure the limits of a device, in some tenths of a second; the best of a few runs counts.

    Raises:
        UsageError: Nothing is computed on this device.
    """
    device = torch.device(device)
    if device.type == "meta":
        raise UsageError("nothing is computed on the device meta", fix='measure_limits("cpu")')
    left, right = (torch.randn(_PRODUCT, _PRODUCT, device=device) for _ in range(2))
    source = torch.ones(_COPY_BYTES // 4, device=device)
    product, target = torch.empty_like(left), torch.empty_like(source)
    return MachineLimits(
        gflops=2 * _PRODUCT**3 / _seconds(lambda: torch.mm(left, right, out=product), device) / 1e9,
        gbytes=2 * _COPY_BYTES / _seconds(lambda: target.copy_(source), device) / 1e9,
        threads=torch.get_num_threads(),
    )


def _seconds(run: Callable[[], Any], device: torch.device) -> float:
    """Return the least time of a call; the first one does not count."""
    times = []
    for _ in range(_REPEAT + 1):
        start = time.perf_counter()
        run()
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        times.append(time.perf_counter() - start)
    return min(times[1:])

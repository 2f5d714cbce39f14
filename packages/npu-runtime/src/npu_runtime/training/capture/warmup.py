"""Warm-up: a step is run before it is captured, and nothing that lasts has changed afterwards."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from npu_runtime.errors import CaptureError
from npu_runtime.training.capture.capture_state import require_outside_capture
from npu_runtime.training.capture.snapshots import unchanged


class Warmable(Protocol):
    """What can be warmed up: a program over fixed memory, such as a `PlannedProgram`."""

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """What a run changes, by name: parameters, buffers, optimizer state."""

    def run(self, *numbers: Any) -> Any:
        """Run one step on what the inputs hold."""


def warmup_capture_safe(
    program: Warmable,
    runs: int = 2,
    sync: bool = True,
    *,
    numbers: Sequence[Any] = (),
    generators: Sequence[torch.Generator] = (),
) -> None:
    """Run a program, such that kernels are loaded and memory is touched, and put everything back bit by bit.

    Parameters, buffers, optimizer state and random generators (those of the CPU and of each device with state) hold
    afterwards what they held before, also where a run raises.

    Args:
        program: With what it holds; its inputs are to have some content.
        runs: How often.
        sync: Wait for the device after each run, so that what fails there fails here.
        numbers: What ``program.run`` takes: learning rates and such.
        generators: Further generators that the step draws from.

    Raises:
        CaptureError: In a capture or a replay; or ``runs`` is not positive.
    """
    require_outside_capture("a warm-up")
    if type(runs) is not int or runs < 1:
        raise CaptureError(f"a warm-up runs at least once, not {runs!r} times", fix="warmup_runs=2 is usual")
    tensors = list(program.state.values())
    with unchanged(tensors, generators) as snapshot:
        for index in range(runs):
            if index:
                snapshot.restore()  # each run begins where the first one did, so that none meets an overflow
            program.run(*numbers)
            if sync:
                synchronize(tensors)


def synchronize(tensors: Sequence[torch.Tensor]) -> None:
    """Wait for each CUDA device that one of these tensors is on."""
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        if device.type == "cuda":
            torch.cuda.synchronize(device)

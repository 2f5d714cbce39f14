"""Warm-up of a program before its capture, without lasting changes of its state."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import torch

from npu_runtime.errors import CaptureError
from npu_runtime.training.capture.capture_state import require_outside_capture
from npu_runtime.training.capture.snapshots import preserve_state


class Warmable(Protocol):
    """A program over fixed memory that can be warmed up, such as a `PlannedProgram`."""

    @property
    def state(self) -> Mapping[str, torch.Tensor]:
        """The tensors that a run mutates, by name: parameters, buffers, optimizer state."""

    def run(self, *numbers: Any) -> Any:
        """Run one step on the contents of the inputs."""


def warmup_capture_safe(
    program: Warmable,
    runs: int = 2,
    sync: bool = True,
    *,
    numbers: Sequence[Any] = (),
    generators: Sequence[torch.Generator] = (),
) -> None:
    """Run a program to load kernels and touch memory, then restore its state bit by bit.

    Parameters, buffers, optimizer state and random generators (those of the CPU and of each device with
    state) hold afterwards what they held before, also if a run raises.

    Args:
        program: The program; its inputs must have valid contents.
        runs: The number of runs.
        sync: Wait for the device after each run, so that its errors are raised here.
        numbers: The arguments of ``program.run``, such as learning rates.
        generators: Further generators that the step draws from.

    Raises:
        CaptureError: This thread is capturing or replaying; or ``runs`` is not positive.
    """
    require_outside_capture("a warm-up")
    if type(runs) is not int or runs < 1:
        raise CaptureError(f"a warm-up runs at least once, not {runs!r} times", fix="warmup_runs=2 is usual")
    tensors = list(program.state.values())
    with preserve_state(tensors, generators) as snapshot:
        for index in range(runs):
            if index:
                snapshot.restore()  # each run starts from the same state: repetition must not overflow
            program.run(*numbers)
            if sync:
                synchronize(tensors)


def synchronize(tensors: Sequence[torch.Tensor]) -> None:
    """Wait for each CUDA device that one of these tensors is on."""
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        if device.type == "cuda":
            torch.cuda.synchronize(device)

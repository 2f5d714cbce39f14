"""Warm-up: a step is run before it is captured, and nothing that lasts has changed afterwards."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from npu_runtime.errors import CaptureError
from npu_runtime.training.capture_state import require_outside_capture
from npu_runtime.training.snapshots import unchanged


class Warmable(Protocol):
    """What can be warmed up: a program over fixed memory, such as a `PlannedProgram`."""

    @property
    def weights(self) -> Mapping[str, torch.Tensor]:
        """Parameters, buffers and optimizer state by name: the memory that a run changes."""

    def run(self, numbers: Any = ...) -> Any:
        """Run one step on what the inputs hold."""


def warmup_capture_safe(
    program: Warmable,
    runs: int = 2,
    sync: bool = True,
    *,
    numbers: Any = None,
    generators: Sequence[torch.Generator] = (),
    run: Callable[[], Any] | None = None,
) -> None:
    """Run a program, such that kernels are loaded and memory is touched, and put everything back bit by bit.

    Parameters, buffers, optimizer state and random generators (those of the CPU and of each device with state) hold
    afterwards what they held before, also where a run raises.

    Args:
        program: With what it holds; its inputs are to have some content.
        runs: How often.
        sync: Wait for the device after each run, so that what fails there fails here.
        numbers: For ``program.run``, where it takes any.
        generators: Further generators that the step draws from.
        run: Called in place of ``program.run(numbers)``.

    Raises:
        CaptureError: In a capture or a replay; or ``runs`` is not positive.
    """
    require_outside_capture("a warm-up")
    if type(runs) is not int or runs < 1:
        raise CaptureError(f"a warm-up runs at least once, not {runs!r} times", fix="warmup_runs=2 is usual")
    tensors = list(program.weights.values())
    with unchanged(tensors, generators) as snapshot:
        for index in range(runs):
            if index:
                snapshot.restore()  # each run begins where the first one did, so that none meets an overflow
            _run(program, numbers, run)
            if sync:
                synchronize(tensors)


def _run(program: Warmable, numbers: Any, run: Callable[[], Any] | None) -> None:
    if run is not None:
        run()
    elif numbers is None:
        program.run()
    else:
        program.run(numbers)


def synchronize(tensors: Sequence[torch.Tensor]) -> None:
    """Wait for each CUDA device that one of these tensors is on."""
    for device in dict.fromkeys(tensor.device for tensor in tensors):
        if device.type == "cuda":
            torch.cuda.synchronize(device)

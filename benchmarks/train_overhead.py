"""What a call of `TrainStep` costs beyond its program, for steps of ten tensors: guards, batch, results.

One step has four linear layers and SGD: eight parameters, and the two tensors of the batch. The other one
has two linear layers and SGD with momentum: four parameters, four momenta, and the batch. A step and its
planned program take turns in bursts of a few calls; the least of each is reported, since any other process
only adds to a time.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

CALLS = 4  # of a burst: short enough to run undisturbed


def run(seconds: float) -> list[dict[str, Any]]:
    """Return for each step the seconds of a call, those of its program alone, and its depth in frames."""
    torch.set_num_threads(1)
    return [
        measure("4 layers, SGD", 4, 0.0, seconds),
        measure("2 layers, SGD with momentum", 2, 0.9, seconds),
    ]


def measure(title: str, layers: int, momentum: float, seconds: float) -> dict[str, Any]:
    """Measure the step of a perceptron for so long."""
    from npu_runtime import TrainStep

    widths = [4, *[6] * (layers - 1), 3]
    pairs = itertools.pairwise(widths)
    model = nn.Sequential(*itertools.chain(*((nn.Linear(*pair), nn.ReLU()) for pair in pairs)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=momentum)
    step, batch = TrainStep(model, optimizer, F.mse_loss), (torch.randn(5, 4), torch.randn(5, 3))
    step(*batch)
    step(*batch)
    program, numbers = step.artifact.program, step.artifact.program_numbers
    assert program is not None
    best = [float("inf")] * 2
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        best = list(map(min, best, (seconds_of(step, batch), seconds_of(program.run, numbers))))
    return {
        "title": title,
        "seconds": best[0],
        "program_seconds": best[1],
        "frames": depth_of(step, batch),
    }


def seconds_of(call: Callable[..., Any], args: Sequence[Any]) -> float:
    """Return the seconds of a call, as the mean of a short burst."""
    start = time.perf_counter()
    for _ in range(CALLS):
        call(*args)
    return (time.perf_counter() - start) / CALLS


def depth_of(call: Callable[..., Any], args: Sequence[Any], generated: str = "npu-program/") -> int:
    """Return how many frames deep a call goes; what generated programs call is their own."""
    stack: list[tuple[str, str]] = []
    deepest = 0

    def observe(frame: Any, event: str, _: Any) -> None:
        nonlocal deepest
        if event == "call":
            is_inside = any(file.startswith(generated) and name == "run" for file, name in stack)
            stack.append((frame.f_code.co_filename, frame.f_code.co_name))
            deepest = deepest if is_inside else max(deepest, len(stack))
        elif event == "return" and stack:
            stack.pop()

    sys.setprofile(observe)
    try:
        call(*args)
    finally:
        sys.setprofile(None)
    return deepest

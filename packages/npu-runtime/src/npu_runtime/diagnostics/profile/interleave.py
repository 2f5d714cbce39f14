"""Timing several functions in turns, so that whatever the machine does meanwhile meets them all."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Timing:
    """How long a function takes, in seconds.

    Attributes:
        median: Of all turns.
        fastest: The shortest turn.
        turns: How many there were.
    """

    median: float
    fastest: float
    turns: int


def take_turns(
    functions: Mapping[str, Callable[[], Any]],
    *,
    repeat: int = 20,
    warmup: int = 3,
    burst_seconds: float = 0.01,
) -> dict[str, Timing]:
    """Return how long each function takes.

    Args:
        functions: By name.
        repeat: How many turns each takes.
        warmup: Calls of each before that.
        burst_seconds: A turn is as many calls as fit into this, and at least one; their mean counts.
    """
    counts = {}
    for name, function in functions.items():
        taken = [_seconds(function, 1) for _ in range(max(1, warmup))]
        counts[name] = max(1, int(burst_seconds / max(min(taken), 1e-9)))
    turns: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeat):
        for name, function in functions.items():
            turns[name].append(_seconds(function, counts[name]) / counts[name])
    return {name: Timing(statistics.median(taken), min(taken), repeat) for name, taken in turns.items()}


def _seconds(function: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function()
    return time.perf_counter() - start

"""Interleaved timing of several functions, so that disturbances of the machine affect them alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Timing:
    """The time of a call of a function, in seconds.

    Attributes:
        median: Median over all turns.
        fastest: Minimum over all turns.
        turns: The number of turns.
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
    """Time several functions in turns, and return the timing of each.

    Args:
        functions: The functions by name.
        repeat: The number of turns of each.
        warmup: The number of calls of each before that, at least one.
        burst_seconds: The length of a turn: as many calls as fit into it, at least one; their mean counts.
    """
    counts = {}  # calls per turn, such that a turn is long against the resolution of the clock
    for name, function in functions.items():
        taken = [_time_calls(function, 1) for _ in range(max(1, warmup))]
        counts[name] = max(1, int(burst_seconds / max(min(taken), 1e-9)))
    turns: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(repeat):
        for name, function in functions.items():
            turns[name].append(_time_calls(function, counts[name]) / counts[name])
    return {name: Timing(statistics.median(taken), min(taken), repeat) for name, taken in turns.items()}


def _time_calls(function: Callable[[], Any], count: int) -> float:
    start = time.perf_counter()
    for _ in range(count):
        function()
    return time.perf_counter() - start

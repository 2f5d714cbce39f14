"""Offsets in one arena, from the sizes and live ranges of the allocations.

The problem is dynamic storage allocation, which is NP-hard (Garey and Johnson, SR2). The heuristic is
greedy by size (Pisarchyk and Lee, "Efficient Memory Management for Deep Neural Net Inference", 2020): the
largest allocation first, each at the lowest offset that no allocation with an overlapping live range
occupies (first fit). It is compared with the same in order of start, and repaired: the allocation that ends
highest moves to the front of the order. The search stops at the lower bound, the maximum of the live bytes.
"""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from dataclasses import dataclass

ALIGNMENT = 64
_ATTEMPTS = 64
# Larger problems come close to the bound at the first attempt, and each attempt is quadratic.
_MAX_REPAIRED_SPANS = 500


@dataclass(frozen=True, slots=True)
class Span:
    """A size and a live range: the first and the last instruction that need the memory."""

    bytes: int
    first: int
    last: int


def assign_offsets(spans: Sequence[Span]) -> tuple[list[int], int]:
    """Return the offset of each span, a multiple of 64, and the size of the arena."""
    bound = lower_bound(spans)
    order = sorted(range(len(spans)), key=lambda index: (-spans[index].bytes, spans[index].first))
    best = _first_fit(spans, order)
    by_time = sorted(range(len(spans)), key=lambda index: (spans[index].first, -spans[index].bytes))
    other = _first_fit(spans, by_time)
    best = min(best, other, key=lambda layout: layout[1])
    for _ in range(_ATTEMPTS if len(spans) <= _MAX_REPAIRED_SPANS else 1):
        if best[1] <= bound:
            break
        # The span that ends highest was assigned too late to find a lower gap: it goes first in the next
        # attempt.
        offsets, size = _first_fit(spans, order)
        best = min(best, (offsets, size), key=lambda layout: layout[1])
        highest = max(order, key=lambda index: offsets[index] + _align(spans[index].bytes))
        order.remove(highest)
        order.insert(0, highest)
    return best


def lower_bound(spans: Sequence[Span]) -> int:
    """Return the maximum of the live bytes, each span rounded up to the alignment."""
    changes: dict[int, int] = {}
    for span in spans:
        changes[span.first] = changes.get(span.first, 0) + _align(span.bytes)
        changes[span.last + 1] = changes.get(span.last + 1, 0) - _align(span.bytes)
    live = most = 0
    for index in sorted(changes):
        live += changes[index]
        most = max(most, live)
    return most


def _first_fit(spans: Sequence[Span], order: Sequence[int]) -> tuple[list[int], int]:
    """Return the offsets of a first-fit assignment in this order, and the size of the arena."""
    offsets = [0] * len(spans)
    occupied: list[tuple[int, int, int, int]] = []  # begin, end, first, last: sorted
    size = 0
    for index in order:
        span = spans[index]
        needed, first_use, last_use = _align(span.bytes), span.first, span.last
        start = 0
        for begin, end, first, last in occupied:
            if start + needed <= begin:
                break
            if end > start and first <= last_use and last >= first_use:
                start = end
        offsets[index] = start
        if needed:
            bisect.insort(occupied, (start, start + needed, first_use, last_use))
        size = max(size, start + needed)
    return offsets, size


def _align(count: int) -> int:
    return -(-count // ALIGNMENT) * ALIGNMENT

"""Longest common and longest increasing subsequences."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Sequence


def common_subsequence(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence, as pairs.

    One integer per item of ``right`` holds a whole row of the usual table, a bit per item of ``left``, so that
    thousands of items on both sides take a moment.

    Source: Hyyrö (2004), Bit-parallel LCS-length computation revisited; a bit of a row is 0 where the length grows.
    """
    places: defaultdict[Hashable, int] = defaultdict(int)
    for index, item in enumerate(left):
        places[item] |= 1 << index
    full = (1 << len(left)) - 1
    rows = [full]
    for item in right:
        row, match = rows[-1], rows[-1] & places.get(item, 0)
        rows.append(((row + match) | (row - match)) & full)
    pairs = []
    i, j = len(left), len(right)
    while i and j:
        if rows[j] >> (i - 1) & 1:
            i -= 1
        elif not rows[j - 1] >> (i - 1) & 1:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


def increasing_subsequence(numbers: Sequence[int]) -> set[int]:
    """Return the members of a longest increasing subsequence of distinct numbers."""
    tails: list[int] = []
    before: dict[int, int | None] = {}
    for number in numbers:
        at = bisect_left(tails, number)
        before[number] = tails[at - 1] if at else None
        tails[at : at + 1] = [number]
    found: set[int] = set()
    last = tails[-1] if tails else None
    while last is not None:
        found.add(last)
        last = before[last]
    return found

"""Longest common and longest increasing subsequences."""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Sequence


def common_subsequence(left: Sequence[Hashable], right: Sequence[Hashable]) -> list[tuple[int, int]]:
    """Return the positions of a longest common subsequence, as pairs.

    One integer per item of ``right`` holds a whole row of the dynamic programming table, one bit per item of
    ``left``: O(n * m / 64) word operations, fast for thousands of items on both sides.

    Source: Hyyrö (2004), Bit-parallel LCS-length computation revisited. A bit of a row is 0 where the length
    grows.
    """
    masks: defaultdict[Hashable, int] = defaultdict(int)
    for index, item in enumerate(left):
        masks[item] |= 1 << index
    full = (1 << len(left)) - 1
    rows = [full]
    for item in right:
        row, match = rows[-1], rows[-1] & masks.get(item, 0)
        rows.append(((row + match) | (row - match)) & full)
    # Trace back: skip a left item where the length does not grow, a right item where it already grew before.
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
    """Return the members of a longest increasing subsequence of distinct numbers.

    Source: Fredman (1975), On computing the length of longest increasing subsequences; O(n log n).
    """
    # tails[k] is the smallest last member of an increasing subsequence of length k + 1.
    tails: list[int] = []
    before: dict[int, int | None] = {}
    for number in numbers:
        at = bisect_left(tails, number)
        before[number] = tails[at - 1] if at else None
        tails[at : at + 1] = [number]
    members: set[int] = set()
    last = tails[-1] if tails else None
    while last is not None:
        members.add(last)
        last = before[last]
    return members

"""Selection of the nodes that run a second time, so that live memory stays within a budget.

Greedy, with simulations. What is to fall is the excess: the sum over all positions of the squares of the
bytes over the budget. Each move runs the node a second time that lowers it most, to first order, per second
of recomputation. What the second run reads has to be there: outputs that are needed so late anyway are read
as they are, others are recomputed, too, small ones kept longer. At last nodes are taken back that turn out
not to be needed, the slowest first.

The problem is that of Checkmate (Jain et al., 2020), which solves it by integer programming, restricted to
one second run of each node, at its first late reader. Segments of sqrt(n) layers (Chen et al., 2016) are
among its solutions.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from npu_ir import OpNode
from npu_ir.ops.effects import is_pure, is_random
from npu_passes.library.training.recompute.liveness import Block, Program, Simulation, Unit, reads_of

# An input this much smaller than what is recomputed from it is kept longer, not recomputed.
_SMALL = 16
# Simulations of nodes until the search for some to take back ends.
_MOST_SIMULATED = 100_000
_BISECTIONS = 8


def select(program: Program, budget: int, seconds: Callable[[OpNode], float]) -> Simulation:
    """Return the program with nodes that run a second time, so that its peak is within the budget.

    If that is not reached, its peak is the lowest that was found.

    Args:
        program: The program.
        budget: The most live bytes.
        seconds: The estimated time of one run of a node.
    """
    best = current = Simulation(program, {})
    search = _Search(current, budget, seconds)
    while current.peak > budget:
        ends = search.add_nodes(current)
        if ends == current.ends:
            return best
        current = Simulation(program, ends)
        best = min(best, current, key=lambda item: item.peak)
    return search.take_back(current)


def find_lowest_peak(program: Program, lowest: Simulation, seconds: Callable[[OpNode], float]) -> Simulation:
    """Return the program with the lowest peak that is found for any budget, after one was not reached.

    Args:
        program: The program.
        lowest: What was found for this budget.
        seconds: As for `select`.
    """
    # A budget too low leads astray: the lowest peak is found for one that is just above.
    low, high = 0, lowest.peak
    for _ in range(_BISECTIONS):
        budget = (low + high) // 2
        found = select(program, budget, seconds)
        lowest = min(lowest, found, key=lambda item: item.peak)
        low, high = (low, min(budget, lowest.peak)) if found.peak <= budget else (budget, high)
    return lowest


@dataclass(slots=True)
class _Move:
    """A node to run a second time, and all that it needs.

    Attributes:
        seconds: The time that it takes.
        ends: As for `Simulation`, of the nodes that run a second time for it.
        again: The positions of these, and of second runs that move to an earlier position for it.
        changes: Positions from, to, and by how many bytes live memory changes there.
    """

    seconds: float
    ends: dict[Unit, int] = field(default_factory=dict)
    again: dict[Unit, int] = field(default_factory=dict)
    changes: list[tuple[int, int, int]] = field(default_factory=list)


class _Search:
    """A search for nodes to run a second time."""

    def __init__(self, plain: Simulation, budget: int, seconds: Callable[[OpNode], float]) -> None:
        self._program = plain.program
        self._budget = budget
        self._seconds = {unit: seconds(unit.node) for unit in self._program.units}
        # What is computed after the peak, such as gradients, needs too much that is gone by then.
        forward = self._program.units[: plain.peak_position + 1]
        self._may = {unit for unit in forward if find_obstacle(unit) is None}
        self._ends: dict[Unit, int] = {}
        self._again: dict[Unit, int] = {}
        self._excess: list[int] = []  # the bytes over the budget, summed up before each position, and of all

    def add_nodes(self, current: Simulation) -> dict[Unit, int]:
        """Return more nodes to run a second time, enough by an estimate, or all that help."""
        self._ends, self._again, live = dict(current.ends), dict(current.again), list(current.live)
        self._sum_excess(live)
        # Values fall as memory does: the best one is evaluated again when it comes up.
        queue = [(-self._value(self._move(unit)), unit.position) for unit in self._may]
        queue = [item for item in queue if item[0] < 0]
        heapq.heapify(queue)
        while queue and self._excess[-1]:
            _, position = heapq.heappop(queue)
            move = self._move(self._program.units[position])
            value = self._value(move)
            if move is None or value <= 0:
                continue
            if queue and -value > queue[0][0]:
                heapq.heappush(queue, (-value, position))
                continue
            after = self._after(move, live)
            if after is not None:
                self._ends.update(move.ends)
                self._again.update(move.again)
                live = after
                self._sum_excess(live)
        return self._ends

    def take_back(self, current: Simulation) -> Simulation:
        """Return the program without second runs that the budget does not need, the slowest first."""
        order = sorted(current.ends, key=lambda unit: (-self._seconds[unit], -unit.position))
        for unit in order[: _MOST_SIMULATED // max(len(self._program.units), 1)]:
            if unit not in current.ends:
                continue
            ends = {item: end for item, end in current.ends.items() if item is not unit}
            trial = Simulation(self._program, ends)
            if trial.peak <= self._budget:
                current = trial
        return current

    def _after(self, move: _Move, live: Sequence[int]) -> list[int] | None:
        """Return the live bytes after a move; None if it does not lower the excess."""
        after = list(live)
        places = {place for first, last, _ in move.changes for place in range(first, last + 1)}
        for first, last, count in move.changes:
            for place in range(first, last + 1):
                after[place] += count
        before, now = (
            sum(max(item[place] - self._budget, 0) ** 2 for place in places) for item in (live, after)
        )
        return after if now < before else None

    def _sum_excess(self, live: Sequence[int]) -> None:
        self._excess = list(itertools.accumulate((max(count - self._budget, 0) for count in live), initial=0))

    def _excess_in(self, first: int, last: int) -> int:
        """Return the sum of the bytes over the budget from one position to another."""
        return self._excess[last + 1] - self._excess[first] if last >= first else 0

    def _move(self, unit: Unit) -> _Move | None:
        """Return how a node runs again after the longest time without readers; None if that frees nothing."""
        if unit in self._ends or unit not in self._may:
            return None
        reads = sorted([unit.position, *reads_of(unit, self._again)])
        gaps = ((self._excess_in(end + 1, place - 1), end, place) for end, place in itertools.pairwise(reads))
        count, end, place = max(gaps, default=(0, 0, 0))
        if not count:
            return None
        move = _Move(self._seconds[unit], {unit: end}, {unit: place})
        freed = sum(block.bytes for block in unit.blocks if self._last_read(block) > end)
        move.changes.append((end + 1, place - 1, -freed))
        self._complete(move, unit, place, freed)
        return move

    def _complete(self, move: _Move, unit: Unit, place: int, freed: int) -> None:
        """Have the inputs of the second run of a node at its place, and their inputs."""
        pending = [unit]
        while pending:
            for block in pending.pop().inputs:
                source = block.unit
                end = move.ends.get(source, self._ends.get(source))
                if end is not None:
                    known = move.again.get(source, self._again.get(source, place))
                    if end < place < known:
                        move.again[source] = place
                        move.changes.append((place, known - 1, sum(item.bytes for item in source.blocks)))
                        pending.append(source)
                    continue
                last = self._last_read(block)
                if block.is_result or last >= place:
                    continue
                if source in self._may and block.bytes * _SMALL > freed:
                    move.ends[source] = max(reads_of(source, self._again))
                    move.again[source] = place
                    move.seconds += self._seconds[source]
                    pending.append(source)
                else:
                    move.changes.append((last + 1, place - 1, block.bytes))

    def _last_read(self, block: Block) -> int:
        readers = (self._program.units[read] for read in block.reads)
        again = (self._again[reader] for reader in readers if reader in self._again)
        return max((*block.reads[-1:], *again), default=block.unit.position)

    def _value(self, move: _Move | None) -> float:
        """Return how much a move lowers the excess per second, to first order."""
        if move is None:
            return 0.0
        return (
            -sum(count * self._excess_in(first, last) for first, last, count in move.changes) / move.seconds
        )


def find_obstacle(unit: Unit) -> str | None:
    """Return why a node must not run a second time; None if it may."""
    if any(block.is_result for block in unit.blocks):
        return "it is a result"
    if is_random(unit.node):
        return "it is random"
    return None if is_pure(unit.node) and not unit.node.regions else "it has effects"

"""Table of the values that are alive at the peak: kept or recomputed, and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from npu_ir import OpNode
from npu_passes.library.training.recompute.liveness import Program, Simulation, Unit
from npu_passes.library.training.recompute.selection import find_obstacle
from npu_passes.manager.statistics import FlopCounter


@dataclass(frozen=True, slots=True)
class MemoryRow:
    """The outputs of a node that are alive at the peak of the graph without recomputation.

    Attributes:
        node: The name of the node.
        op_type: Its op.
        bytes: Their size.
        is_recomputed: Whether they are recomputed; otherwise they are kept.
        why: The reason, in words.
    """

    node: str
    op_type: str
    bytes: int
    is_recomputed: bool
    why: str


@dataclass(frozen=True, slots=True)
class MemoryTable:
    """Table of what is kept and what is recomputed under a budget.

    Attributes:
        budget_bytes: The budget.
        peak_before: The most bytes that intermediate values take without recomputation.
        peak_after: The same with it.
        nodes: The number of nodes that run a second time.
        flops: The floating-point operations of their second runs, where they are known.
        seconds: The time of these, relative to that of the graph, estimated.
        rows: The nodes whose outputs are alive at the peak without recomputation, the largest first.
    """

    budget_bytes: int
    peak_before: int
    peak_after: int
    nodes: int
    flops: int
    seconds: float
    rows: tuple[MemoryRow, ...]

    def summary(self) -> list[str]:
        """Return the totals, and the values of each op and reason on one line."""
        peaks = f"peak {self.peak_before:,} before, {self.peak_after:,} after"
        more = f"{self.flops:,} FLOPs, {self.seconds:.1%} of the time by estimate"
        lines = [
            f"memory budget {self.budget_bytes:,} bytes: {peaks}",
            f"{self.nodes} nodes run twice: {more}",
        ]
        groups: dict[tuple[bool, str, str], list[int]] = {}
        for row in self.rows:
            groups.setdefault((row.is_recomputed, row.op_type, row.why), []).append(row.bytes)
        for (is_recomputed, op_type, why), sizes in groups.items():
            verdict = _verdict(is_recomputed)
            lines.append(f"  {verdict:<10}  {sum(sizes):>14,}  {len(sizes):>4} of {op_type}: {why}")
        return lines

    def __str__(self) -> str:
        width = max((len(row.node) for row in self.rows), default=5)
        rows = (
            f"{row.node:<{width}}  {row.bytes:>14,}  {_verdict(row.is_recomputed):<10}  {row.why}"
            for row in self.rows
        )
        return "\n".join([*self.summary()[:2], *rows])


def _verdict(is_recomputed: bool) -> str:
    return "recomputed" if is_recomputed else "kept"


def make_table(
    program: Program,
    chosen: Simulation,
    budget: int,
    seconds: Mapping[OpNode, float],
    count: FlopCounter,
) -> MemoryTable:
    """Return the table of what was chosen.

    Args:
        program: The program.
        chosen: The same, with the nodes that run a second time.
        budget: The budget.
        seconds: The estimated time of each node.
        count: Counts the operations of a node.
    """
    plain = Simulation(program, {})
    peak = plain.peak_position
    rows = [
        MemoryRow(
            unit.node.name,
            unit.node.op_type,
            size,
            _is_recomputed(unit, chosen, peak),
            _reason(unit, chosen, peak, seconds[unit.node] / size),
        )
        for unit in program.units[: peak + 1]
        if (size := _bytes_at(unit, peak))
    ]
    return MemoryTable(
        budget_bytes=budget,
        peak_before=plain.peak,
        peak_after=chosen.peak,
        nodes=len(chosen.ends),
        flops=sum(count(unit.node) or 0 for unit in chosen.ends),
        seconds=sum(seconds[unit.node] for unit in chosen.ends) / max(sum(seconds.values()), 1e-9),
        rows=tuple(sorted(rows, key=lambda row: -row.bytes)),
    )


def _bytes_at(unit: Unit, position: int) -> int:
    """Return the bytes of the outputs of an earlier node that are alive at a position."""
    return sum(
        block.bytes
        for block in unit.blocks
        if block.is_result or max(block.reads, default=unit.position) >= position
    )


def _is_recomputed(unit: Unit, chosen: Simulation, peak: int) -> bool:
    return chosen.ends.get(unit, peak) < peak


def _reason(unit: Unit, chosen: Simulation, peak: int, price: float) -> str:
    """Return why a node is kept or recomputed, whose recomputation takes so many seconds per byte."""
    obstacle = find_obstacle(unit)
    if obstacle is not None:
        return obstacle
    if peak in (unit.position, *(reader.position for reader in unit.readers)):
        return "it is needed at the peak"
    cost = f"{price * 2**20 * 1e3:.2g} ms per MiB"
    return cost if _is_recomputed(unit, chosen, peak) else f"it fits, and recomputing it takes {cost}"

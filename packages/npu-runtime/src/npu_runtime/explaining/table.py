"""An explanation as text: totals, refusals, and a line for each node."""

from __future__ import annotations

from collections.abc import Sequence

from npu_ir.cli.quantities import counted
from npu_passes.cli.reports import flops_text, names_text
from npu_runtime.explaining.explanation import Explanation, NodeExplanation


def explanation_text(item: Explanation) -> str:
    """Return an explanation as tables."""
    blocks = [_heading(item), _totals(item)]
    if item.unknown_flops:
        blocks.append(f"FLOPs without {counted(item.unknown_flops, 'node')} whose operations are not known")
    return "\n\n".join([*blocks, *_refusals(item), *_nodes(item)])


def _heading(item: Explanation) -> str:
    once = f", and {item.prologue_nodes:,} run once, by ATen" if item.prologue_nodes else ""
    return f"graph {item.graph}: {counted(len(item.nodes), 'node')}{once}; asked: {', '.join(item.backends)}"


def _totals(item: Explanation) -> str:
    totals = item.totals
    flops = sum(total.flops for total in totals.values())
    seconds = sum(total.seconds or 0.0 for total in totals.values())
    rows = []
    for name, total in totals.items():
        row = [name, f"{total.count:,}", _percent(total.count, len(item.nodes)), f"{total.parts:,}"]
        row += [flops_text(total.flops), _percent(total.flops, flops)]
        if item.is_timed:
            row += [seconds_text(total.seconds or 0.0), _percent(total.seconds or 0.0, seconds)]
        rows.append(row)
    columns = ["backend", "nodes", "", "parts", "FLOPs", ""]
    return table([*columns, "time", ""] if item.is_timed else columns, rows)


def _refusals(item: Explanation) -> list[str]:
    rows = [
        (backend, f"{len(nodes):,}", reason, names_text([node.name for node in nodes]))
        for (backend, reason), nodes in item.refusals().items()
    ]
    return [table(("refused by", "nodes", "because", "which"), rows)] if rows else []


def _nodes(item: Explanation) -> list[str]:
    if not item.nodes:
        return []
    rows = [_row(node, timed=item.is_timed) for node in item.nodes]
    columns = ["node", "op", "backend", "kernel", "FLOPs"]
    return [table([*columns, "time"] if item.is_timed else columns, rows)]


def _row(node: NodeExplanation, *, timed: bool) -> list[str]:
    flops = "?" if node.flops is None else flops_text(node.flops) if node.flops else ""
    row = [node.name, node.op_type, node.backend, node.kernel, flops]
    return [*row, seconds_text(node.seconds) if node.seconds else ""] if timed else row


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return rows below the names of their columns."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    lines = [
        "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in (columns, *rows)
    ]
    return "\n".join(lines)


def seconds_text(seconds: float) -> str:
    """Return a time in the unit that fits: ``12.3 us``."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else ""

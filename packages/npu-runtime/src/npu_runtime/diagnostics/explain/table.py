"""Explanations as text: totals, refusals, and a line for each node."""

from __future__ import annotations

from npu_ir.cli.console import Table
from npu_ir.cli.quantities import count_text, time_text
from npu_passes.cli.reports import flops_text, names_text
from npu_runtime.diagnostics.explain.explanation import Explanation, NodeExplanation
from npu_runtime.diagnostics.profile.tables import known_flops_text


def explanation_parts(item: Explanation) -> list[str | Table]:
    """Return an explanation as lines and tables, separated by empty lines."""
    parts: list[str | Table] = [_format_heading(item), _totals(item)]
    if item.unknown_flops:
        parts.append(f"FLOPs without {count_text(item.unknown_flops, 'node')} whose operations are not known")
    parts += [*_refusals(item), *_nodes(item)]
    return [line for part in parts for line in (part, "")][:-1]


def _format_heading(item: Explanation) -> str:
    once = f", and {item.prologue_nodes:,} run once, by ATen" if item.prologue_nodes else ""
    return (
        f"graph {item.graph}: {count_text(len(item.nodes), 'node')}{once}; asked: {', '.join(item.backends)}"
    )


def _totals(item: Explanation) -> Table:
    totals = item.totals
    flops = sum(total.flops for total in totals.values())
    seconds = sum(total.seconds or 0.0 for total in totals.values())
    rows = []
    for name, total in totals.items():
        row = [name, f"{total.count:,}", _percent(total.count, len(item.nodes)), f"{total.parts:,}"]
        row += [flops_text(total.flops), _percent(total.flops, flops)]
        if item.is_timed:
            row += [time_text(total.seconds or 0.0), _percent(total.seconds or 0.0, seconds)]
        rows.append(row)
    columns = ["backend", "nodes", "", "parts", "FLOPs", ""]
    return Table([*columns, "time", ""] if item.is_timed else columns, rows)


def _refusals(item: Explanation) -> list[Table]:
    rows = [
        (backend, f"{len(nodes):,}", reason, names_text([node.name for node in nodes]))
        for (backend, reason), nodes in item.refusals().items()
    ]
    return [Table(("refused by", "nodes", "because", "which"), rows)] if rows else []


def _nodes(item: Explanation) -> list[Table]:
    if not item.nodes:
        return []
    rows = [_row(node, timed=item.is_timed) for node in item.nodes]
    columns = ["node", "op", "backend", "kernel", "FLOPs"]
    return [Table([*columns, "time"] if item.is_timed else columns, rows)]


def _row(node: NodeExplanation, *, timed: bool) -> list[str]:
    row = [node.name, node.op_type, node.backend, node.kernel, known_flops_text(node.flops)]
    return [*row, time_text(node.seconds) if node.seconds else ""] if timed else row


def _percent(part: float, whole: float) -> str:
    return f"{part / whole:.1%}" if whole else ""

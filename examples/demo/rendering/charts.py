"""The report's charts, as inline SVG and HTML."""

from __future__ import annotations

from collections.abc import Sequence

from rendering.markup import text
from torch import Tensor

_WIDTH, _HEIGHT = 420, 190
_LEFT, _RIGHT, _TOP, _BOTTOM = 44, 12, 14, 28


def line_chart(
    title: str, values: Sequence[float], low: float, high: float, form: str, threshold: float | None = None
) -> str:
    """Return a line over epochs; ``form`` is how the axis shows its numbers, as for ``format``."""

    def x(index: int) -> float:
        return _LEFT + index * (_WIDTH - _LEFT - _RIGHT) / max(len(values) - 1, 1)

    def y(value: float) -> float:
        share = (min(max(value, low), high) - low) / (high - low)
        return _HEIGHT - _BOTTOM - share * (_HEIGHT - _TOP - _BOTTOM)

    parts = []
    for step in range(5):
        tick = low + step * (high - low) / 4
        parts.append(
            f"<line x1='{_LEFT}' x2='{_WIDTH - _RIGHT}' y1='{y(tick):.1f}' y2='{y(tick):.1f}' class='tick'/>"
        )
        parts.append(f"<text x='{_LEFT - 8}' y='{y(tick) + 4:.1f}' text-anchor='end'>{tick:{form}}</text>")
    if threshold is not None:
        parts.append(
            f"<line x1='{_LEFT}' x2='{_WIDTH - _RIGHT}' y1='{y(threshold):.1f}' y2='{y(threshold):.1f}' "
            f"class='bar'/><text x='{_WIDTH - _RIGHT}' y='{y(threshold) + 14:.1f}' text-anchor='end' "
            f"class='bar'>required: {threshold:.0%}</text>"
        )
    points = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in enumerate(values))
    parts.append(f"<polyline points='{points}' class='line'/>")
    parts += [
        (
            f"<circle cx='{x(index):.1f}' cy='{y(value):.1f}' r='3'><title>epoch {index + 1}: "
            f"{value:.4g}</title></circle>"
        )
        for index, value in enumerate(values)
    ]
    parts += [
        f"<text x='{x(index):.1f}' y='{_HEIGHT - 8}' text-anchor='middle'>{index + 1}</text>"
        for index in range(0, len(values), max(1, len(values) // 6))
    ]
    return (
        f"<figure><figcaption>{text(title)}</figcaption>"
        f"<svg class='chart' viewBox='0 0 {_WIDTH} {_HEIGHT}' role='img' aria-label='{text(title)}'>"
        f"{''.join(parts)}</svg></figure>"
    )


def bars(counts: Sequence[tuple[str, int]], limit: int = 8) -> str:
    """Return the largest counts as horizontal bars, the rest as a last line."""
    shown, rest = counts[:limit], counts[limit:]
    largest = max((count for _, count in shown), default=1)
    rows = [
        f"<tr><th scope='row'>{text(name)}</th><td><span class='bar' "
        f"style='width:{count / largest:.1%}'></span></td><td class='number'>{count:,}</td></tr>"
        for name, count in shown
    ]
    if rest:
        total = sum(count for _, count in rest)
        rows.append(
            f"<tr><th scope='row'>{len(rest)} other ops</th><td></td><td class='number'>{total:,}</td></tr>"
        )
    return f"<table class='bars'>{''.join(rows)}</table>"


def confusion(predicted: Tensor, labels: Tensor, classes: int = 10) -> str:
    """Return how often each class was taken for each, as a table: one row per true class."""
    counts = [[0] * classes for _ in range(classes)]
    for answer, label in zip(predicted.tolist(), labels.tolist(), strict=True):
        counts[label][answer] += 1
    head = "".join(f"<th scope='col'>{answer}</th>" for answer in range(classes))
    body = "".join(
        f"<tr><th scope='row'>{label}</th>"
        f"{''.join(_cell(label, answer, row) for answer in range(classes))}</tr>"
        for label, row in enumerate(counts)
    )
    return (
        f"<table class='confusion'><thead><tr><td></td>{head}</tr></thead><tbody>{body}</tbody></table>"
        "<p class='note'>Rows: what the image shows. Columns: what the graph says.</p>"
    )


def _cell(label: int, answer: int, row: Sequence[int]) -> str:
    count = row[answer]
    if not count:
        return "<td class='none'>·</td>"
    if label == answer:
        return f"<td class='right' style='--share:{count / max(sum(row), 1):.2f}'>{count}</td>"
    return f"<td class='wrong'>{count}</td>"

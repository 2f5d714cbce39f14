"""Curves in one drawing, as SVG."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from xml.sax.saxutils import escape

WIDTH, HEIGHT = 640, 360
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 40, 44
# The first is wide and light, so that one that runs along it is seen on it.
STROKES = (("#e0a458", 7), ("#1b4965", 1.5))


def curves(values: Mapping[str, Sequence[float]], across: str, upward: str) -> str:
    """Return an SVG of curves by name, from zero up, over indices from 1, with the names of both axes."""
    return "\n".join(_drawing(values, across, upward)) + "\n"


def _drawing(values: Mapping[str, Sequence[float]], across: str, upward: str) -> Iterator[str]:
    count, highest = max(map(len, values.values())), max(map(max, values.values()))

    def x(index: float) -> float:
        return LEFT + (index - 1) * (WIDTH - LEFT - RIGHT) / max(count - 1, 1)

    def y(value: float) -> float:
        return HEIGHT - BOTTOM - value / highest * (HEIGHT - TOP - BOTTOM)

    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{HEIGHT}" '
        'font-family="sans-serif" font-size="12">'
    )
    yield f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>'
    for part in range(5):
        value, index = highest * part / 4, 1 + (count - 1) * part / 4
        yield (
            f'<line x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{y(value):.1f}" '
            f'y2="{y(value):.1f}" stroke="#dddddd"/>'
        )
        yield f'<text x="{LEFT - 8}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2f}</text>'
        yield f'<text x="{x(index):.1f}" y="{HEIGHT - BOTTOM + 18}" text-anchor="middle">{index:.0f}</text>'
    yield (
        f'<text x="{(LEFT + WIDTH - RIGHT) / 2}" y="{HEIGHT - 8}" '
        f'text-anchor="middle">{escape(across)}</text>'
    )
    yield (
        f'<text x="14" y="{HEIGHT / 2}" text-anchor="middle" transform="rotate(-90 14 '
        f'{HEIGHT / 2})">{escape(upward)}</text>'
    )
    for place, ((name, curve), (colour, width)) in enumerate(zip(values.items(), STROKES, strict=True)):
        points = " ".join(f"{x(index):.1f},{y(value):.1f}" for index, value in enumerate(curve, 1))
        yield (
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="{width}" '
            f'stroke-linejoin="round"><title>{escape(name)}</title></polyline>'
        )
        left = LEFT + 12 + 200 * place
        yield f'<line x1="{left}" x2="{left + 24}" y1="20" y2="20" stroke="{colour}" stroke-width="{width}"/>'
        yield f'<text x="{left + 32}" y="24">{escape(name)}</text>'
    yield "</svg>"

"""Drawings as SVG, written without an external program."""

from __future__ import annotations

import html
from collections.abc import Iterator, Mapping, Sequence

from npu_ir.viz.diagram import (
    FONTS,
    FRAME,
    FRAME_FILL,
    MUTED,
    NODE_KINDS,
    STYLES,
    TEXT,
    Box,
    BoxKind,
    Diagram,
    Frame,
    Style,
)
from npu_ir.viz.layers import Spot
from npu_ir.viz.layout import Layout, Row, compute_layout, frame_rows
from npu_ir.viz.svg_edges import draw_edges
from npu_ir.viz.svg_text import DETAIL_SIZE, TITLE_SIZE, halo, text_element, text_width

_MARGIN = 24.0
_HEADER = 92.0
LINE_HEIGHT = 17.0
_HEAD_SIZE = 18.0


def _box_size(box: Box) -> tuple[float, float]:
    widths = [text_width(line, DETAIL_SIZE) for line in box.details]
    width = max(text_width(box.title, TITLE_SIZE) * 1.06, *widths, 50.0) + 30
    return width, LINE_HEIGHT * (1 + len(box.details)) + 15


def shape_element(style: Style, x: float, y: float, width: float, height: float) -> str:
    """Return the SVG element of a box whose top left corner is at x, y."""
    looks = f'fill="{style.fill}" stroke="{style.stroke}" stroke-width="1.3"'
    if style.dashed:
        looks += ' stroke-dasharray="5 4"'
    right, bottom = x + width, y + height
    if style.svg == "hexagon":
        tip = min(10.0, width / 4)
        return (
            f'<path d="M{x:.1f} {y + height / 2:.1f}L{x + tip:.1f} {y:.1f}H{right - tip:.1f}'
            f'L{right:.1f} {y + height / 2:.1f}L{right - tip:.1f} {bottom:.1f}H{x + tip:.1f}Z" {looks}/>'
        )
    if style.svg == "note":
        fold = min(10.0, width / 3)
        return (
            f'<path d="M{x:.1f} {y:.1f}H{right - fold:.1f}L{right:.1f} {y + fold:.1f}V{bottom:.1f}H{x:.1f}Z'
            f'M{right - fold:.1f} {y:.1f}V{y + fold:.1f}H{right:.1f}" {looks}/>'
        )
    if style.svg == "double":
        inset = min(5.0, width / 6)
        return (
            f'<path d="M{x:.1f} {y:.1f}H{right:.1f}V{bottom:.1f}H{x:.1f}Z'
            f'M{x + inset:.1f} {y:.1f}V{bottom:.1f}M{right - inset:.1f} {y:.1f}V{bottom:.1f}" {looks}/>'
        )
    radius = height / 2 if style.svg == "pill" else min(6.0, height / 3)
    return (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{width:.1f}" height="{height:.1f}" rx="{radius:.1f}" {looks}/>'
    )


def format_svg(diagram: Diagram) -> str:
    boxes = {box.id: box for box in diagram.boxes}
    layout = compute_layout(_box_spots(diagram), [(edge.source, edge.target) for edge in diagram.edges])
    frames = frame_rows(layout.layers)
    left, right = _horizontal_extent(layout, frames)
    legend = sum(map(_chip_width, diagram.kinds))
    heads = text_width(diagram.title, _HEAD_SIZE), text_width(diagram.summary, DETAIL_SIZE)
    width = max(right - left, *heads, legend) + 2 * _MARGIN
    height = layout.height + _HEADER + 2 * _MARGIN
    shift = (width - (right - left)) / 2 - left
    lines_of_edges, titles, labels = draw_edges(diagram, layout, frames)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:.0f}" height="{height:.0f}" '
        f'viewBox="0 0 {width:.0f} {height:.0f}" role="img" aria-label="{html.escape(diagram.title)}" '
        f'font-family="{FONTS}" fill="{TEXT}">'
    )
    lines = [
        head,
        '<rect width="100%" height="100%" fill="#ffffff"/>',
        *_header(diagram),
        f'<g transform="translate({shift:.1f} {_HEADER + _MARGIN:.1f})">',
        *(_frame(frames[frame.id]) for frame in diagram.frames),
        *lines_of_edges,
        *(_frame_title(frame.title, *titles[frame.id]) for frame in diagram.frames),
        *labels,
        *(line for id, box in boxes.items() for line in _box(box, layout.spots[id])),
        "</g>",
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _box_spots(diagram: Diagram) -> dict[str, Spot]:
    around = dict(_frames_around(diagram.items, ()))
    steps = {box.id: step for step, box in enumerate(box for box in diagram.boxes if box.kind in NODE_KINDS)}
    return {box.id: Spot(*_box_size(box), around[box.id], steps.get(box.id)) for box in diagram.boxes}


def _frames_around(
    items: tuple[Box | Frame, ...], around: tuple[str, ...]
) -> Iterator[tuple[str, tuple[str, ...]]]:
    for item in items:
        if isinstance(item, Box):
            yield item.id, around
        else:
            yield from _frames_around(item.items, (*around, item.id))


def _horizontal_extent(layout: Layout, frames: Mapping[str, Sequence[Row]]) -> tuple[float, float]:
    rows = [row for rows in frames.values() for row in rows]
    spots = [spot for layer in layout.layers for spot in layer]
    left = min((*(row.left for row in rows), *(spot.x - spot.width / 2 for spot in spots)), default=0.0)
    right = max((*(row.right for row in rows), *(spot.x + spot.width / 2 for spot in spots)), default=0.0)
    return left, right


def _chip_width(kind: BoxKind) -> float:
    return text_width(kind.value, DETAIL_SIZE) + 34


def _header(diagram: Diagram) -> Iterator[str]:
    x, y = _MARGIN, _MARGIN + _HEAD_SIZE
    yield text_element(diagram.title, x, y, _HEAD_SIZE, 'font-weight="bold"')
    yield text_element(diagram.summary, x, y + 22, DETAIL_SIZE, f'fill="{MUTED}"')
    for kind in diagram.kinds:
        yield shape_element(STYLES[kind], x, y + 38, 16, 14)
        yield text_element(kind.value, x + 22, y + 49, DETAIL_SIZE)
        x += _chip_width(kind)


def _frame(rows: Sequence[Row]) -> str:
    down = [point for row in rows for point in ((row.right, row.top), (row.right, row.bottom))]
    up = [point for row in reversed(rows) for point in ((row.left, row.bottom), (row.left, row.top))]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in down + up)
    looks = f'fill="{FRAME_FILL}" stroke="{FRAME}" stroke-width="1.2" stroke-linejoin="round"'
    return f'<polygon points="{points}" {looks}/>'


def _frame_title(title: str, x: float, y: float) -> str:
    return text_element(title, x, y, DETAIL_SIZE, f'fill="{MUTED}" font-weight="bold" {halo(FRAME_FILL)}')


def _box(box: Box, spot: Spot) -> Iterator[str]:
    yield f"<g><title>{html.escape(box.tooltip or box.title)}</title>"
    yield shape_element(STYLES[box.kind], spot.x - spot.width / 2, spot.y, spot.width, spot.height)
    y = spot.y + spot.height / 2 - LINE_HEIGHT * len(box.details) / 2 + 5
    yield text_element(box.title, spot.x, y, TITLE_SIZE, 'font-weight="bold" text-anchor="middle"')
    looks = f'text-anchor="middle" fill="{MUTED}"'
    for number, line in enumerate(box.details, 1):
        yield text_element(line, spot.x, y + number * LINE_HEIGHT, DETAIL_SIZE, looks)
    yield "</g>"

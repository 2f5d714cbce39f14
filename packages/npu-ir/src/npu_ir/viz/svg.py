"""Drawings as SVG, written without an external program."""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterator, Mapping, Sequence

from npu_ir.viz.diagram import (
    EDGE_STYLES,
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
    Edge,
    EdgeKind,
    Frame,
    Style,
)
from npu_ir.viz.layers import Spot
from npu_ir.viz.layout import Layout, Row, compute_layout, frame_rows

TITLE_SIZE, DETAIL_SIZE = 14.0, 12.0
LINE_HEIGHT = 17.0
_NARROW = frozenset("iljtfrI.,:;|!'()[]/ ")
_WIDE = frozenset("mwMW@%…")
_MARGIN = 24.0
_HEADER = 92.0
_HEAD_SIZE = 18.0
_ARROW = 7.0
_PORT_GAP = 16.0


def text_width(text: str, size: float) -> float:
    """Return a generous estimate of the width of ``text`` in a sans-serif font of ``size`` pixels."""
    return size * sum(map(_char_width, text))


def _char_width(char: str) -> float:
    if unicodedata.east_asian_width(char) in "WF":
        return 1.05
    if char in _NARROW:
        return 0.36
    return 0.86 if char in _WIDE else 0.72 if char.isupper() else 0.61


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
        *_edges(diagram.edges, layout),
        *(_frame_title(frame.title, frames[frame.id][0]) for frame in diagram.frames),
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
    yield _text(diagram.title, x, y, _HEAD_SIZE, 'font-weight="bold"')
    yield _text(diagram.summary, x, y + 22, DETAIL_SIZE, f'fill="{MUTED}"')
    for kind in diagram.kinds:
        yield shape_element(STYLES[kind], x, y + 38, 16, 14)
        yield _text(kind.value, x + 22, y + 49, DETAIL_SIZE)
        x += _chip_width(kind)


def _frame(rows: Sequence[Row]) -> str:
    down = [point for row in rows for point in ((row.right, row.top), (row.right, row.bottom))]
    up = [point for row in reversed(rows) for point in ((row.left, row.bottom), (row.left, row.top))]
    points = " ".join(f"{x:.1f},{y:.1f}" for x, y in down + up)
    looks = f'fill="{FRAME_FILL}" stroke="{FRAME}" stroke-width="1.2" stroke-linejoin="round"'
    return f'<polygon points="{points}" {looks}/>'


def _frame_title(title: str, row: Row) -> str:
    looks = f'fill="{MUTED}" font-weight="bold" {_halo(FRAME_FILL)}'
    return _text(title, row.left + 8, row.top + 16, DETAIL_SIZE, looks)


def _edges(edges: Sequence[Edge], layout: Layout) -> Iterator[str]:
    ports = _assign_ports(layout)
    drawn: set[Spot] = set()
    labels: list[str] = []
    labelled: set[tuple[str, str, str]] = set()
    for edge, route in zip(edges, layout.routes, strict=True):
        port = ports[route[-2], route[-1]]
        upward = route[0] is not layout.spots[edge.source]
        colour = EDGE_STYLES[edge.kind].colour
        yield _curve(_trim_drawn(route, drawn) if edge.kind is EdgeKind.PLAIN else route, port, edge.kind)
        x, y = (route[0].x, route[0].y + route[0].height) if upward else (port, route[-1].y)
        back = y + _ARROW if upward else y - _ARROW
        yield f'<path d="M{x:.1f} {y:.1f}L{x - 4:.1f} {back:.1f}H{x + 4:.1f}Z" fill="{colour}"/>'
        # One label per box is enough for edges with the same type.
        ends = {("from", edge.source, edge.label), ("to", edge.target, edge.label)}
        if edge.label and labelled.isdisjoint(ends):
            labels.append(_label(edge.label, route, port))
            labelled |= ends
    yield from labels


def _trim_drawn(route: Sequence[Spot], drawn: set[Spot]) -> Sequence[Spot]:
    """Return a route from the last bend that is already drawn; edges of one box share their first bends."""
    shared = sum(1 for spot in route if spot in drawn)
    drawn.update(spot for spot in route if spot.is_bend)
    return route[shared:]


def _assign_ports(layout: Layout) -> dict[tuple[Spot, Spot], float]:
    """Return the x at which each edge from above enters a spot: side by side, ordered by origin."""
    ports = {}
    for spot in (spot for layer in layout.layers for spot in layer):
        arriving = sorted(spot.above, key=lambda upper: upper.x)
        gap = min(_PORT_GAP, 0.7 * spot.width / max(len(arriving), 1))
        for index, upper in enumerate(arriving):
            ports[upper, spot] = spot.x + gap * (index - (len(arriving) - 1) / 2)
    return ports


def _curve(route: Sequence[Spot], port: float, kind: EdgeKind) -> str:
    x, y = route[0].x, route[0].row_bottom
    path = [f"M{x:.1f} {route[0].y + route[0].height:.1f}V{y:.1f}"]
    for spot in route[1:]:
        end = port if spot is route[-1] else spot.x
        middle = (y + spot.row_top) / 2
        path.append(f"C{x:.1f} {middle:.1f} {end:.1f} {middle:.1f} {end:.1f} {spot.row_top:.1f}")
        x, y = end, spot.row_bottom if spot is not route[-1] else spot.y
        path.append(f"V{y:.1f}")
    style = EDGE_STYLES[kind]
    dashes = ' stroke-dasharray="5 4"' if style.dashed else ""
    return f'<path d="{"".join(path)}" fill="none" stroke="{style.colour}" stroke-width="1.4"{dashes}/>'


def _label(label: str, route: Sequence[Spot], port: float) -> str:
    """Return the label in the middle of a short edge, and at the first bend of a long one."""
    upper, lower = route[0], route[1]
    if len(route) == 2:
        x, y = (upper.x + port) / 2 + 6, (upper.row_bottom + lower.row_top) / 2 + 4
    else:
        x, y = lower.x + 4, lower.row_top - 1
    return _text(label, x, y, DETAIL_SIZE, f'fill="{MUTED}" {_halo("#ffffff")}')


def _halo(colour: str) -> str:
    return f'stroke="{colour}" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'


def _box(box: Box, spot: Spot) -> Iterator[str]:
    yield f"<g><title>{html.escape(box.tooltip or box.title)}</title>"
    yield shape_element(STYLES[box.kind], spot.x - spot.width / 2, spot.y, spot.width, spot.height)
    y = spot.y + spot.height / 2 - LINE_HEIGHT * len(box.details) / 2 + 5
    yield _text(box.title, spot.x, y, TITLE_SIZE, 'font-weight="bold" text-anchor="middle"')
    looks = f'text-anchor="middle" fill="{MUTED}"'
    for number, line in enumerate(box.details, 1):
        yield _text(line, spot.x, y + number * LINE_HEIGHT, DETAIL_SIZE, looks)
    yield "</g>"


def _text(text: str, x: float, y: float, size: float, attributes: str = "") -> str:
    start = f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" {attributes}>'
    return f"{start}{html.escape(text, quote=False)}</text>"

"""Edges of SVG drawings: curves, tips, and labels where they can be read."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

from npu_ir.viz.diagram import EDGE_STYLES, MUTED, Diagram, EdgeKind
from npu_ir.viz.label_places import OccupiedPlaces, places_beside
from npu_ir.viz.layers import Spot
from npu_ir.viz.layout import Layout, Row
from npu_ir.viz.svg_text import DETAIL_SIZE, halo, text_element

_ARROW = 7.0
_PORT_GAP = 16.0
_SAMPLE_DISTANCE = 4.0  # of the points of lines that labels keep away from
_TITLE_STEP = 24.0
# Of the gaps between layers that an edge crosses, the first ones are tried for its label.
_MAX_GAPS = 4
_LABEL = f'fill="{MUTED}" {halo("#ffffff")}'


def draw_edges(
    diagram: Diagram, layout: Layout, frames: Mapping[str, Sequence[Row]]
) -> tuple[list[str], dict[str, tuple[float, float]], list[str]]:
    """Return the elements of the lines, the places of the frames' titles, and the elements of the labels."""
    ports = _assign_ports(layout)
    occupied = OccupiedPlaces()
    for spot in layout.spots.values():
        occupied.add_box(spot.x - spot.width / 2, spot.y, spot.width, spot.height)
    occupied.add_points(_line_points(layout, ports))
    titles = {}
    for frame in diagram.frames:
        place = occupied.take_first_free(frame.title, _title_places(frames[frame.id][0]), is_forced=True)
        assert place is not None, "the first place is taken if none is free"
        titles[frame.id] = place
    lines = list(_lines(diagram, layout, ports))
    return lines, titles, _labels(diagram, layout, ports, occupied)


def _lines(diagram: Diagram, layout: Layout, ports: Mapping[tuple[Spot, Spot], float]) -> Iterator[str]:
    drawn: set[Spot] = set()
    for edge, route in zip(diagram.edges, layout.routes, strict=True):
        port = ports[route[-2], route[-1]]
        upward = route[0] is not layout.spots[edge.source]
        yield _path(_trim_drawn(route, drawn) if edge.kind is EdgeKind.PLAIN else route, ports, edge.kind)
        x, y = (route[0].x, route[0].y + route[0].height) if upward else (port, route[-1].y)
        back = y + _ARROW if upward else y - _ARROW
        colour = EDGE_STYLES[edge.kind].colour
        yield f'<path d="M{x:.1f} {y:.1f}L{x - 4:.1f} {back:.1f}H{x + 4:.1f}Z" fill="{colour}"/>'


def _labels(
    diagram: Diagram, layout: Layout, ports: Mapping[tuple[Spot, Spot], float], occupied: OccupiedPlaces
) -> list[str]:
    """Return the labels: where there is room for them, and then the others."""
    labelled: set[tuple[str, str, str]] = set()
    labels = []
    for is_forced in (False, True):
        for edge, route in zip(diagram.edges, layout.routes, strict=True):
            # One label per box is enough for edges with the same type.
            ends = {("from", edge.source, edge.label), ("to", edge.target, edge.label)}
            if not edge.label or not labelled.isdisjoint(ends):
                continue
            pieces = _curves(route[: _MAX_GAPS + 1], ports)
            points = [point for piece in pieces for point in _label_points(piece)]
            place = occupied.take_first_free(edge.label, places_beside(edge.label, points), is_forced)
            if place is not None:
                labelled |= ends
                labels.append(text_element(edge.label, *place, DETAIL_SIZE, _LABEL))
    return labels


def _line_points(layout: Layout, ports: Mapping[tuple[Spot, Spot], float]) -> Iterator[tuple[float, float]]:
    drawn: set[tuple[Spot, Spot]] = set()
    for route in layout.routes:
        for upper, lower in itertools.pairwise(route):
            if (upper, lower) in drawn:  # edges of one box share their bends
                continue
            drawn.add((upper, lower))
            ((x, y, end, bottom),) = _curves((upper, lower), ports)
            length = abs(end - x) + bottom - y
            yield from _points((x, y, end, bottom), max(1, round(1.5 * length / _SAMPLE_DISTANCE)))
            steps = range(int((lower.row_bottom - lower.row_top) / _SAMPLE_DISTANCE) * lower.is_bend)
            yield from ((lower.x, lower.row_top + step * _SAMPLE_DISTANCE) for step in steps)


def _label_points(piece: _Curve) -> list[tuple[float, float]]:
    start, *between, end = _points(piece, 8)
    return [*sorted(between, key=lambda point: abs(point[1] - between[3][1])), start, end]


def _title_places(row: Row) -> Iterator[tuple[float, float]]:
    """Yield places for the title of a frame, from the left to the middle of its top."""
    for step in range(max(1, int((row.right - row.left) / 2 / _TITLE_STEP))):
        yield row.left + 8 + step * _TITLE_STEP, row.top + 16


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


# A piece of an edge through the gap between two layers: from x, y to x, y.
_Curve = tuple[float, float, float, float]


def _curves(route: Sequence[Spot], ports: Mapping[tuple[Spot, Spot], float]) -> list[_Curve]:
    """Return the pieces of a route, which bends in the spots between its boxes."""
    return [
        (
            upper.x,
            upper.row_bottom,
            lower.x if lower.is_bend else ports[upper, lower],
            lower.row_top,
        )
        for upper, lower in itertools.pairwise(route)
    ]


def _points(piece: _Curve, count: int) -> list[tuple[float, float]]:
    """Return points of a piece, a Bezier curve that is vertical at both ends."""
    x, y, end, bottom = piece
    middle = (y + bottom) / 2
    points = []
    for at in range(count + 1):
        t = at / count
        u = 1 - t
        across = x * (u**3 + 3 * u * u * t) + end * (3 * u * t * t + t**3)
        points.append((across, y * u**3 + 3 * middle * u * t + bottom * t**3))
    return points


def _path(route: Sequence[Spot], ports: Mapping[tuple[Spot, Spot], float], kind: EdgeKind) -> str:
    path = [f"M{route[0].x:.1f} {route[0].y + route[0].height:.1f}V{route[0].row_bottom:.1f}"]
    for spot, (x, y, end, bottom) in zip(route[1:], _curves(route, ports), strict=True):
        middle = (y + bottom) / 2
        path.append(f"C{x:.1f} {middle:.1f} {end:.1f} {middle:.1f} {end:.1f} {bottom:.1f}")
        path.append(f"V{spot.row_bottom if spot is not route[-1] else spot.y:.1f}")
    style = EDGE_STYLES[kind]
    dashes = ' stroke-dasharray="5 4"' if style.dashed else ""
    return f'<path d="{"".join(path)}" fill="none" stroke="{style.colour}" stroke-width="1.4"{dashes}/>'

"""Layered layout of the boxes and edges of a diagram, from top to bottom.

Every box is one layer below the lowest box it reads from. An edge has one bend in each layer that it
crosses; the edges of one box share their bends.
Source: Sugiyama, Tagawa, Toda (1981), Methods for visual understanding of hierarchical systems.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from npu_ir.viz.columns import FRAME_PAD, assign_x
from npu_ir.viz.layers import Spot, common_length, order_layers

_ROW_GAP = 40.0
# Space above a frame's first layer, for its title, and below its last one.
FRAME_TOP, FRAME_BOTTOM = 24.0, 10.0


@dataclass(frozen=True, slots=True)
class Layout:
    """A finished layout."""

    spots: Mapping[str, Spot]  # by box id
    layers: Sequence[Sequence[Spot]]  # boxes and bends of each layer, from left to right
    routes: Sequence[tuple[Spot, ...]]  # the spots of each edge, downwards from box to box
    height: float


def compute_layout(spots: Mapping[str, Spot], edges: Sequence[tuple[str, str]]) -> Layout:
    """Return the layout of boxes and edges, with the leftmost box at x = 0.

    The spots, by box id, have size, frames and position, and get their places here. Edges to an earlier box
    are reversed in the layout, which makes it acyclic.
    """
    index = {id: number for number, id in enumerate(spots)}
    downward = [(a, b) if index[a] < index[b] else (b, a) for a, b in edges]
    _assign_layers(spots, downward)
    count = 1 + max((spot.layer for spot in spots.values()), default=0)
    layers: list[list[Spot]] = [[] for _ in range(count)]
    for spot in spots.values():
        layers[spot.layer].append(spot)
    routes = _route_edges(spots, downward, layers)
    _reserve_frame_layers(layers)
    order_layers(layers)
    assign_x(layers)
    height = _assign_y(layers)
    return Layout(spots, layers, routes, height)


def _assign_layers(spots: Mapping[str, Spot], edges: Iterable[tuple[str, str]]) -> None:
    """Assign each box the highest layer below everything it reads (longest-path layering).

    A box that reads nothing is right above its highest reader if it comes from outside the graph, and in
    the layer of the node before it otherwise.
    """
    readers: defaultdict[str, list[Spot]] = defaultdict(list)
    reading: set[str] = set()
    for source, target in edges:
        readers[source].append(spots[target])
        reading.add(target)
    previous = 0
    for id, spot in spots.items():
        if spot.position is not None:
            spot.layer = spot.layer if id in reading else previous
            previous = spot.layer
        for reader in readers[id]:
            reader.layer = max(reader.layer, spot.layer + 1)
    for id, spot in spots.items():
        if spot.position is None and id not in reading and readers[id]:
            spot.layer = min(reader.layer for reader in readers[id]) - 1


def _route_edges(
    spots: Mapping[str, Spot], edges: Iterable[tuple[str, str]], layers: list[list[Spot]]
) -> list[tuple[Spot, ...]]:
    """Add the bends of edges to their layers, and return the spots of each edge."""
    trunks: dict[str, list[Spot]] = {}
    routes = []
    for source, target in edges:
        # One trunk of bends per source, as long as its longest edge: fewer bends to order and to draw.
        start, end = spots[source], spots[target]
        trunk = trunks.setdefault(source, [start])
        while trunk[-1].layer < end.layer - 1:
            bend = Spot(frames=start.frames, layer=trunk[-1].layer + 1)
            layers[bend.layer].append(bend)
            _connect(trunk[-1], bend)
            trunk.append(bend)
        passed = trunk[: end.layer - start.layer]
        for bend in passed[1:]:
            bend.frames = bend.frames[: common_length(bend.frames, end.frames)]
        _connect(passed[-1], end)
        routes.append((*passed, end))
    return routes


def _connect(upper: Spot, lower: Spot) -> None:
    upper.below.append(lower)
    lower.above.append(upper)


def frame_spans(layers: Sequence[Sequence[Spot]]) -> dict[str, tuple[int, int]]:
    """Return the first and the last layer of each frame."""
    spans: dict[str, tuple[int, int]] = {}
    for number, layer in enumerate(layers):
        for frame in dict.fromkeys(frame for spot in layer for frame in spot.frames):
            spans[frame] = spans.get(frame, (number, number))[0], number
    return spans


def _reserve_frame_layers(layers: Sequence[list[Spot]]) -> None:
    """Add a spot to each layer that a frame spans without a member, to keep other boxes out of the frame."""
    around = {
        frame: spot.frames[: depth + 1]
        for layer in layers
        for spot in layer
        for depth, frame in enumerate(spot.frames)
    }
    for frame, (first, last) in frame_spans(layers).items():
        for number in range(first + 1, last):
            if not any(frame in spot.frames for spot in layers[number]):
                layers[number].append(Spot(frames=around[frame], layer=number))


def _assign_y(layers: Sequence[Sequence[Spot]]) -> float:
    """Set the y of every spot, centred in its layer, and return the total height."""
    spans = frame_spans(layers)
    y = 0.0
    for number, layer in enumerate(layers):
        y += FRAME_TOP * _max_nesting(
            layer, {frame for frame, (first, _) in spans.items() if first == number}
        )
        row_height = max((spot.height for spot in layer), default=0.0)
        for spot in layer:
            spot.row_top, spot.row_bottom = y, y + row_height
            spot.y = y + (row_height - spot.height) / 2
        ending = _max_nesting(layer, {frame for frame, (_, last) in spans.items() if last == number})
        y += row_height + FRAME_BOTTOM * ending + _ROW_GAP
    return y - _ROW_GAP


def _max_nesting(layer: Sequence[Spot], frames: Collection[str]) -> int:
    return max((sum(frame in frames for frame in spot.frames) for spot in layer), default=0)


@dataclass(frozen=True, slots=True)
class Row:
    """A rectangle: one layer of a frame, or the whole frame."""

    left: float
    right: float
    top: float
    bottom: float


def frame_rows(layers: Sequence[Sequence[Spot]]) -> dict[str, list[Row]]:
    """Return the outline of each frame: one rectangle, or one per layer if it would enclose other boxes."""
    members: defaultdict[str, dict[int, list[Spot]]] = defaultdict(dict)
    for number, layer in enumerate(layers):
        for spot in layer:
            for frame in spot.frames:
                members[frame].setdefault(number, []).append(spot)
    spans = frame_spans(layers)
    return {frame: _rows(frame, rows, spans, layers) for frame, rows in members.items()}


def _rows(
    frame: str,
    members: Mapping[int, Sequence[Spot]],
    spans: Mapping[str, tuple[int, int]],
    layers: Sequence[Sequence[Spot]],
) -> list[Row]:
    first, last = spans[frame]
    # Inner frames that begin in the same layer have their titles below this one's; likewise at the bottom.
    top = members[first][0].row_top - FRAME_TOP * max(
        sum(spans[inner][0] == first for inner in _inner_frames(frame, spot)) for spot in members[first]
    )
    bottom = members[last][0].row_bottom + FRAME_BOTTOM * max(
        sum(spans[inner][1] == last for inner in _inner_frames(frame, spot)) for spot in members[last]
    )
    extents = {number: _extent(spots, frame) for number, spots in members.items()}
    left, right = min(a for a, _ in extents.values()), max(b for _, b in extents.values())
    strangers = [
        spot
        for layer in layers[first : last + 1]
        for spot in layer
        if frame not in spot.frames and not spot.is_bend
    ]
    pads = {spot: spot.width / 2 + FRAME_PAD for spot in strangers}
    if not any(spot.x - pad < right and spot.x + pad > left for spot, pad in pads.items()):
        return [Row(left, right, top, bottom)]
    # A rectilinear polygon instead: per layer as wide as its members, which are adjacent within a layer.
    rows = []
    numbers = sorted(extents)
    for number, following in zip(numbers, [*numbers[1:], None], strict=True):
        row_bottom = bottom
        if following is not None:
            row_bottom = (members[number][0].row_bottom + members[following][0].row_top) / 2
        rows.append(Row(*extents[number], top, row_bottom))
        top = row_bottom
    return rows


def _inner_frames(frame: str, spot: Spot) -> tuple[str, ...]:
    """Return ``frame`` and the frames around ``spot`` inside it."""
    return spot.frames[spot.frames.index(frame) :]


def _extent(spots: Sequence[Spot], frame: str) -> tuple[float, float]:
    pads = {spot: spot.width / 2 + FRAME_PAD * len(_inner_frames(frame, spot)) for spot in spots}
    return min(spot.x - pad for spot, pad in pads.items()), max(spot.x + pad for spot, pad in pads.items())

"""Outlines of frames around the spots inside them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from npu_ir.viz.columns import FRAME_PAD
from npu_ir.viz.layout import FRAME_BOTTOM, FRAME_TOP, frame_spans
from npu_ir.viz.spots import Spot


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
    if not any(_overlaps(spot, left, right) for spot in strangers):
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
    pads = [spot.width / 2 + FRAME_PAD * len(_inner_frames(frame, spot)) for spot in spots]
    return (
        min(spot.x - pad for spot, pad in zip(spots, pads, strict=True)),
        max(spot.x + pad for spot, pad in zip(spots, pads, strict=True)),
    )


def _overlaps(spot: Spot, left: float, right: float) -> bool:
    pad = spot.width / 2 + FRAME_PAD
    return spot.x - pad < right and spot.x + pad > left

"""Horizontal coordinates of the spots of each layer.

Spots linked from layer to layer share a column: the boxes on a longest path, and the bends of an edge.
Crossing links are left out, so any two columns have the same order in every layer they share; all columns
are first packed to the left, and then moved towards their neighbours in the graph.
Source: Brandes, Koepf (2001), Fast and simple horizontal coordinate assignment.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from npu_ir.viz.layers import Spot

FRAME_PAD = 12.0
_GAP = 26.0
_SWEEPS = 12
# Weight of a neighbour without any other edge; the weight of the others is 1.
_HANGING = 0.1


@dataclass(slots=True, eq=False)
class _Column:
    """Spots with the same x, one per layer, and the minimum distances to the columns beside it."""

    spots: list[Spot]
    x: float = 0.0
    left: dict[_Column, float] = field(default_factory=dict)
    right: dict[_Column, float] = field(default_factory=dict)


def assign_x(layers: Sequence[Sequence[Spot]]) -> None:
    """Set the x of every spot; the left side of the drawing is at 0."""
    columns = _build_columns(layers)
    order = _sort_from_left(columns)
    for column in order:
        column.x = max((other.x + distance for other, distance in column.left.items()), default=0.0)
    place = {spot: column for column in order for spot in column.spots}
    # Gauss-Seidel sweeps: each column moves to the mean of its neighbours, clamped so that the minimum
    # distances, which hold since the packing, keep holding.
    for sweep in range(_SWEEPS):
        for column in order if sweep % 2 else reversed(order):
            low = max((other.x + distance for other, distance in column.left.items()), default=-math.inf)
            high = min((other.x - distance for other, distance in column.right.items()), default=math.inf)
            column.x = min(max(_desired_x(column, place), low), high)
    left = min((column.x - spot.width / 2 for column in order for spot in column.spots), default=0.0)
    for spot, column in place.items():
        spot.x = column.x - left


def _build_columns(layers: Sequence[Sequence[Spot]]) -> list[_Column]:
    links = _choose_links(layers)
    column_of: dict[Spot, _Column] = {}
    columns = []
    for spot in (spot for layer in layers for spot in layer):
        if spot not in column_of:
            columns.append(_Column([]))
            column_of[spot] = columns[-1]
        column_of[spot].spots.append(spot)
        if spot in links:
            column_of[links[spot]] = column_of[spot]
    for layer in layers:
        for left, right in itertools.pairwise(layer):
            one, other, distance = column_of[left], column_of[right], _min_distance(left, right)
            one.right[other] = other.left[one] = max(distance, one.right.get(other, 0.0))
    return columns


def _choose_links(layers: Sequence[Sequence[Spot]]) -> dict[Spot, Spot]:
    """Return the spot of the next layer in the same column, for each that has one; boxes take precedence."""
    boxes_below = _boxes_below(layers)
    links: dict[Spot, Spot] = {}
    for upper, lower in itertools.pairwise(layers):
        rank = {spot: index for index, spot in enumerate(lower)}
        chosen: list[tuple[int, int]] = []
        bends = [(index, spot) for index, spot in enumerate(upper) if spot.is_bend]
        bend_links = [(index, other) for index, spot in bends for other in spot.below if other.is_bend]
        for index, spot in (*_box_links(upper, boxes_below), *bend_links):
            # The chosen pairs increase in both ranks: one that fits between its neighbours crosses no other.
            pair = index, rank[spot]
            at = bisect_left(chosen, pair)
            if (at == 0 or chosen[at - 1][1] < pair[1]) and (at == len(chosen) or pair[1] < chosen[at][1]):
                chosen.insert(at, pair)
                links[upper[index]] = spot
    return links


def _box_links(layer: Sequence[Spot], boxes_below: Mapping[Spot, int]) -> Iterator[tuple[int, Spot]]:
    """Yield the index of each box and its only successor on a longest path, if that has no other reader."""
    for index, spot in enumerate(layer):
        below = _boxes(spot.below)
        longest = max((boxes_below[other] for other in below), default=0)
        best = [other for other in below if boxes_below[other] == longest]
        if not spot.is_bend and len(best) == 1 and _boxes(best[0].above) == [spot]:
            yield index, best[0]


def _boxes_below(layers: Sequence[Sequence[Spot]]) -> dict[Spot, int]:
    """Return the number of boxes on the longest downward path from each spot, itself included."""
    count: dict[Spot, int] = {}
    for layer in reversed(layers):
        for spot in layer:
            count[spot] = max((count[other] for other in spot.below), default=0) + (not spot.is_bend)
    return count


def _boxes(spots: Sequence[Spot]) -> list[Spot]:
    return [spot for spot in spots if not spot.is_bend and not spot.has_single_edge]


def _sort_from_left(columns: Sequence[_Column]) -> list[_Column]:
    """Return the columns in topological order (Kahn's algorithm), from left to right."""
    waiting = {column: len(column.left) for column in columns}
    order = [column for column in columns if not column.left]
    for column in order:
        for other in column.right:
            waiting[other] -= 1
            if not waiting[other]:
                order.append(other)
    assert len(order) == len(columns), "columns whose links do not cross have one order"
    return order


def _desired_x(column: _Column, place: Mapping[Spot, _Column]) -> float:
    """Return the weighted mean x of the spots in other columns that a column is connected to."""
    total = weights = 0.0
    for spot in column.spots:
        for other in (*spot.above, *spot.below):
            if place[other] is not column:
                weight = _HANGING if other.has_single_edge else 1.0
                total += weight * place[other].x
                weights += weight
    return total / weights if weights else column.x


def _min_distance(left: Spot, right: Spot) -> float:
    apart = len(set(left.frames) ^ set(right.frames))
    return (left.width + right.width) / 2 + _GAP + FRAME_PAD * apart

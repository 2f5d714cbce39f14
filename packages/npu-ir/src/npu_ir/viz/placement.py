"""In which order the spots of a layer stand, and how far to the right.

They are ordered by the mean position of their neighbours in the layers above and below, those of one
frame together, and then moved towards these neighbours as far as the order allows.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_SWEEPS = 10
_GAP = 26.0
FRAME_PAD = 12.0
# How hard a neighbour pulls: the only box right above or below, another bend of an edge, anything else,
# and what hangs on this spot alone.
_ONLY, _BEND, _OTHER, _ALONE = 12.0, 6.0, 1.0, 0.1


@dataclass(slots=True, eq=False)
class Spot:
    """A box, or a bend of an edge, in a layer.

    Attributes:
        width: Pixels; 0 for a bend.
        height: Pixels; 0 for a bend.
        frames: The frames it stands in, outermost first.
        step: Of a box of nodes its place in the order of execution.
        layer: Counted from the top.
        x: Middle.
        y: Top.
        row_top: Top of the highest box of the layer.
        row_bottom: Bottom of that box.
        above: Spots of the layer above that lead here.
        below: Spots of the layer below that this leads to.
    """

    width: float = 0.0
    height: float = 0.0
    frames: tuple[str, ...] = ()
    step: int | None = None
    layer: int = 0
    x: float = 0.0
    y: float = 0.0
    row_top: float = 0.0
    row_bottom: float = 0.0
    above: list[Spot] = field(default_factory=list)
    below: list[Spot] = field(default_factory=list)

    @property
    def is_bend(self) -> bool:
        return not self.height


def order_layers(layers: Sequence[list[Spot]]) -> None:
    """Sort each layer so that few edges cross: the best order of several sweeps up and down."""
    rank: dict[Spot, float] = {}
    for layer in layers:
        _sort(layer, {spot: float(index) for index, spot in enumerate(layer)})
        rank.update((spot, float(index)) for index, spot in enumerate(layer))
    best, fewest = [list(layer) for layer in layers], _crossings(layers, rank)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            near = {spot: [rank[other] for other in (spot.above if down else spot.below)] for spot in layer}
            _sort(layer, {spot: _mean(near[spot]) if near[spot] else rank[spot] for spot in layer})
            rank.update((spot, float(index)) for index, spot in enumerate(layer))
        crossings = _crossings(layers, rank)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    for layer, chosen in zip(layers, best, strict=True):
        layer[:] = chosen


def _sort(layer: list[Spot], wanted: Mapping[Spot, float]) -> None:
    """Sort a layer by the wanted position, with the spots of a frame next to each other."""
    members: defaultdict[str, list[float]] = defaultdict(list)
    for spot in layer:
        for frame in spot.frames:
            members[frame].append(wanted[spot])
    middle = {frame: _mean(positions) for frame, positions in members.items()}
    layer.sort(key=lambda spot: (*((middle[frame], frame) for frame in spot.frames), (wanted[spot], "")))


def _crossings(layers: Iterable[Sequence[Spot]], rank: Mapping[Spot, float]) -> int:
    crossings = 0
    for layer in layers:
        ends: list[float] = []
        for spot in layer:
            targets = sorted(rank[other] for other in spot.below)
            crossings += sum(len(ends) - bisect_right(ends, target) for target in targets)
            for target in targets:
                insort(ends, target)
    return crossings


def place_layers(layers: Sequence[Sequence[Spot]]) -> None:
    """Give every spot its x, the leftmost at 0."""
    for layer in layers:
        _fit(layer, [0.0] * len(layer))
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            _fit(layer, [_pull(spot, both=sweep >= _SWEEPS // 2, down=down) for spot in layer])
    _straighten(layers)
    left = min((spot.x - spot.width / 2 for layer in layers for spot in layer), default=0.0)
    for layer in layers:
        for spot in layer:
            spot.x -= left


def _straighten(layers: Sequence[Sequence[Spot]]) -> None:
    """Put the bends of each edge below each other, as far as their neighbours leave room for that."""
    left_of = {right: left for layer in layers for left, right in itertools.pairwise(layer)}
    right_of = {left: right for right, left in left_of.items()}

    def align(bends: Sequence[Spot]) -> None:
        lows = [left_of[bend].x + _distance(left_of[bend], bend) for bend in bends if bend in left_of]
        highs = [right_of[bend].x - _distance(bend, right_of[bend]) for bend in bends if bend in right_of]
        low, high = max(lows, default=-math.inf), min(highs, default=math.inf)
        if low <= high:
            middle = sorted(bend.x for bend in bends)[len(bends) // 2]
            for bend in bends:
                bend.x = min(max(middle, low), high)
        elif len(bends) > 1:
            align(bends[: len(bends) // 2])
            align(bends[len(bends) // 2 :])

    for spot in (spot for layer in layers for spot in layer):
        if spot.is_bend and not spot.above[0].is_bend:
            align(_bends_from(spot))


def _bends_from(bend: Spot | None) -> list[Spot]:
    bends = []
    while bend is not None:
        bends.append(bend)
        bend = next((spot for spot in bend.below if spot.is_bend), None)
    return bends


def _pull(spot: Spot, *, both: bool, down: bool) -> float:
    near = spot.above + spot.below if both else spot.above if down else spot.below
    if not near:
        return spot.x
    weights = [_weight(spot, other) for other in near]
    return sum(weight * other.x for weight, other in zip(weights, near, strict=True)) / sum(weights)


def _weight(spot: Spot, other: Spot) -> float:
    if spot.is_bend and other.is_bend:
        return _BEND
    if spot.is_bend or other.is_bend:
        return _OTHER
    if _hangs(other):
        return _ALONE
    upper, lower = (spot, other) if spot.layer < other.layer else (other, spot)
    only = len(_strong(upper.below)) == 1 == len(_strong(lower.above))
    return _ONLY if only else _OTHER


def _hangs(spot: Spot) -> bool:
    return len(spot.above) + len(spot.below) == 1


def _strong(spots: Sequence[Spot]) -> list[Spot]:
    return [spot for spot in spots if not spot.is_bend and not _hangs(spot)]


def _fit(layer: Sequence[Spot], wanted: Sequence[float]) -> None:
    """Set the x of a layer as near to ``wanted`` as order and gaps allow (least squares).

    Source: the pool-adjacent-violators algorithm for isotonic regression.
    """
    offsets = [0.0]
    for left, right in itertools.pairwise(layer):
        offsets.append(offsets[-1] + _distance(left, right))
    pools: list[tuple[float, float, float]] = []
    for spot, target, offset in zip(layer, wanted, offsets, strict=False):
        weight, count = _firmness(spot), 1.0
        total = weight * (target - offset)
        while pools and pools[-1][0] / pools[-1][1] > total / weight:
            total, weight, count = (a + b for a, b in zip(pools.pop(), (total, weight, count), strict=True))
        pools.append((total, weight, count))
    places = [total / weight for total, weight, count in pools for _ in range(int(count))]
    for spot, place, offset in zip(layer, places, offsets, strict=False):
        spot.x = place + offset


def _firmness(spot: Spot) -> float:
    """Return how much less than others a spot gives way to its neighbours in the layer."""
    if spot.is_bend:
        return _BEND
    return _ALONE if _hangs(spot) else _ONLY


def _distance(left: Spot, right: Spot) -> float:
    """Return how far apart the middles of two neighbours are at least."""
    apart = len(set(left.frames) ^ set(right.frames))
    return (left.width + right.width) / 2 + _GAP + FRAME_PAD * apart


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)

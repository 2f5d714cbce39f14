"""In which order the spots of a layer stand, and how far to the right.

They are ordered by the mean position of their neighbours in the layers above and below, those of one
frame together, and then moved towards these neighbours as far as the order allows.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_SWEEPS = 10
_GAP = 26.0
FRAME_PAD = 12.0
# A bend is pulled harder than a box: long edges become straight.
_BEND_WEIGHT = 4.0


@dataclass(slots=True, eq=False)
class Spot:
    """A box, or a bend of an edge, in a layer.

    Attributes:
        width: Pixels; 0 for a bend.
        height: Pixels; 0 for a bend.
        frames: The frames it stands in, outermost first.
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
    left = min((spot.x - spot.width / 2 for layer in layers for spot in layer), default=0.0)
    for layer in layers:
        for spot in layer:
            spot.x -= left


def _pull(spot: Spot, *, both: bool, down: bool) -> float:
    near = spot.above + spot.below if both else spot.above if down else spot.below
    return _mean([other.x for other in near]) if near else spot.x


def _fit(layer: Sequence[Spot], wanted: Sequence[float]) -> None:
    """Set the x of a layer as near to ``wanted`` as order and gaps allow (least squares).

    Source: the pool-adjacent-violators algorithm for isotonic regression.
    """
    offsets = [0.0]
    for left, right in zip(layer, layer[1:], strict=False):
        offsets.append(offsets[-1] + _distance(left, right))
    pools: list[tuple[float, float, int]] = []
    for spot, target, offset in zip(layer, wanted, offsets, strict=False):
        weight, count = _BEND_WEIGHT if spot.is_bend else 1.0, 1
        total = weight * (target - offset)
        while pools and pools[-1][0] / pools[-1][1] > total / weight:
            total, weight, count = (a + b for a, b in zip(pools.pop(), (total, weight, count), strict=True))
        pools.append((total, weight, count))
    places = [total / weight for total, weight, count in pools for _ in range(count)]
    for spot, place, offset in zip(layer, places, offsets, strict=False):
        spot.x = place + offset


def _distance(left: Spot, right: Spot) -> float:
    """Return how far apart the middles of two neighbours are at least."""
    apart = len(set(left.frames) ^ set(right.frames))
    return (left.width + right.width) / 2 + _GAP + FRAME_PAD * apart


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers)

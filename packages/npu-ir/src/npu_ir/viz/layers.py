"""Layers of a drawing: the spots in them, and their order.

Source: the barycenter heuristic of Sugiyama, Tagawa, Toda (1981), Methods for visual understanding of
hierarchical systems; the exact problem is NP-hard, even for two layers.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

_SWEEPS = 10


@dataclass(slots=True, eq=False)
class Spot:
    """A box, or a bend of an edge, in a layer; sizes and places in pixels."""

    width: float = 0.0  # 0 for a bend, as its height
    height: float = 0.0
    frames: tuple[str, ...] = ()  # around it, outermost first
    position: int | None = None  # in execution order, of a box for nodes
    layer: int = 0  # counted from the top
    x: float = 0.0  # centre
    y: float = 0.0  # top
    row_top: float = 0.0  # of the highest box of the layer
    row_bottom: float = 0.0
    above: list[Spot] = field(default_factory=list)  # predecessors, in the layer above
    below: list[Spot] = field(default_factory=list)  # successors, in the layer below

    @property
    def is_bend(self) -> bool:
        return not self.height

    @property
    def has_single_edge(self) -> bool:
        return len(self.above) + len(self.below) == 1


def common_length(left: tuple[str, ...], right: tuple[str, ...]) -> int:
    """Return the number of leading items that two paths of modules or frames share."""
    pairs = enumerate(zip(left, right, strict=False))
    return next((at for at, (a, b) in pairs if a != b), min(len(left), len(right)))


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)


def order_layers(layers: Sequence[list[Spot]]) -> None:
    """Sort each layer so that few edges cross.

    Takes the best of several sweeps, down and up in turn, each of which sorts spots by the mean position
    (barycenter) of their neighbours in the previous layer.
    """
    rank: dict[Spot, float] = {}
    for layer in layers:
        _sort_layer(layer, {spot: float(index) for index, spot in enumerate(layer)})
        rank.update((spot, float(index)) for index, spot in enumerate(layer))
    best, fewest = [list(layer) for layer in layers], _count_crossings(layers, rank)
    for sweep in range(_SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        for layer in layers if down else reversed(layers):
            near = {spot: [rank[other] for other in (spot.above if down else spot.below)] for spot in layer}
            _sort_layer(layer, {spot: mean(near[spot]) if near[spot] else rank[spot] for spot in layer})
            rank.update((spot, float(index)) for index, spot in enumerate(layer))
        crossings = _count_crossings(layers, rank)
        if crossings < fewest:
            best, fewest = [list(layer) for layer in layers], crossings
    for layer, chosen in zip(layers, best, strict=True):
        layer[:] = chosen


def _sort_layer(layer: list[Spot], wanted: Mapping[Spot, float]) -> None:
    """Sort a layer by the wanted position, and keep the spots of a frame adjacent."""
    members: defaultdict[str, list[float]] = defaultdict(list)
    for spot in layer:
        for frame in spot.frames:
            members[frame].append(wanted[spot])
    # Frames are sorted as units, by their mean, level by level; their names break ties between frames.
    middle = {frame: mean(positions) for frame, positions in members.items()}
    layer.sort(key=lambda spot: (*((middle[frame], frame) for frame in spot.frames), (wanted[spot], "")))


def _count_crossings(layers: Iterable[Sequence[Spot]], rank: Mapping[Spot, float]) -> int:
    # Edges cross where their ends are inverted (Barth, Juenger, Mutzel 2002): count inversions by insertion.
    crossings = 0
    for layer in layers:
        ends: list[float] = []
        for spot in layer:
            targets = sorted(rank[other] for other in spot.below)
            crossings += sum(len(ends) - bisect_right(ends, target) for target in targets)
            for target in targets:
                insort(ends, target)
    return crossings

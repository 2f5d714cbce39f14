"""In which order the spots of each layer stand."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from npu_ir.viz.spots import Spot, mean

_SWEEPS = 10


def order_layers(layers: Sequence[list[Spot]]) -> None:
    """Sort each layer so that few edges cross.

    The best order of several sweeps up and down, each of which puts spots at the mean position of what
    they are connected to.
    """
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
            _sort(layer, {spot: mean(near[spot]) if near[spot] else rank[spot] for spot in layer})
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
    middle = {frame: mean(positions) for frame, positions in members.items()}
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

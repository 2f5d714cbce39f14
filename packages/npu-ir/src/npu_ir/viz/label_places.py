"""Places of labels: beside a line, where no other line, label or title is."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from npu_ir.viz.svg_text import DETAIL_SIZE, text_width

_STEP = 4.0  # distance of the points that stand for lines and texts
_ASCENT, _DESCENT = 9.0, 2.0
_BESIDE = 6.0


class OccupiedPlaces:
    """The places that are taken, as points in the cells of a grid."""

    def __init__(self) -> None:
        self._cells: set[tuple[int, int]] = set()

    def add_points(self, points: Iterable[tuple[float, float]]) -> None:
        self._cells.update((round(x / _STEP), round(y / _STEP)) for x, y in points)

    def add_box(self, x: float, y: float, width: float, height: float) -> None:
        """Take the border of a box: no label beside a line is inside of one."""
        across = [x + step * _STEP for step in range(int(width / _STEP) + 1)]
        down = [y + step * _STEP for step in range(int(height / _STEP) + 1)]
        self.add_points((at, edge) for at in across for edge in (y, y + height))
        self.add_points((edge, at) for at in down for edge in (x, x + width))

    def _is_free(self, text: str, x: float, y: float) -> bool:
        return self._cells.isdisjoint(_cells(text, x, y))

    def take_first_free(
        self, text: str, places: Iterable[tuple[float, float]], is_forced: bool
    ) -> tuple[float, float] | None:
        """Return the first place where ``text`` overlaps nothing, and take it.

        If there is none, return the first place where ``is_forced``, and None otherwise.
        """
        candidates = list(places)
        place = next((place for place in candidates if self._is_free(text, *place)), None)
        if place is None and is_forced:
            place = candidates[0]
        if place is not None:
            self._cells.update(_cells(text, *place))
        return place


def _cells(text: str, x: float, y: float) -> list[tuple[int, int]]:
    right = x + 0.92 * text_width(text, DETAIL_SIZE)  # the estimate is generous
    columns = range(round(x / _STEP), round(right / _STEP) + 1)
    rows = range(round((y - _ASCENT) / _STEP), round((y + _DESCENT) / _STEP) + 1)
    return [(column, row) for column in columns for row in rows]


def places_beside(text: str, points: Iterable[tuple[float, float]]) -> Iterator[tuple[float, float]]:
    """Yield places for ``text`` to the right and to the left of points of a line, the nearest first."""
    width = text_width(text, DETAIL_SIZE)
    known = list(points)
    for distance, base in ((_BESIDE, 4.0), (_BESIDE, -2.0), (2.5 * _BESIDE, 4.0), (2.5 * _BESIDE, -2.0)):
        for x, y in known:
            yield x + distance, y + base
            yield x - distance - width, y + base

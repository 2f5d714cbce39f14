"""Selection of the part of a graph that fits in a drawing: the depth of modules, and the cut."""

from __future__ import annotations

from dataclasses import dataclass

from npu_ir.errors import VisualizationError
from npu_ir.viz.outline import Outline, Part


@dataclass(frozen=True, slots=True)
class Selection:
    """The part of an outline to draw.

    Attributes:
        levels: The parts of each level; those of the last one become boxes.
        room: Maximum number of boxes for them; the rest is one box with the number of missing nodes.
    """

    levels: list[list[Part]]
    room: int

    @property
    def depth(self) -> int:
        return len(self.levels) - 1


def select(outline: Outline, max_nodes: int, depth: int | None) -> Selection:
    """Return a selection of at most ``max_nodes`` boxes, to ``depth`` or else as deep as possible.

    Repeated blocks are merged only if the boxes would not suffice otherwise.

    Raises:
        VisualizationError: ``max_nodes`` is less than 2 or ``depth`` less than 0.
    """
    if max_nodes < 2:
        raise VisualizationError(f"max_nodes={max_nodes}: a drawing has room for 2 boxes at least")
    if depth is not None and depth < 0:
        raise VisualizationError(f"depth={depth} is negative", fix="use 0 for one box, 1 for the top modules")
    levels = (
        _choose_levels(outline, max_nodes) if depth is None else _levels_to_depth(outline, max_nodes, depth)
    )
    return Selection(levels, max_nodes if len(levels[-1]) <= max_nodes else max_nodes - 1)


def _choose_levels(outline: Outline, max_nodes: int) -> list[list[Part]]:
    plain = outline.levels(outline.last_level, fold=False, max_parts=max_nodes)
    folded = outline.levels(outline.last_level, fold=True, max_parts=max_nodes)
    deepest = max(plain, folded, key=len)
    if len(deepest[-1]) == 1 and deepest[-1][0].length == len(outline.paths) > 1:
        # One box for everything says nothing: the beginning of its content is more useful.
        return outline.levels(len(deepest), fold=True)
    return deepest


def _levels_to_depth(outline: Outline, max_nodes: int, depth: int) -> list[list[Part]]:
    level = min(depth, outline.last_level)
    plain = outline.levels(level, fold=False)
    return plain if len(plain[-1]) <= max_nodes else outline.levels(level, fold=True)

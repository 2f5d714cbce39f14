"""Elements of a layered layout: boxes and the bends of edges."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class Spot:
    """A box, or a bend of an edge, in a layer.

    Attributes:
        width: Pixels; 0 for a bend.
        height: Pixels; 0 for a bend.
        frames: The frames around it, outermost first.
        position: Position in execution order, of a box for nodes; else None.
        layer: Index, counted from the top.
        x: Centre.
        y: Top.
        row_top: Top of the highest box of the layer.
        row_bottom: Bottom of that box.
        above: Predecessors, in the layer above.
        below: Successors, in the layer below.
    """

    width: float = 0.0
    height: float = 0.0
    frames: tuple[str, ...] = ()
    position: int | None = None
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

    @property
    def has_single_edge(self) -> bool:
        """True for a spot with a single edge."""
        return len(self.above) + len(self.below) == 1


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)

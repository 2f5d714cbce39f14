"""What a layout arranges: boxes and the bends of edges, in layers."""

from __future__ import annotations

from dataclasses import dataclass, field


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

    @property
    def hangs(self) -> bool:
        """Whether it is connected to one other spot only."""
        return len(self.above) + len(self.below) == 1


def mean(numbers: list[float]) -> float:
    return sum(numbers) / len(numbers)

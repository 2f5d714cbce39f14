"""Names for tensors that a graph gets from outside, which were computed in it before."""

from __future__ import annotations

from npu_ir import Graph
from npu_ir.core.naming import unique_name
from npu_ir.core.node import outside_names


class FoldedNames:
    """Gives out names ``folded.NAME`` that no weight, constant or input of a graph has.

    Args:
        graph: Nothing else may give it new weights or constants while this is in use.
    """

    def __init__(self, graph: Graph) -> None:
        self._taken = {name: None for value in graph.arguments for name in outside_names(value)}
        self._counters: dict[str, int] = {}

    def take(self, name: str) -> str:
        """Return the name for what was called ``name``."""
        found = unique_name(self._taken, self._counters, f"folded.{name.removeprefix('folded.')}")
        self._taken[found] = None
        return found

"""Names of parameters that replace values computed in a graph."""

from __future__ import annotations

from npu_ir import Graph
from npu_ir.core.naming import unique_name
from npu_ir.core.node import external_names


class FoldedNames:
    """Generator of names ``folded.NAME`` that no weight, constant or input of a graph has.

    Args:
        graph: The graph; it gets no other new weights or constants while this is in use.
    """

    def __init__(self, graph: Graph) -> None:
        self._taken = {name: None for value in graph.arguments for name in external_names(value)}
        self._counters: dict[str, int] = {}

    def take(self, name: str) -> str:
        """Reserve and return the name of the parameter that replaces the value ``name``."""
        folded = unique_name(self._taken, self._counters, f"folded.{name.removeprefix('folded.')}")
        self._taken[folded] = None
        return folded

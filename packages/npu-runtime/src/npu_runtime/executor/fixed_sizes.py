"""Executors of fixed sizes for a graph that leaves sizes open: most backends run fixed sizes only."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from npu_ir import Graph
from npu_ir.core.node import Value
from npu_ir.errors import GraphError

if TYPE_CHECKING:
    from npu_runtime.executor.executor import IRExecutor


class FixedSizes:
    """The executors of a graph for the sizes of its first calls, each made at the first call of its sizes.

    Args:
        graph: The graph before its passes; it is copied.
        limit: The maximum number of executors.
        make: Returns an executor of a specialized graph, with the weights of the moment.
    """

    def __init__(self, graph: Graph, limit: int, make: Callable[[Graph], IRExecutor]) -> None:
        self._graph = graph.clone()
        self._limit = limit
        self._make = make
        self._names = tuple(graph.symbols)
        self._lock = threading.RLock()
        self._executors: dict[tuple[int | None, ...], IRExecutor | None] = {}

    def executor_for(self, values: Mapping[str, int]) -> IRExecutor | None:
        """Return the executor for symbols of these values; None if there are executors enough without it.

        The same values get the same answer until `clear`, and so the same results.
        """
        key = tuple(map(values.get, self._names))
        try:
            return self._executors[key]
        except KeyError:
            return self._add(key, values)

    def _add(self, key: tuple[int | None, ...], values: Mapping[str, int]) -> IRExecutor | None:
        with self._lock:
            if key in self._executors or len(self._executors) >= self._limit:
                return self._executors.get(key)
            try:
                graph = self._graph.specialize(values)
            except GraphError:
                found = None  # sizes that the graph refuses: a call says which, and why
            else:
                found = self._make(graph)
            self._executors[key] = found
            return found

    def clear(self) -> None:
        """Drop all executors: they have the weights of before."""
        with self._lock:
            self._executors = {}


def kept_inputs(graph: Graph, fixed: Graph) -> list[int]:
    """Return the inputs of a graph, by number, that the specialized one has as well: numbers may be fixed."""
    kept = {_name(value) for value in fixed.inputs}
    return [index for index, value in enumerate(graph.inputs) if _name(value) in kept]


def _name(value: Value) -> str:
    assert value.argument is not None
    return value.argument.target

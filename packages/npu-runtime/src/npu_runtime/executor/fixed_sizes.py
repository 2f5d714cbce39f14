"""Executors of fixed sizes for a graph that leaves sizes open: most backends run fixed sizes only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, TypeAlias

from npu_ir import Graph, TensorType
from npu_ir.core.node import Value
from npu_ir.errors import GraphError
from npu_runtime.executor.bound_weights import BoundWeights
from npu_runtime.executor.turn import Turn

if TYPE_CHECKING:
    from npu_runtime.executor.executor import IRExecutor

_Key: TypeAlias = "tuple[int | None, ...]"


def open_sizes(graph: Graph) -> list[str]:
    """Return the symbols that are sizes of inputs. Other symbols are numbers, or depend on data."""
    types = (value.type for value in graph.inputs)
    found = {name for type in types if isinstance(type, TensorType) for name in type.symbols}
    return [name for name in graph.symbols if name in found]


class FixedSizes:
    """The executors of a graph for the sizes of its first calls, each made when a call needs it.

    Args:
        graph: The graph before its passes; it is copied.
        limit: The maximum number of different sizes that have an executor.
        make: Returns an executor of a specialized graph with weights, given also weights that are bound to
            such a graph already: the results of equal nodes of the prologue are taken from these.
        weights: The weights.
    """

    def __init__(
        self,
        graph: Graph,
        limit: int,
        make: Callable[[Graph, BoundWeights, BoundWeights], IRExecutor],
        weights: BoundWeights,
    ) -> None:
        self._graph = graph.clone()
        self._limit = limit
        self._make = make
        self._weights = self._shared = weights
        self._names = open_sizes(graph)
        self._turn = Turn()
        self._chosen: set[_Key] = set()
        self._executors: dict[_Key, IRExecutor] = {}

    def find(self, values: Mapping[str, int]) -> IRExecutor | None:
        """Return the executor for symbols of these values; None for sizes that have none.

        Which sizes have one does not change any more, so that a size always has the same results.
        """
        key = tuple(map(values.get, self._names))
        found = self._executors.get(key)
        return self._add(key) if found is None else found

    def _add(self, key: _Key) -> IRExecutor | None:
        with self._turn.lock:
            if key in self._executors or (key not in self._chosen and len(self._chosen) >= self._limit):
                return self._executors.get(key)
            sizes = {name: size for name, size in zip(self._names, key, strict=True) if size is not None}
            try:
                graph = self._graph.specialize(sizes)
            except GraphError:
                return None  # sizes that the graph refuses: the call says which, and why
            made = self._make(graph, self._weights, self._shared)
            self._shared = made._engine.bound
            self._chosen.add(key)
            self._executors[key] = made
            return made

    def bind(self, weights: BoundWeights) -> None:
        """Use other weights: the executors are made anew."""
        with self._turn.lock:
            self._weights = self._shared = weights
            self._executors = {}


def kept_inputs(graph: Graph, fixed: Graph) -> list[int]:
    """Return the inputs of a graph, by number, that the specialized one has, too: numbers may be fixed."""
    kept = {_name(value) for value in fixed.inputs}
    return [index for index, value in enumerate(graph.inputs) if _name(value) in kept]


def _name(value: Value) -> str:
    assert value.argument is not None
    return value.argument.target

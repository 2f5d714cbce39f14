"""Check of recorded origins: each value is compared, on the same data, with the value it stands for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.core.tensor_bytes import largest_magnitude
from npu_ir.ops.effects import find_uninitialized_values
from npu_passes.core.numerics import Numerics
from npu_passes.manager.checked_mode import absolute_error, describe_difference, split_float64


class ObservedRun:
    """Values that nodes computed in the last run of a graph, except those with undefined contents.

    Args:
        graph: The graph; it must not be edited while this exists.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._items: dict[Value, Any] = {}
        self._passed_over = find_uninitialized_values(graph)

    def observe(self, node: OpNode, outputs: list[Any]) -> None:
        """Store the outputs of a node; an observer for `npu_passes.manager.checked_mode.Trial`."""
        for value, item in zip(node.outputs, outputs, strict=True):
            if value.use_count and value not in self._passed_over:
                self._items[value] = item

    def values(self) -> Iterator[tuple[Value, Any]]:
        """Yield values with their contents, in the order of the graph."""
        values = (value for node in self._graph.nodes for value in node.outputs)
        return ((value, self._items[value]) for value in values if value in self._items)

    def magnitude(self, value: Value) -> float:
        """Return the largest magnitude of a value and of the results of nodes that it depends on."""
        reached: dict[Value, None] = {}
        pending = [value]
        while pending:
            value = pending.pop()
            if value not in reached and value.producer is not None:
                reached[value] = None
                pending += value.producer.inputs
        items = [self._items[value] for value in reached if value in self._items]
        return max(
            (largest_magnitude(split_float64(item)) for item in items if _is_float(item) and item.numel()),
            default=0.0,
        )


def find_wrong_origin(before: ObservedRun, after: ObservedRun, numerics: Numerics) -> str | None:
    """Return a description of the first value that differs from its recorded origin; None if there is none.

    After catastrophic cancellation, the tolerance is relative to the values that a value was computed from.

    Args:
        before: A run of the graph before a pass.
        after: A run of the graph after the pass, on the same data.
        numerics: Tolerance that the pass promises.
    """
    expected = {origin: item for item in before.values() for origin in item[0].origins}
    for value, item in after.values():
        for origin in value.origins:
            if origin not in expected:
                continue
            original, wanted = expected[origin]
            problem = describe_difference(item, wanted, numerics)
            if problem is None or _is_within_cancellation(item, wanted, numerics, before.magnitude(original)):
                continue
            return f"%{value.name} stands for %{original.name}, and {problem}"
    return None


def _is_within_cancellation(item: Any, wanted: Any, numerics: Numerics, magnitude: float) -> bool:
    """Return whether two tensors differ by no more than is allowed relative to ``magnitude``."""
    if (
        not (_is_float(item) and _is_float(wanted))
        or item.shape != wanted.shape
        or item.dtype != wanted.dtype
    ):
        return False
    return absolute_error(item, wanted) <= numerics.allowed_difference(wanted.dtype) * magnitude


def _is_float(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.is_floating_point() and item.layout is torch.strided

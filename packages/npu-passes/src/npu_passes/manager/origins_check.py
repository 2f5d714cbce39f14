"""A check that values are what they are recorded to stand for: each is compared with that, on the same data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.graph.undefined_content import unfilled
from npu_passes.core.numerics import Numerics
from npu_passes.manager.checked_mode import absolute_error, difference, largest


class ObservedRun:
    """What the values of nodes were when a graph ran last; of undefined content nothing is kept.

    Args:
        graph: The graph; it must not be edited while this exists.
    """

    def __init__(self, graph: Graph) -> None:
        self._graph = graph
        self._items: dict[Value, Any] = {}
        self._passed_over = unfilled(graph)

    def observe(self, node: OpNode, outputs: list[Any]) -> None:
        """Keep the outputs of a node; for `npu_passes.manager.checked_mode.Trial`."""
        for value, item in zip(node.outputs, outputs, strict=True):
            if value.use_count and value not in self._passed_over:
                self._items[value] = item

    def values(self) -> Iterator[tuple[Value, Any]]:
        """Yield values with what they were, in the order of the graph."""
        values = (value for node in self._graph.nodes for value in node.outputs)
        return ((value, self._items[value]) for value in values if value in self._items)

    def magnitude(self, value: Value) -> float:
        """Return the largest magnitude of a value, and of all that nodes computed for it."""
        reached: dict[Value, None] = {}
        pending = [value]
        while pending:
            value = pending.pop()
            if value not in reached and value.producer is not None:
                reached[value] = None
                pending += value.producer.inputs
        items = [self._items[value] for value in reached if value in self._items]
        return max((largest(item) for item in items if _is_float(item) and item.numel()), default=0.0)


def false_origin(before: ObservedRun, after: ObservedRun, numerics: Numerics) -> str | None:
    """Return which value is not what it is recorded to stand for, and how it differs; None where all are.

    Where digits cancel, what a value was computed from says how exact it can be.

    Args:
        before: A run of the graph before a pass.
        after: A run of what the pass made of it, on the same data.
        numerics: What the pass promises.
    """
    expected = {origin: found for found in before.values() for origin in found[0].origins}
    for value, item in after.values():
        for origin in value.origins:
            if origin not in expected:
                continue
            original, wanted = expected[origin]
            problem = difference(item, wanted, numerics)
            if problem is None or _is_cancelled(item, wanted, numerics, before.magnitude(original)):
                continue
            return f"%{value.name} stands for %{original.name}, and {problem}"
    return None


def _is_cancelled(item: Any, wanted: Any, numerics: Numerics, magnitude: float) -> bool:
    """Whether two tensors differ by no more than is allowed of the largest that they were computed from."""
    if (
        not (_is_float(item) and _is_float(wanted))
        or item.shape != wanted.shape
        or item.dtype != wanted.dtype
    ):
        return False
    return absolute_error(item, wanted) <= numerics.allowed(wanted.dtype) * magnitude


def _is_float(item: Any) -> bool:
    return isinstance(item, torch.Tensor) and item.is_floating_point() and item.layout is torch.strided

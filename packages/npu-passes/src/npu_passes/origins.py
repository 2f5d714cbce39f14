"""Whether values are what they are recorded to stand for: each is compared with that, on the same data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from npu_ir import Graph, OpNode, Value
from npu_ir.ops.unfilled import unfilled
from npu_passes.checking import absolute_error, difference, largest
from npu_passes.numerics import Numerics


class Seen:
    """What the values of nodes were when a graph ran last, for `npu_passes.checking.Trial`.

    Args:
        graph: The graph.
    """

    def __init__(self, graph: Graph) -> None:
        self._items: dict[str, Any] = {}
        self._passed_over = unfilled(graph)

    def observe(self, node: OpNode, outputs: list[Any]) -> None:
        for value, item in zip(node.outputs, outputs, strict=True):
            if value.use_count and value not in self._passed_over:
                self._items[value.name] = item

    def magnitude(self, value: Value) -> float:
        """Return the largest magnitude of what nodes computed for a value, directly or not."""
        reached: dict[Value, None] = {}
        pending = [value]
        while pending:
            value = pending.pop()
            if value not in reached and value.producer is not None:
                reached[value] = None
                pending += value.producer.inputs
        items = [self._items.get(value.name) for value in reached]
        tensors = [item for item in items if isinstance(item, torch.Tensor) and item.numel()]
        return max((largest(item) for item in tensors if item.layout is torch.strided), default=0.0)

    def of(self, graph: Graph) -> Iterator[tuple[Value, Any]]:
        """Yield the values of a graph, or of a copy of it, that nodes produce, with what they were."""
        for node in graph.nodes:
            for value in node.outputs:
                if value.name in self._items:
                    yield value, self._items[value.name]


def false_origin(
    before: Graph, seen_before: Seen, after: Graph, seen_after: Seen, numerics: Numerics
) -> str | None:
    """Return which value is not what it is recorded to stand for, and how it differs; None where all are.

    Where digits cancel, what a value was computed from says how exact it can be.

    Args:
        before: The graph before a pass.
        seen_before: What its values were.
        after: What the pass made of it.
        seen_after: What its values were, on the same data.
        numerics: What the pass promises.
    """
    expected = {origin: (value, item) for value, item in seen_before.of(before) for origin in value.origins}
    for value, item in seen_after.of(after):
        for origin in value.origins:
            if origin in expected:
                original, wanted = expected[origin]
                problem = difference(item, wanted, numerics)
                if problem is not None and not _is_cancelled(
                    item, wanted, seen_before.magnitude(original), numerics
                ):
                    return f"%{value.name} stands for %{original.name}, and {problem}"
    return None


def _is_cancelled(item: Any, wanted: Any, magnitude: float, numerics: Numerics) -> bool:
    """Whether two tensors differ by no more than is allowed of the largest that they were computed from."""
    if not (isinstance(item, torch.Tensor) and isinstance(wanted, torch.Tensor)):
        return False
    if item.shape != wanted.shape or item.dtype != wanted.dtype or not wanted.is_floating_point():
        return False
    return absolute_error(item, wanted) <= numerics.allowed(wanted.dtype) * magnitude

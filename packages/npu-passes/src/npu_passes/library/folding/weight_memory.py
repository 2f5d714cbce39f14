"""How much memory takes what is computed from weights, and whether that is worth it."""

from __future__ import annotations

import functools
import itertools
import math

from npu_ir import OpNode, TensorType, Value
from npu_ir.ops.effects import is_view

# How large what is kept may always be, where nobody says another limit.
MAX_BYTES = 1 << 20
# Results that are soon freed may be so many times as large as the weights: any dtype fits into float64.
_TRANSIENT = 8
# At most so many weights are looked at for one node; more count as nothing.
_SOURCES = 64


class WeightMemory:
    """The memory behind values that depend on weights only; linear in the number of their nodes.

    Args:
        max_bytes: What a result may always take.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[Value, int] = {}
        self._sources: dict[Value, dict[Value, None]] = {}
        self._made: dict[OpNode, int] = {}
        self._weights: dict[OpNode, int] = {}

    def add(self, node: OpNode) -> None:
        """Take in a node, after those whose results it reads."""
        for value in node.inputs:
            if value.producer is None:
                self._held[value] = extent_bytes(value)
                self._sources[value] = {value: None}
        sources = itertools.chain.from_iterable(self._sources[value] for value in node.inputs)
        limit = max(_SOURCES, len(node.inputs))
        distinct = dict.fromkeys(itertools.islice(dict.fromkeys(sources), limit))
        base = self._base(node)
        for value in node.outputs:
            self._sources[value] = distinct
            self._held[value] = extent_bytes(value) if base is None else base
        self._made[node] = sum(map(extent_bytes, node.outputs)) if base is None else base
        self._weights[node] = sum(map(extent_bytes, distinct))

    def _base(self, node: OpNode) -> int | None:
        """Return how large the memory is that the outputs of a view share; None where they have their own.

        Many ops return a view where they can, else a copy. It is a copy where the dtype differs, or where the
        outputs reach over more memory than there is.
        """
        if not is_view(node):
            return None
        base = max((self._held[value] for value in node.inputs), default=0)
        dtypes = {value.type.dtype for value in node.inputs if isinstance(value.type, TensorType)}
        same = all(
            isinstance(value.type, TensorType) and value.type.dtype in dtypes for value in node.outputs
        )
        return base if same and all(extent_bytes(value) <= base for value in node.outputs) else None

    def kept_problem(self, node: OpNode) -> str | None:
        """Return why it does not pay to keep the results of ``node``; None if it does."""
        return self._problem(node, 1, "")

    def transient_problem(self, node: OpNode) -> str | None:
        """Return why it does not pay to make the results of ``node``, even if they are soon freed; None if it does."""
        return self._problem(node, _TRANSIENT, f"{_TRANSIENT} times ")

    def _problem(self, node: OpNode, times: int, words: str) -> str | None:
        made, weights = self._made[node], self._weights[node]
        if made <= max(self._max_bytes, times * weights):
            return None
        behind = f"{words}the {weights} bytes of the weights behind them and than " if weights else ""
        return f"its results take {made} bytes, more than {behind}max_bytes={self._max_bytes}"


def copy_problem(value: Value) -> str | None:
    """Return why `constant-folding` would not keep a copy of a weight, by its default; None if it would."""
    type = value.tensor_type
    made = math.prod(type.sizes) * type.dtype.itemsize
    given = sum(map(extent_bytes, _arguments_behind(value)))
    if made <= max(MAX_BYTES, given):
        return None
    return f"%{value.name} takes {made} bytes, and is computed from {given}: a new one would be computed in each call"


def _arguments_behind(value: Value) -> list[Value]:
    pending, seen = [value], {value: None}
    while pending:
        node = pending.pop().producer
        new = [item for item in node.inputs if item not in seen] if node is not None else []
        seen.update(dict.fromkeys(new))
        pending += new
    return [item for item in seen if item.producer is None]


def extent_bytes(value: Value) -> int:
    """Return how much memory the elements of a tensor reach over; 0 for a number.

    That is less than their number where an expanded tensor has the same element in many places.
    """
    return _extent(value.type) if isinstance(value.type, TensorType) else 0


@functools.lru_cache(maxsize=4096)
def _extent(type: TensorType) -> int:
    if 0 in type.sizes:
        return 0
    reach = sum((size - 1) * step for size, step in zip(type.sizes, type.steps, strict=True))
    return (reach + 1) * type.dtype.itemsize

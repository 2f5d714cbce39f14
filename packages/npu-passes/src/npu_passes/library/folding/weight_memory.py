"""Memory of values computed from weights, and the limits for it."""

from __future__ import annotations

import functools
import itertools
import math

from npu_ir import OpNode, TensorType, Value
from npu_ir.core.storage import span_bytes
from npu_ir.ops.effects import is_view

# Default size in bytes up to which a retained result is always allowed.
MAX_BYTES = 1 << 20
# Transient results of the prologue may be this many times as large as the weights: float64 is 8 times as
# large as any other dtype.
TRANSIENT = 8
# The largest number of weights that are counted for one node: bounds the work on chains of many weights.
_SOURCES = 64


class WeightMemory:
    """Memory of values that depend on weights only; a result of up to ``max_bytes`` is always allowed."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._held: dict[Value, int] = {}
        self._sources: dict[Value, dict[Value, None]] = {}
        self._made: dict[OpNode, int] = {}
        self._weights: dict[OpNode, int] = {}

    def add(self, node: OpNode) -> None:
        """Record a node, after the nodes whose results it reads."""
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
        """Return the size of the memory that the outputs of a view share; None if they have their own.

        Many ops return a view if they can, else a copy. It is a copy if the dtype differs, or if the outputs
        extend over more memory than the input has.
        """
        if not is_view(node):
            return None
        base = max((self._held[value] for value in node.inputs), default=0)
        dtypes = {value.type.dtype for value in node.inputs if isinstance(value.type, TensorType)}
        same = all(
            isinstance(value.type, TensorType) and value.type.dtype in dtypes for value in node.outputs
        )
        return base if same and all(extent_bytes(value) <= base for value in node.outputs) else None

    def problem(self, node: OpNode, times: int = 1) -> str | None:
        """Return why results of ``node`` are more than ``times`` as large as the weights; None if not."""
        result_bytes, source_bytes = self._made[node], self._weights[node]
        words = f"{times} times " if times > 1 else ""
        if result_bytes <= max(self._max_bytes, times * source_bytes):
            return None
        comparison = (
            f"{words}the {source_bytes} bytes of the weights behind them and than " if source_bytes else ""
        )
        return f"its results take {result_bytes} bytes, more than {comparison}max_bytes={self._max_bytes}"


def copy_problem(value: Value) -> str | None:
    """Return the reason why `constant-folding` by default retains no copy of a weight; None if it does."""
    type = value.tensor_type
    result_bytes = math.prod(type.static_shape) * type.dtype.itemsize
    source_bytes = sum(map(extent_bytes, _source_arguments(value)))
    if result_bytes <= max(MAX_BYTES, source_bytes):
        return None
    return (
        f"%{value.name} takes {result_bytes} bytes, and is computed from {source_bytes}: "
        "a new one would be computed in each call"
    )


def _source_arguments(value: Value) -> list[Value]:
    pending, seen = [value], {value: None}
    while pending:
        node = pending.pop().producer
        new = [item for item in node.inputs if item not in seen] if node is not None else []
        seen.update(dict.fromkeys(new))
        pending += new
    return [item for item in seen if item.producer is None]


def extent_bytes(value: Value) -> int:
    """Return the bytes from the first to the last element of a tensor in memory; 0 for a number.

    For an expanded tensor that is less than the size of a dense copy.
    """
    return _span_bytes(value.type)


_span_bytes = functools.lru_cache(maxsize=4096)(span_bytes)

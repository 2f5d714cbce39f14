"""The run of a comparison: values of the second side are compared with those of the first while it runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.core.node import outside_names
from npu_ir.graph.uninitialized_values import unfilled
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.verify.reference import copied
from npu_runtime.diagnostics.compare.alignment import Pair, align
from npu_runtime.diagnostics.compare.comparison import Comparison
from npu_runtime.diagnostics.compare.description import have_same_strides, row_of
from npu_runtime.diagnostics.compare.float64_run import Float64Run, Missing, is_decided
from npu_runtime.diagnostics.compare.reproduction import Finding
from npu_runtime.diagnostics.compare.row import Row
from npu_runtime.diagnostics.compare.sides import ExecutorSide, Outcome, Side, device_of
from npu_runtime.diagnostics.compare.verdicts import Judge, Reference, Seen

_NOT_THERE = object()
_NO_RUN = Missing("a side is in float64 itself")


class SideBySide:
    """One comparison of two sides.

    The float64 run computes the graph that passes have changed least: that of a, unless only a is an
    executor. This side runs first, and its aligned values are stored. The float64 run takes its random
    numbers, integers and booleans.

    Attributes:
        finding: The first divergence in a value of a node; None without one.
    """

    def __init__(self, a: Side, b: Side, call: tuple[Any, Any], judge: Judge) -> None:
        self._is_swapped = isinstance(a, ExecutorSide) and not isinstance(b, ExecutorSide)
        self._first, self._second = self._swapped(a, b)
        self._sides = a, b
        self._call = call
        self._judge = judge
        pairs = align(self._first.graph, self._second.graph)
        passed_over = unfilled(self._first.graph) | unfilled(self._second.graph)
        self._pairs = [
            pair for pair in pairs if _is_used(pair) and passed_over.isdisjoint((pair.left, pair.right))
        ]
        self._left = Counter(pair.left.name for pair in self._pairs)  # pairs not compared yet, by value
        self._kept: dict[str, Seen] = {}
        self._expected: dict[str, Reference] = {}
        self._decided: dict[str, Any] = {}
        self._references = self._float64_runs()
        self._rows: dict[tuple[int, int], Row] = {}
        self.finding: Finding | None = None
        self._found_at: tuple[float, float] = math.inf, math.inf

    def compare(self) -> Comparison:
        """Run both sides, and return the result."""
        random_state = torch.get_rng_state()
        first = self._run(self._first, self._keep())
        torch.set_rng_state(random_state)
        second = self._run(self._second, self._compare_values())
        rows = [self._rows[order] for order in sorted(self._rows)]
        rows += self._results(first, second)
        rows += self._updates(first, second)
        a, b = self._sides
        notes = (*first.notes, *second.notes, *self._gaps())
        return Comparison(a.label, b.label, tuple(rows), _count(a.graph), _count(b.graph), notes)

    def _run(self, side: Side, observe: Observer) -> Outcome:
        args, kwargs = copied(self._call)
        return side.run(args, kwargs, observe)

    def _swapped(self, left: Any, right: Any) -> tuple[Any, Any]:
        """Convert a pair of sides a and b to one in the order of the runs, or back."""
        return (right, left) if self._is_swapped else (left, right)

    def _float64_runs(self) -> tuple[Float64Run, ...]:
        """Return the exact run in float64 and the one with rounding; none if a side is in float64 itself."""
        if self._first.is_exact or self._second.is_exact:
            return ()
        bound = self._first.bound(*self._call)
        wanted = list(self._left)
        device = device_of(bound)
        generators = None, torch.Generator().manual_seed(0)
        return tuple(
            Float64Run(self._first.graph, bound, wanted, device, self._decided, generator)
            for generator in generators
        )

    # While they run

    def _keep(self) -> Observer:
        """Return an observer that stores the values of the first side that are compared later."""
        aligned = set(self._left)

        def observe(node: OpNode, outputs: list[Any]) -> None:
            decided = is_decided(node)
            for value, item in zip(node.outputs, outputs, strict=True):
                if not _is_there(value, item) or not (decided or value.name in aligned):
                    continue
                seen = _seen(self._first, item)
                if value.name in aligned:
                    self._kept[value.name] = seen
                if decided:
                    self._decided[value.name] = seen.item

        return observe

    def _compare_values(self) -> Observer:
        """Return an observer that compares the values of the second side with the stored ones."""
        waiting: dict[str, list[Pair]] = {}
        for pair in self._pairs:
            waiting.setdefault(pair.right.name, []).append(pair)

        def observe(node: OpNode, outputs: list[Any]) -> None:
            for value, item in zip(node.outputs, outputs, strict=True):
                pairs = waiting.pop(value.name, ()) if _is_there(value, item) else ()
                seen = _seen(self._second, item)
                for pair in pairs:
                    if pair.left.name in self._kept:
                        self._compare_pair(pair, seen)

        return observe

    def _compare_pair(self, pair: Pair, seen: Seen) -> None:
        stored, reference = self._taken(pair.left)
        values, items = self._swapped(pair.left, pair.right), self._swapped(stored, seen)
        row = row_of("value", values[0].name, *values, items[0])
        row = self._judge.judged(row, *items, reference, same_strides=have_same_strides(*values))
        self._rows[pair.order] = row
        if row.diverges and pair.order < self._found_at:
            self._found_at = pair.order
            self.finding = Finding(row, values[1], *(copied(item.item) for item in items))

    def _taken(self, value: Value) -> tuple[Seen, Reference]:
        """Return the values of the first side and the float64 runs; the last pair releases them."""
        name = value.name
        if name not in self._expected:
            self._expected[name] = self._reference(value)
        self._left[name] -= 1
        if self._left[name]:
            return self._kept[name], self._expected[name]
        return self._kept.pop(name), self._expected.pop(name)

    def _reference(self, leaf: Any) -> Reference:
        """Return the float64 values of a value, or a leaf of the results, of the first side."""
        if not self._references:
            return Reference(_NO_RUN, _NO_RUN)
        return Reference(*(run.take(leaf) if isinstance(leaf, Value) else leaf for run in self._references))

    # When both have run

    def _results(self, first: Outcome, second: Outcome) -> Iterator[Row]:
        names = self._sides[0].graph.results[0].leaf_paths("result")
        leaves = self._first.graph.results[1], self._second.graph.results[1]
        for name, *of_both in zip(names, first.results, second.results, *leaves, strict=True):
            yield self._end("result", name, *of_both)

    def _updates(self, first: Outcome, second: Outcome) -> Iterator[Row]:
        contents = [
            _contents(side.graph, run) for side, run in ((self._first, first), (self._second, second))
        ]
        for name in dict.fromkeys([*contents[0], *contents[1]]):
            (left, item), (right, other) = (found.get(name, (None, _NOT_THERE)) for found in contents)
            yield self._end("update", name, item, other, left, right)

    def _end(self, kind: str, name: str, left: Any, right: Any, left_leaf: Any, right_leaf: Any) -> Row:
        """Return the row of a result or update, given its items and leaves of the first and second side."""
        items, leaves = self._swapped(left, right), self._swapped(left_leaf, right_leaf)
        a, b = (_seen(side, item) for side, item in zip(self._sides, items, strict=True))
        row = row_of(kind, name, *leaves, a)
        if _NOT_THERE in (left, right):
            who = "b" if items[0] is _NOT_THERE else "a"
            return row_of(kind, name, *leaves, None, problem=f"only {who} updates it")
        row = self._judge.judged(
            row, a, b, self._reference(left_leaf), same_strides=have_same_strides(*leaves)
        )
        is_of_node = isinstance(leaves[1], Value) and leaves[1].producer is not None
        if row.diverges and self.finding is None and is_of_node:
            self.finding = Finding(row, leaves[1], a.item, b.item)
        return row

    def _gaps(self) -> list[str]:
        """Return notes on the values that the float64 run lacks."""
        if not self._references:
            return []
        reasons = Counter(self._references[0].missing.values())
        return [f"no noise floor for {count:,} of the values: {reason}" for reason, count in reasons.items()]


def _seen(side: Side, item: Any) -> Seen:
    return Seen.of(item, exact=side.is_exact, strided=side.shows_strides)


def _is_used(pair: Pair) -> bool:
    return bool(pair.left.use_count and pair.right.use_count)


def _is_there(value: Value, item: Any) -> bool:
    """Return whether an observer got a value: a backend does not show the inner ones of a partition."""
    return item is not None or not isinstance(value.type, TensorType)


def _count(graph: Graph) -> int:
    return sum(bool(value.use_count) for node in graph.nodes for value in node.outputs)


def _contents(graph: Graph, outcome: Outcome) -> dict[str, tuple[Value, Any]]:
    """Return the updates by their first name: the value in the graph, and the content after the run."""
    updates = {}
    for target, value in graph.updates.items():
        names = outside_names(target)
        content = next((outcome.updates[name] for name in names if name in outcome.updates), _NOT_THERE)
        updates[names[0]] = value, content
    return updates

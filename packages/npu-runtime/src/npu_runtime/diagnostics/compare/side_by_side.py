"""The run of a comparison: values of the second side are compared with those of the first while it runs."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_ir.core.node import NO_PROVENANCE, external_names
from npu_ir.interpreter.run_nodes import Observer
from npu_ir.ops.effects import find_uninitialized_values
from npu_ir.verify.reference import clone_tensors
from npu_runtime.diagnostics.compare.alignment import Pair, align
from npu_runtime.diagnostics.compare.comparison import Comparison, Row
from npu_runtime.diagnostics.compare.float64_run import Float64Run, Missing, is_random_or_discontinuous
from npu_runtime.diagnostics.compare.metrics import UNKNOWN
from npu_runtime.diagnostics.compare.reproduction import Finding
from npu_runtime.diagnostics.compare.sides import ExecutorSide, Outcome, Side, device_of
from npu_runtime.diagnostics.compare.verdicts import Judge, Reference, SideValue

_ABSENT = object()
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
        self._first, self._second = self._swap(a, b)
        self._sides = a, b
        self._call = call
        self._judge = judge
        pairs = align(self._first.graph, self._second.graph)
        passed_over = find_uninitialized_values(self._first.graph) | find_uninitialized_values(
            self._second.graph
        )
        self._pairs = [
            pair for pair in pairs if _is_used(pair) and passed_over.isdisjoint((pair.left, pair.right))
        ]
        self._remaining = Counter(pair.left.name for pair in self._pairs)  # pairs not compared yet, by value
        self._first_values: dict[str, SideValue] = {}
        self._reference_values: dict[str, Reference] = {}
        self._side_values: dict[str, Any] = {}
        self._float64_runs = self._make_float64_runs()
        self._rows: dict[tuple[int, int], Row] = {}
        self.finding: Finding | None = None
        self._found_at: tuple[float, float] = math.inf, math.inf

    def compare(self) -> Comparison:
        """Run both sides, and return the result."""
        random_state = torch.get_rng_state()
        first = self._run(self._first, self._storing_observer())
        torch.set_rng_state(random_state)
        second = self._run(self._second, self._comparing_observer())
        rows = [self._rows[order] for order in sorted(self._rows)]
        rows += self._result_rows(first, second)
        rows += self._update_rows(first, second)
        a, b = self._sides
        notes = (*first.notes, *second.notes, *self._missing_notes())
        return Comparison(
            a.label, b.label, tuple(rows), _count_used_values(a.graph), _count_used_values(b.graph), notes
        )

    def _run(self, side: Side, observe: Observer) -> Outcome:
        args, kwargs = clone_tensors(self._call)
        return side.run(args, kwargs, observe)

    def _swap(self, left: Any, right: Any) -> tuple[Any, Any]:
        """Convert a pair of sides a and b to one in the order of the runs, or back."""
        return (right, left) if self._is_swapped else (left, right)

    def _make_float64_runs(self) -> tuple[Float64Run, ...]:
        """Return the exact run in float64 and the one with rounding; none if a side is in float64 itself."""
        if self._first.is_exact or self._second.is_exact:
            return ()
        bound = self._first.bind_arguments(*self._call)
        wanted = list(self._remaining)
        device = device_of(bound)
        generators = None, torch.Generator().manual_seed(0)
        return tuple(
            Float64Run(self._first.graph, bound, wanted, device, self._side_values, generator)
            for generator in generators
        )

    # While they run

    def _storing_observer(self) -> Observer:
        """Return an observer that stores the values of the first side that are compared later."""
        aligned = set(self._remaining)

        def observe(node: OpNode, outputs: list[Any]) -> None:
            decided = is_random_or_discontinuous(node)
            for value, item in zip(node.outputs, outputs, strict=True):
                if not _is_observed(value, item) or not (decided or value.name in aligned):
                    continue
                current = _side_value(self._first, item)
                if value.name in aligned:
                    self._first_values[value.name] = current
                if decided:
                    self._side_values[value.name] = current.item

        return observe

    def _comparing_observer(self) -> Observer:
        """Return an observer that compares the values of the second side with the stored ones."""
        waiting: dict[str, list[Pair]] = {}
        for pair in self._pairs:
            waiting.setdefault(pair.right.name, []).append(pair)

        def observe(node: OpNode, outputs: list[Any]) -> None:
            for value, item in zip(node.outputs, outputs, strict=True):
                pairs = waiting.pop(value.name, ()) if _is_observed(value, item) else ()
                current = _side_value(self._second, item)
                for pair in pairs:
                    if pair.left.name in self._first_values:
                        self._compare_pair(pair, current)

        return observe

    def _compare_pair(self, pair: Pair, current: SideValue) -> None:
        stored, reference = self._take(pair.left)
        values, items = self._swap(pair.left, pair.right), self._swap(stored, current)
        row = make_row("value", values[0].name, *values, items[0])
        row = self._judge.judge(row, *items, reference, same_strides=have_same_strides(*values))
        self._rows[pair.order] = row
        if row.diverges and pair.order < self._found_at:
            self._found_at = pair.order
            self.finding = Finding(row, values[1], *(clone_tensors(item.item) for item in items))

    def _take(self, value: Value) -> tuple[SideValue, Reference]:
        """Return the values of the first side and the float64 runs; the last pair releases them."""
        name = value.name
        if name not in self._reference_values:
            self._reference_values[name] = self._reference(value)
        self._remaining[name] -= 1
        if self._remaining[name]:
            return self._first_values[name], self._reference_values[name]
        return self._first_values.pop(name), self._reference_values.pop(name)

    def _reference(self, leaf: Any) -> Reference:
        """Return the float64 values of a value, or a leaf of the results, of the first side."""
        if not self._float64_runs:
            return Reference(_NO_RUN, _NO_RUN)
        return Reference(*(run.take(leaf) if isinstance(leaf, Value) else leaf for run in self._float64_runs))

    # When both have run

    def _result_rows(self, first: Outcome, second: Outcome) -> Iterator[Row]:
        names = self._sides[0].graph.results[0].leaf_paths("result")
        leaves = self._first.graph.results[1], self._second.graph.results[1]
        for name, *of_both in zip(names, first.results, second.results, *leaves, strict=True):
            yield self._final_row("result", name, *of_both)

    def _update_rows(self, first: Outcome, second: Outcome) -> Iterator[Row]:
        contents = [
            _update_contents(side.graph, run) for side, run in ((self._first, first), (self._second, second))
        ]
        for name in dict.fromkeys([*contents[0], *contents[1]]):
            (left, item), (right, other) = (found.get(name, (None, _ABSENT)) for found in contents)
            yield self._final_row("update", name, item, other, left, right)

    def _final_row(self, kind: str, name: str, left: Any, right: Any, left_leaf: Any, right_leaf: Any) -> Row:
        """Return the row of a result or update, given its items and leaves of the first and second side."""
        items, leaves = self._swap(left, right), self._swap(left_leaf, right_leaf)
        a, b = (_side_value(side, item) for side, item in zip(self._sides, items, strict=True))
        row = make_row(kind, name, *leaves, a)
        if _ABSENT in (left, right):
            who = "b" if items[0] is _ABSENT else "a"
            return make_row(kind, name, *leaves, None, problem=f"only {who} updates it")
        row = self._judge.judge(
            row, a, b, self._reference(left_leaf), same_strides=have_same_strides(*leaves)
        )
        is_of_node = isinstance(leaves[1], Value) and leaves[1].producer is not None
        if row.diverges and self.finding is None and is_of_node:
            self.finding = Finding(row, leaves[1], a.item, b.item)
        return row

    def _missing_notes(self) -> list[str]:
        """Return notes on the values that the float64 run lacks."""
        if not self._float64_runs:
            return []
        reasons = Counter(self._float64_runs[0].missing.values())
        return [f"no noise floor for {count:,} of the values: {reason}" for reason, count in reasons.items()]


def _side_value(side: Side, item: Any) -> SideValue:
    return SideValue.from_item(item, exact=side.is_exact, strided=side.shows_strides)


def _is_used(pair: Pair) -> bool:
    return bool(pair.left.use_count and pair.right.use_count)


def _is_observed(value: Value, item: Any) -> bool:
    """Return whether an observer got a value: a backend does not show the inner ones of a partition."""
    return item is not None or not isinstance(value.type, TensorType)


def _count_used_values(graph: Graph) -> int:
    return sum(bool(value.use_count) for node in graph.nodes for value in node.outputs)


def _update_contents(graph: Graph, outcome: Outcome) -> dict[str, tuple[Value, Any]]:
    """Return the updates by their first name: the value in the graph, and the content after the run."""
    updates = {}
    for target, value in graph.updates.items():
        names = external_names(target)
        content = next((outcome.updates[name] for name in names if name in outcome.updates), _ABSENT)
        updates[names[0]] = value, content
    return updates


def make_row(kind: str, name: str, a: Any, b: Any, side: SideValue | None, problem: str | None = None) -> Row:
    """Return a row for two values or literals, without a difference; its type is that of side a."""
    mine, others = (leaf.producer if isinstance(leaf, Value) else None for leaf in (a, b))
    origin = next((node.provenance for node in (mine, others) if node is not None), NO_PROVENANCE)
    return Row(
        kind=kind,
        name=name,
        counterpart=b.name if isinstance(b, Value) else "",
        op="" if mine is None else mine.op_type,
        counterpart_op="" if others is None else others.op_type,
        module=origin.module,
        source=origin.source,
        type="" if side is None else _type_text(side),
        difference=UNKNOWN,
        problem=problem,
    )


def have_same_strides(a: Any, b: Any) -> bool:
    """Return whether the same op computes both, and both graphs declare the same strides."""
    if not (isinstance(a, Value) and isinstance(b, Value)) or a.producer is None or b.producer is None:
        return False
    if not (isinstance(a.type, TensorType) and isinstance(b.type, TensorType)):
        return False
    return a.producer.op_type == b.producer.op_type and a.type.strides == b.type.strides


def _type_text(side: SideValue) -> str:
    return side.item.__class__.__name__ if side.type is None else str(side.type)

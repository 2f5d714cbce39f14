"""Changes other than nodes: symbols, constraints, arguments, the call, updates, results."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from npu_ir.core.literals import same_literal
from npu_ir.core.node import InputKind, Value
from npu_ir.core.tensor_bytes import same_data
from npu_ir.diff.entries import LineDiff
from npu_ir.diff.node_matches import Matching
from npu_ir.text.printer import format_argument, format_call, format_leaf, format_results, format_update

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


def changed_lines(a: Graph, b: Graph, matching: Matching) -> Iterator[LineDiff]:
    """Yield the changes other than nodes, in the order of the text form."""
    if a.owner is None:  # a region has the symbols of the graph that contains it
        yield from _symbols(a, b)
    yield from _constraints(a, b)
    yield from _arguments(a, b, matching)
    same_leaves = all(_is_same_leaf(*pair, matching) for pair in zip(a.call[1], b.call[1], strict=False))
    if a.call[0] != b.call[0] or len(a.call[1]) != len(b.call[1]) or not same_leaves:
        yield LineDiff("call", "", format_call(a), format_call(b), ("call",))
    yield from _updates(a, b, matching)
    yield from _results(a, b, matching)


def _symbols(a: Graph, b: Graph) -> Iterator[LineDiff]:
    for name in {**a.symbols, **b.symbols}:
        if a.symbols.get(name) != b.symbols.get(name):
            lines = [
                f"symbol {name} in {graph.symbols[name]}" if name in graph.symbols else None
                for graph in (a, b)
            ]
            yield LineDiff("symbol", name, lines[0], lines[1], ("range",))


def _constraints(a: Graph, b: Graph) -> Iterator[LineDiff]:
    before, after = (Counter(map(str, graph.constraints)) for graph in (a, b))
    for text in (before - after).elements():
        yield LineDiff("require", text, f"require {text}", None)
    for text in (after - before).elements():
        yield LineDiff("require", text, None, f"require {text}")


def _arguments(a: Graph, b: Graph, matching: Matching) -> Iterator[LineDiff]:
    for value in a.arguments:
        other = matching.values.get(value)
        changes = (
            () if other is None else tuple(_argument_changes(value, other, in_region=a.owner is not None))
        )
        if other is None or changes:
            yield _argument(value, other, changes)
    known = {matching.values.get(value) for value in a.arguments}
    yield from (_argument(None, value, ()) for value in b.arguments if value not in known)


def _argument(value: Value | None, other: Value | None, changes: tuple[str, ...]) -> LineDiff:
    lines = [None if item is None else format_argument(item) for item in (value, other)]
    last = other or value
    assert last is not None
    assert last.argument is not None
    return LineDiff(last.argument.kind.value, last.name, lines[0], lines[1], changes)


def _argument_changes(value: Value, other: Value, *, in_region: bool) -> Iterator[str]:
    mine, its = value.argument, other.argument
    assert mine is not None
    assert its is not None
    if mine.kind is not its.kind:
        yield "kind"
    if value.type != other.type:
        yield "type"
    if mine.target != its.target and not in_region and its.kind is not InputKind.CONSTANT:
        yield "target"
    if mine.aliases != its.aliases:
        yield "aliases"
    if mine.persistent != its.persistent:
        yield "persistent"
    if mine.overlaps != its.overlaps:
        yield "overlaps"
    if not same_data(mine.data, its.data):
        yield "data"


def _updates(a: Graph, b: Graph, matching: Matching) -> Iterator[LineDiff]:
    after = dict(b.updates)
    for target, value in a.updates.items():
        other = matching.values.get(target)
        new = None if other is None else after.pop(other, None)
        if new is None or not matching.matches(value, new):
            line = None if other is None or new is None else format_update(b, other)
            yield LineDiff("update", target.name, format_update(a, target), line, ("value",))
    yield from (LineDiff("update", target.name, None, format_update(b, target)) for target in after)


def _results(a: Graph, b: Graph, matching: Matching) -> Iterator[LineDiff]:
    if a.results[0] != b.results[0]:
        yield LineDiff("return", "", format_results(a), format_results(b), ("structure",))
        return
    paths = a.results[0].leaf_paths("result")
    for path, mine, other in zip(paths, a.results[1], b.results[1], strict=True):
        if not _is_same_leaf(mine, other, matching):
            lines = [f"return {path} = {format_leaf(leaf)}" for leaf in (mine, other)]
            yield LineDiff("return", path, lines[0], lines[1], ("value",))


def _is_same_leaf(mine: Any, other: Any, matching: Matching) -> bool:
    if isinstance(mine, Value) and isinstance(other, Value):
        return matching.matches(mine, other)
    return not isinstance(mine, Value) and not isinstance(other, Value) and same_literal(mine, other)

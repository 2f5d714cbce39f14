"""The difference of two graphs as text in the style of ``diff``, and as JSON data."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from itertools import groupby
from typing import TYPE_CHECKING, Any

from npu_ir.diff.entries import LineDiff, NodeDiff, Status
from npu_ir.graph.graph import Graph
from npu_ir.text.printer import format_node, format_nodes

if TYPE_CHECKING:
    from npu_ir.diff.graph_diff import GraphDiff

_KINDS_AFTER_NODES = ("update", "return")  # kinds of line that follow the nodes in the text form
_ORDER = (Status.REMOVED, Status.ADDED, Status.CHANGED, Status.UNCHANGED)
_MAX_RENAMES = 6
_MAX_OPS = 12


def diff_text(diff: GraphDiff) -> str:
    """Return the changes as lines of the text form, and a summary."""
    if diff.is_same:
        return f"a and b are the same graph{_renames_text(diff)}"
    heads = [f"--- a: {_size_text(diff.a)}", f"+++ b: {_size_text(diff.b)}"]
    return "\n".join([*heads, *_body(diff), "", summary_text(diff)])


def summary_text(diff: GraphDiff) -> str:
    """Return a summary of the changes in a few lines."""
    if diff.is_same:
        return diff_text(diff)
    before, after = (sum(map(len, graph.graphs())) for graph in (diff.a, diff.b))
    merged = f" ({diff.num_merged:,} merged into others)" if diff.num_merged else ""
    words = {**{status: status.value for status in _ORDER}, Status.REMOVED: f"removed{merged}"}
    counts = ", ".join(f"{diff.count(status):,} {word}" for status, word in words.items())
    lines = [f"a and b differ: nodes {before:,} -> {after:,}: {counts}"]
    if diff.lines:
        groups = groupby(sorted((line.kind, line.status.value) for line in diff.lines))
        texts = [f"{len(list(same))} {kind} {what}" for (kind, what), same in groups]
        lines.append(f"others: {', '.join(texts)}")
    if diff.ops:
        shown = [f"{op} {before:,} -> {after:,}" for op, (before, after) in diff.ops.items()]
        left_out = [f"and {len(shown) - _MAX_OPS} others"] if len(shown) > _MAX_OPS else []
        lines.append(f"ops: {', '.join([*shown[:_MAX_OPS], *left_out])}")
    if diff.renames:
        lines.append(f"{len(diff.renames):,} renamed{_renames_text(diff, ': ')}")
    return "\n".join(lines)


def _renames_text(diff: GraphDiff, start: str = ", but for names: ") -> str:
    if not diff.renames:
        return ""
    shown = [f"{before} -> {after}" for before, after in diff.renames[:_MAX_RENAMES]]
    return start + ", ".join([*shown, *(["..."] if len(diff.renames) > len(shown) else [])])


def _size_text(graph: Graph) -> str:
    prologue = f", {len(graph.prologue):,} of them in the prologue" if graph.prologue else ""
    return f"{graph.name}, {len(graph):,} node{'' if len(graph) == 1 else 's'}{prologue}"


def _body(diff: GraphDiff) -> Iterator[str]:
    first = [line for line in diff.lines if line.kind not in _KINDS_AFTER_NODES]
    yield from itertools.chain.from_iterable(map(_line_text, first))
    for section, nodes in groupby(diff.nodes, _section):
        if diff.a.prologue or diff.b.prologue:
            yield f"@@ {section} @@"
        for is_unchanged, group in groupby(nodes, lambda node: node.status is Status.UNCHANGED):
            if is_unchanged:
                count = len(list(group))
                yield f"  ... {count:,} unchanged node{'' if count == 1 else 's'}"
            else:
                yield from _hunk(list(group))
    last = [line for line in diff.lines if line.kind in _KINDS_AFTER_NODES]
    yield from itertools.chain.from_iterable(map(_line_text, last))


def _section(item: NodeDiff) -> str:
    node = item.b or item.a
    assert node is not None
    return "prologue" if node.in_prologue else "body"


def _line_text(item: LineDiff) -> Iterator[str]:
    note = f"  # changed: {', '.join(item.changes)}" if item.status is Status.CHANGED else ""
    yield from _change_text([item.a] if item.a else [], [item.b] if item.b else [], note)


def _hunk(items: Sequence[NodeDiff]) -> Iterator[str]:
    """Yield the lines of consecutive changed nodes; merged ones directly before the node they merged into."""
    whole = {item.name: item for item in items if item.b is not None and not item.b.regions}
    for item in items:
        if item.merged_into in whole:
            continue
        merged = [part for part in items if part.merged_into == item.name and whole.get(item.name) is item]
        if merged and item.a is not None:
            yield from _merged_text([part for part in items if part in merged or part is item], item)
        else:
            yield from (text for part in (*merged, item) for text in _node_text(part))


def _merged_text(parts: Sequence[NodeDiff], item: NodeDiff) -> Iterator[str]:
    """Yield the nodes that merged into ``item``, its old form among them, and then its new form."""
    for part in parts:
        yield from _node_text(NodeDiff(item.a, None) if part is item else part)
    yield from _node_text(NodeDiff(None, item.b, item.changes, item.was))


def _node_text(item: NodeDiff) -> Iterator[str]:
    notes = [f"changed: {', '.join(item.changes)}"] if item.changes else []
    notes += [f"was: {', '.join(item.was)}"] if item.was else []
    notes += [f"merged into {item.merged_into}"] if item.merged_into else []
    note = f"  # {'; '.join(notes)}" if notes else ""
    if item.a is None or item.b is None:
        before, after = ([] if node is None else list(format_nodes([node])) for node in (item.a, item.b))
        yield from _change_text(before, after, note)
        return
    yield from _change_text([format_node(item.a)], [format_node(item.b)], note)
    for name, region in item.regions.items():
        yield f"  region {name}:"
        yield from (f"    {line}" for line in _body(region))


def _change_text(before: list[str], after: list[str], note: str) -> Iterator[str]:
    """Yield removed and added lines; the note follows the first added line, or else the first removed one."""
    if before == after:
        yield f"~ {after[0]}{note}"
        return
    yield from _mark_lines("-", before, "" if after else note)
    yield from _mark_lines("+", after, note)


def _mark_lines(mark: str, lines: Iterable[str], note: str) -> Iterator[str]:
    for index, line in enumerate(lines):
        yield f"{mark} {line}{note if index == 0 else ''}"


def diff_data(diff: GraphDiff) -> dict[str, Any]:
    return {
        "same": diff.is_same,
        "a": {"name": diff.a.name, "nodes": len(diff.a)},
        "b": {"name": diff.b.name, "nodes": len(diff.b)},
        "counts": {**{status.value: diff.count(status) for status in Status}, "merged": diff.num_merged},
        "ops": {op: list(counts) for op, counts in diff.ops.items()},
        "nodes": [_node_data(node) for node in diff.nodes if node.status is not Status.UNCHANGED],
        "lines": [
            {"status": line.status.value, **asdict(line), "changes": list(line.changes)}
            for line in diff.lines
        ],
        "renames": [list(pair) for pair in diff.renames],
    }


def _node_data(item: NodeDiff) -> dict[str, Any]:
    return {
        "status": item.status.value,
        "name": item.name,
        "a": None if item.a is None else format_node(item.a),
        "b": None if item.b is None else format_node(item.b),
        "changes": list(item.changes),
        "was": list(item.was),
        "merged_into": item.merged_into,
        "regions": {name: diff_data(region) for name, region in item.regions.items()},
    }

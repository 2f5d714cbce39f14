"""Construction of the difference of two graphs: of their nodes, and of the other lines of the text form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npu_ir.core.literals import same_literal
from npu_ir.core.node import InputKind, OpNode, Value
from npu_ir.core.tensor_bytes import same_data
from npu_ir.diff.entries import LineDiff, NodeDiff
from npu_ir.diff.graph_diff import GraphDiff
from npu_ir.diff.node_matches import Matching
from npu_ir.diff.subsequence import increasing_subsequence
from npu_ir.graph.requirement import require_graph
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
            ranges = [graph.symbols.get(name) for graph in (a, b)]
            before, after = (None if range is None else f"symbol {name} in {range}" for range in ranges)
            yield LineDiff("symbol", name, before, after, ("range",))


def _constraints(a: Graph, b: Graph) -> Iterator[LineDiff]:
    before, after = (Counter(map(str, graph.constraints)) for graph in (a, b))
    for text in (before - after).elements():
        yield LineDiff("require", text, f"require {text}", None)
    for text in (after - before).elements():
        yield LineDiff("require", text, None, f"require {text}")


def _arguments(a: Graph, b: Graph, matching: Matching) -> Iterator[LineDiff]:
    known = {matching.values.get(value) for value in a.arguments}
    pairs = [(value, matching.values.get(value)) for value in a.arguments]
    for value, other in (*pairs, *((None, value) for value in b.arguments if value not in known)):
        last = other or value
        assert last is not None
        assert last.argument is not None
        changes: tuple[str, ...] = ()
        if value is not None and other is not None:
            changes = tuple(_argument_changes(value, other, in_region=a.owner is not None))
        if changes or value is None or other is None:
            lines = [None if item is None else format_argument(item) for item in (value, other)]
            yield LineDiff(last.argument.kind.value, last.name, lines[0], lines[1], changes)


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
    fields = ("aliases", "persistent", "overlaps")
    yield from (field for field in fields if getattr(mine, field) != getattr(its, field))
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


def diff_ir(a: Graph, b: Graph) -> GraphDiff:
    """Return the difference of ``b`` from ``a``: nodes, arguments, results, updates, symbols.

    Nodes are matched by their computation, their connections, the origins that rewrites record, their names
    and their order, as `npu_ir.diff.node_matches` describes; so renaming is not a change. The differences
    between matched nodes are exact; the matching is a heuristic where much has changed. Takes linear time
    where the graphs are alike.
    """
    require_graph(a)
    require_graph(b)
    matching = Matching(a, b)
    nodes, lines = tuple(_node_diffs(a, b, matching)), tuple(changed_lines(a, b, matching))
    return GraphDiff(a, b, nodes, lines, MappingProxyType(matching.values), tuple(_renames(a, b, matching)))


def _node_diffs(a: Graph, b: Graph, matching: Matching) -> Iterator[NodeDiff]:
    """Yield every node of both graphs: removed ones before their successors, or at what they merged into."""
    partners = {other: node for node, other in matching.nodes.items()}
    position = {node: index for index, node in enumerate(b.nodes)}
    # A longest increasing subsequence keeps its order; the fewest possible other nodes count as moved.
    in_order = increasing_subsequence(
        [position[matching.nodes[node]] for node in a.nodes if node in matching.nodes]
    )
    merged: dict[OpNode, list[OpNode]] = {}
    for node in a.nodes:
        if node in matching.claims:
            merged.setdefault(matching.claims[node], []).append(node)
    # Unmatched nodes, interleaved with the nodes in order: both graphs have these in one order, so that one
    # pass over each suffices.
    gone = iter(
        [node for node in a.nodes if node not in matching.nodes or position[matching.nodes[node]] in in_order]
    )
    for other in b.nodes:
        mine = partners.get(other)
        if position[other] in in_order:
            for node in iter(gone.__next__, mine):
                if node not in matching.claims:
                    yield NodeDiff(node, None)
        was = merged.get(other, [])
        at = was.index(mine) if mine in was else len(was)
        yield from (NodeDiff(node, None, merged_into=other.name) for node in was[:at])
        yield _node_diff(mine, other, was, matching, moved=position[other] not in in_order)
        yield from (NodeDiff(node, None, merged_into=other.name) for node in was[at + 1 :])
    yield from (NodeDiff(node, None) for node in gone if node not in matching.claims)


def _node_diff(
    mine: OpNode | None, other: OpNode, merged: Sequence[OpNode], matching: Matching, *, moved: bool
) -> NodeDiff:
    was = tuple(node.name for node in merged) if any(node is not mine for node in merged) else ()
    if mine is None:
        return NodeDiff(None, other, was=was)
    both = [name for name in mine.regions if name in other.regions]
    diffs = {name: diff_ir(mine.regions[name], other.regions[name]) for name in both}
    regions = {name: diff for name, diff in diffs.items() if not diff.is_same}
    changes = (*_changed_names(mine, other, matching), *(("order",) if moved else ()), *regions)
    return NodeDiff(mine, other, changes, was, regions=regions)


def _changed_names(mine: OpNode, other: OpNode, matching: Matching) -> Iterator[str]:
    """Yield the names of the differences between two nodes, except order and region contents."""
    if mine.op_type != other.op_type:
        yield "op"
    inputs, others = _inputs_by_operand(mine), _inputs_by_operand(other)
    attrs = {**mine.attrs, **other.attrs}
    for name in {**inputs, **others, **attrs}:
        before, after = inputs.get(name, ()), others.get(name, ())
        same_input = len(before) == len(after) and all(map(matching.matches, before, after))
        if not same_input or not _is_same_attr(mine.attrs, other.attrs, name):
            yield name
    if mine.operands != other.operands and inputs.keys() == others.keys():
        yield "operands"
    if [value.type for value in mine.outputs] != [value.type for value in other.outputs]:
        yield "type"
    if mine.in_prologue != other.in_prologue:
        yield "prologue"
    regions = {**mine.regions, **other.regions}
    yield from (name for name in regions if (name in mine.regions) != (name in other.regions))


def _inputs_by_operand(node: OpNode) -> dict[str, list[Value]]:
    """Return the inputs by operand name; ops that PyTorch does not know may have several of one name."""
    names: Sequence[str] = [f"input {index}" for index in range(len(node.inputs))]
    inputs: dict[str, list[Value]] = {}
    for name, value in zip(names if node.operands is None else node.operands, node.inputs, strict=True):
        inputs.setdefault(name, []).append(value)
    return inputs


def _is_same_attr(mine: Mapping[str, Any], others: Mapping[str, Any], name: str) -> bool:
    if name not in mine or name not in others:
        return (name in mine) == (name in others)
    return same_literal(mine[name], others[name])


def _renames(a: Graph, b: Graph, matching: Matching) -> Iterator[tuple[str, str]]:
    if a.name != b.name:
        yield a.name, b.name
    for mine, other in matching.values.items():
        if mine.name != other.name:
            yield mine.name, other.name
    for node, twin in matching.nodes.items():
        if node.name != twin.name and not node.outputs:
            yield node.name, twin.name

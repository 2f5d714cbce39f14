"""Construction of the difference of two graphs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from npu_ir.core.literals import same_literal
from npu_ir.core.node import OpNode, Value
from npu_ir.diff.graph_diff import GraphDiff, NodeDiff
from npu_ir.diff.line_diffs import changed_lines
from npu_ir.diff.node_matches import Matching
from npu_ir.diff.subsequence import increasing_subsequence

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph


def diff_ir(a: Graph, b: Graph) -> GraphDiff:
    """Return the difference of two graphs: nodes, arguments, results, updates, symbols.

    Nodes are matched by their computation, their connections, the origins that rewrites record, their names
    and their order, as `npu_ir.diff.node_matches` describes; so renaming is not a change. The differences
    between matched nodes are exact; the matching is a heuristic where much has changed. Takes linear time
    where the graphs are alike.

    Args:
        a: The graph before.
        b: The graph after.
    """
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
    regions = _region_diffs(mine, other)
    changes = (*_changed_names(mine, other, matching), *(("order",) if moved else ()), *regions)
    return NodeDiff(mine, other, changes, was, regions=regions)


def _changed_names(mine: OpNode, other: OpNode, matching: Matching) -> Iterator[str]:
    """Yield the names of the differences between two nodes, except order and region contents."""
    if mine.op_type != other.op_type:
        yield "op"
    inputs, others = _inputs_by_operand(mine), _inputs_by_operand(other)
    attrs = {**mine.attrs, **other.attrs}
    for name in {**inputs, **others, **attrs}:
        same_input = _is_same_input(inputs.get(name), others.get(name), matching)
        if not same_input or not _is_same_attr(mine.attrs, other.attrs, name):
            yield name
    if mine.operands != other.operands and inputs.keys() == others.keys():
        yield "operands"
    if [value.type for value in mine.outputs] != [value.type for value in other.outputs]:
        yield "type"
    if mine.in_prologue != other.in_prologue:
        yield "prologue"
    yield from (
        name
        for name in {**mine.regions, **other.regions}
        if (name in mine.regions) != (name in other.regions)
    )


def _inputs_by_operand(node: OpNode) -> dict[str, Value]:
    names: Sequence[str] = [f"input {index}" for index in range(len(node.inputs))]
    return dict(zip(names if node.operands is None else node.operands, node.inputs, strict=True))


def _is_same_input(mine: Value | None, other: Value | None, matching: Matching) -> bool:
    if mine is None or other is None:
        return mine is other
    return matching.matches(mine, other)


def _is_same_attr(mine: Mapping[str, Any], others: Mapping[str, Any], name: str) -> bool:
    if name not in mine or name not in others:
        return (name in mine) == (name in others)
    return same_literal(mine[name], others[name])


def _region_diffs(mine: OpNode, other: OpNode) -> dict[str, GraphDiff]:
    both = [name for name in mine.regions if name in other.regions]
    diffs = {name: diff_ir(mine.regions[name], other.regions[name]) for name in both}
    return {name: diff for name, diff in diffs.items() if not diff.is_same}


def _renames(a: Graph, b: Graph, matching: Matching) -> Iterator[tuple[str, str]]:
    if a.name != b.name:
        yield a.name, b.name
    for mine, other in matching.values.items():
        if mine.name != other.name:
            yield mine.name, other.name
    for node, twin in matching.nodes.items():
        if node.name != twin.name and not node.outputs:
            yield node.name, twin.name

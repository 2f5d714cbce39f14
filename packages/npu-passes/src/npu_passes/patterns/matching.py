"""Finding the nodes that a pattern describes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from npu_ir import Graph, OpNode, Value
from npu_ir.ops.schema import find_op, schema_of
from npu_passes.arguments import arguments_of, schema_defaults
from npu_passes.patterns.terms import Attr, Call, Term, Var


@dataclass(slots=True)
class Match:
    """What a pattern stands for in a graph.

    Attributes:
        graph: The graph.
        root: The node of the outermost call.
        bound: Values and plain data by the names of the wildcards.
        nodes: The nodes of all calls, in the order of the graph's data flow: the root is last.
        kept: Those of them that may be read elsewhere, too.
    """

    graph: Graph
    root: OpNode
    bound: dict[str, Any] = field(default_factory=dict)
    nodes: dict[OpNode, None] = field(default_factory=dict)
    kept: set[OpNode] = field(default_factory=set)

    def __getitem__(self, name: str) -> Any:
        return self.bound[name]

    def copy(self) -> Match:
        return Match(self.graph, self.root, dict(self.bound), dict(self.nodes), set(self.kept))

    def take(self, other: Match) -> None:
        self.bound, self.nodes, self.kept = other.bound, other.nodes, other.kept

    def read_elsewhere(self) -> Value | None:
        """Return a value inside the match that something outside reads, too; None if there is none."""
        for node in self.nodes:
            if node is self.root or node in self.kept:
                continue
            for value in node.outputs:
                if any(user is None or user not in self.nodes for user, _ in value.uses):
                    return value
        return None


def match_call(graph: Graph, node: OpNode, pattern: Call) -> Match | None:
    """Return what ``pattern`` stands for if its outermost call is ``node``; None where it does not match."""
    match = Match(graph, node)
    return match if _matches_node(match, node, pattern) else None


def _matches_node(match: Match, node: OpNode, pattern: Call) -> bool:
    if node.op_type != pattern.op_type or node.graph is not match.graph or pattern.index >= len(node.outputs):
        return False
    given, defaults = _arguments(node)
    if not pattern.open and not all(
        name in pattern.args or _equal(item, defaults.get(name)) for name, item in given.items()
    ):
        return False
    for terms in _orders(pattern):
        trial = match.copy()
        if all(_matches(trial, given.get(name, defaults.get(name)), term) for name, term in terms.items()):
            trial.nodes[node] = None
            if pattern.shared:
                trial.kept.add(node)
            match.take(trial)
            return True
    return False


def _orders(pattern: Call) -> Iterator[Mapping[str, Term]]:
    """Yield the arguments of a call, then with the first two swapped where that is the same."""
    yield pattern.args
    if pattern.commutative:
        (first, one), (second, other), *rest = pattern.args.items()
        yield {first: other, second: one, **dict(rest)}


def _matches(match: Match, item: Any, term: Term) -> bool:
    if isinstance(term, Call):
        if not isinstance(item, Value) or item.producer is None or item.index != term.index:
            return False
        return _matches_node(match, item.producer, term)
    if isinstance(term, (Var, Attr)):
        if isinstance(item, Value) is not isinstance(term, Var):
            return False
        if term.name in match.bound:
            return _equal(item, match.bound[term.name])
        if term.where is not None and not term.where(item):
            return False
        match.bound[term.name] = item
        return True
    if isinstance(term, (list, tuple)):
        return (
            isinstance(item, list)
            and len(item) == len(term)
            and all(_matches(match, *pair) for pair in zip(item, term, strict=True))
        )
    return _equal(item, term)


def _equal(left: Any, right: Any) -> bool:
    """Whether two arguments are the same: one value, or equal data; 1 equals 1.0, but not True."""
    if isinstance(left, Value) or isinstance(right, Value):
        return left is right
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(_equal, left, right))
    return isinstance(left, bool) is isinstance(right, bool) and left == right


def _arguments(node: OpNode) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the arguments of a node that are given, and those that it has by default."""
    op = find_op(node.op_type)
    if op is not None:
        return arguments_of(node), schema_defaults(schema_of(op))
    by_position = {str(index): value for index, value in enumerate(node.inputs)}
    return {**by_position, **node.attrs}, {}

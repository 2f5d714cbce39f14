"""Matcher of patterns against the nodes of a graph.

Choices arise only from ``one_of`` and ``commutative``, so the cost is bounded by the pattern, not the graph.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from npu_ir import Graph, OpNode, Value
from npu_ir.ops.schema import find_op
from npu_passes.errors import PassError
from npu_passes.patterns.terms import Call, Kind, OneOf, Term, Wildcard, subterms
from npu_passes.rewriting.arguments import arguments_of, defaults_of

# An argument, and the term that it has to match.
Goal: TypeAlias = "tuple[Any, Term]"


@dataclass(slots=True)
class Match:
    """One occurrence of a pattern in a graph.

    Attributes:
        graph: The graph.
        root: The node of the outermost call.
        bound: The values and plain data that wildcards matched, by name.
        nodes: The nodes of all calls in topological order: the root is last.
        kept: Those of them that may be read outside the match, too.
    """

    graph: Graph
    root: OpNode
    bound: dict[str, Any] = field(default_factory=dict)
    nodes: tuple[OpNode, ...] = ()
    kept: frozenset[OpNode] = frozenset()

    def __getitem__(self, name: str) -> Any:
        """Return the argument that a wildcard matched.

        Raises:
            PassError: The pattern has no such wildcard.
        """
        if name not in self.bound:
            raise PassError(f"the pattern has no wildcard {name!r}", fix=f"it has {', '.join(self.bound)}")
        return self.bound[name]

    def find_outside_read(self) -> Value | None:
        """Return a value inside the match that is also read outside it; None if there is none.

        A node that is kept for outside reads counts as outside.
        """
        inside: dict[Value, int] = {}  # number of reads by nodes that the rewrite erases
        # Readers before what they read: all inside reads of a node are counted when it is visited.
        for node in reversed(self.nodes):
            outside = [value for value in node.outputs if value.use_count > inside.get(value, 0)]
            if node is not self.root and outside:
                if node not in self.kept:
                    return outside[0]
                continue
            for value in node.inputs:
                inside[value] = inside.get(value, 0) + 1
        return None


def find_matches(graph: Graph, root: OpNode, pattern: Call) -> Iterator[Match]:
    """Yield all matches of ``pattern`` whose outermost call is ``root``.

    There are several if alternatives match, or commuted arguments in both orders. The cost depends only
    on the pattern.
    """
    if pattern.op_type == root.op_type and pattern.index < len(root.outputs):
        search = _GraphSearch(graph)
        for _ in search.solve([(root.outputs[pattern.index], pattern)]):
            # Few roots match, and a pattern with alternatives has thousands of subterms.
            absent = {item.name: None for item in subterms(pattern) if isinstance(item, Wildcard)}
            nodes = _sort_topologically(root, search.nodes)
            yield Match(graph, root, {**absent, **search.bound}, nodes, frozenset(search.kept))


class Search:
    """Depth-first search with backtracking."""

    def __init__(self) -> None:
        self.bound: dict[str, Any] = {}  # the arguments that wildcards matched so far, by name
        self.nodes: dict[OpNode, None] = {}  # the nodes of the calls matched so far
        self.kept: dict[OpNode, None] = {}  # those of them that may be read outside the match, too

    def solve(self, goals: list[Goal]) -> Iterator[None]:
        """Yield for each way to meet all goals, which are taken from the last to the first."""
        entries = [(found, len(found)) for found in (self.bound, self.nodes, self.kept)]
        while goals:
            branches = self.alternatives(*goals.pop())
            if len(branches) != 1:
                for branch in branches:
                    yield from self.solve([*goals, *branch])
                break
            goals += branches[0]
        else:
            yield
        for found, size in entries:
            while len(found) > size:
                found.popitem()

    def alternatives(self, item: Any, term: Term) -> Sequence[Sequence[Goal]]:
        """Return the goals that remain for ``item`` to match ``term``, one list for each alternative."""
        if isinstance(term, OneOf):
            return [[(item, option)] for option in term.options]
        return [[]] if is_equal(item, term) else []


class _GraphSearch(Search):
    def __init__(self, graph: Graph) -> None:
        super().__init__()
        self._graph = graph

    def alternatives(self, item: Any, term: Term) -> Sequence[Sequence[Goal]]:
        if isinstance(term, Call):
            return self._match_call(item, term)
        if isinstance(term, (list, tuple)) and isinstance(item, list) and len(item) == len(term):
            return [list(zip(item, term, strict=True))]
        if isinstance(term, Wildcard):
            return [[]] if self._bind(item, term) else []
        return super().alternatives(item, term)

    def _match_call(self, item: Any, call: Call) -> Sequence[Sequence[Goal]]:
        """Return the goals for the arguments of a call, one list per order, if ``item`` is its output."""
        node = item.producer if isinstance(item, Value) and item.index == call.index else None
        if node is None or node.op_type != call.op_type or node.graph is not self._graph or node.regions:
            return []
        explicit, defaults = split_arguments(node, call)
        if not call.is_open and not all(
            name in call.args or is_equal(argument, defaults.get(name)) for name, argument in explicit.items()
        ):
            return []
        self.nodes[node] = None
        if call.is_shared:
            self.kept[node] = None
        arguments = {**defaults, **explicit}
        orders = [[(arguments.get(name), part) for name, part in call.args.items()]]
        if call.is_commutative and arguments.get("alpha", 1) == 1:  # add(x, y, alpha=2) is x + 2 * y
            (first, one), (second, other), *rest = orders[0]
            orders.append([(first, other), (second, one), *rest])
        return orders

    def _bind(self, item: Any, term: Wildcard) -> bool:
        if term.kind is not Kind.EITHER and isinstance(item, Value) is not (term.kind is Kind.VALUE):
            return False
        if term.name in self.bound and not is_equal(item, self.bound[term.name]):
            return False
        if term.where is not None and not _satisfies(term, item):
            return False
        self.bound[term.name] = item
        return True


def _satisfies(term: Wildcard, item: Any) -> bool:
    assert term.where is not None
    answer = term.where(item)
    if not isinstance(answer, bool):
        raise PassError(
            f"where= of wildcard {term.name!r} returned {answer!r}",
            fix="it returns whether the argument fits",
        )
    return answer


def is_equal(left: Any, right: Any) -> bool:
    """Return whether two arguments are the same value, or equal data.

    1 equals 1.0, but neither equals True; 0.0 does not equal -0.0, and nan equals nan.
    """
    if isinstance(left, Value) or isinstance(right, Value):
        return left is right
    if isinstance(left, (list, tuple)) and isinstance(right, (list, tuple)):
        return len(left) == len(right) and all(map(is_equal, left, right))
    if isinstance(left, bool) is not isinstance(right, bool):
        return False
    if isinstance(left, float) and isinstance(right, float) and math.isnan(left):
        return math.isnan(right)
    return left == right and (left != 0 or _sign(left) == _sign(right))


def _sign(zero: Any) -> float:
    return math.copysign(1.0, zero) if isinstance(zero, (int, float)) else 1.0


def split_arguments(node: OpNode, call: Call) -> tuple[dict[str, Any], Mapping[str, Any]]:
    """Return the explicit arguments of a node, and the defaults of its op."""
    op = find_op(node.op_type)
    if op is not None and call.has_schema:
        return arguments_of(node), defaults_of(op)
    by_position = {str(index): value for index, value in enumerate(node.inputs)}
    return {**by_position, **node.attrs}, {}


def _sort_topologically(root: OpNode, nodes: Mapping[OpNode, None]) -> tuple[OpNode, ...]:
    """Return ``root`` and the nodes that it reads, in topological order."""
    order: dict[OpNode, None] = {}

    def visit(node: OpNode) -> None:
        for value in node.inputs:
            producer = value.producer
            if producer is not None and producer in nodes and producer not in order:
                visit(producer)
        order[node] = None

    visit(root)
    return tuple(order)

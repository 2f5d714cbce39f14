"""Matching of the nodes and values of two graphs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from npu_ir.core.literals import format_literal
from npu_ir.core.node import OpNode, Value
from npu_ir.diff.arguments import match_arguments
from npu_ir.diff.subsequence import common_subsequence

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph
_Key = TypeVar("_Key", bound=Hashable)
_NOWHERE = ("", "", "")  # a location that was not recorded


def node_digests(graph: Graph, arguments: Mapping[Value, int]) -> dict[OpNode, int]:
    """Return a digest for each node: of its op, attributes and types, and of its inputs, transitively.

    Names do not matter, and the nodes may be in any order. Equal digests may, rarely, be a collision.
    """
    return _Digests(graph, arguments).nodes


class _Digests:
    def __init__(self, graph: Graph, arguments: Mapping[Value, int]) -> None:
        self.nodes: dict[OpNode, int] = {}
        self._values = dict(arguments)
        for node in graph.nodes:
            digest = self._digest(node)
            self.nodes[node] = digest
            self._values.update((value, hash((digest, value.index))) for value in node.outputs)

    def digest_of(self, leaf: object) -> int:
        """Return the digest of a value or literal; 0 for a value that is produced later."""
        return self._values.get(leaf, 0) if isinstance(leaf, Value) else hash(format_literal(leaf))

    def _digest(self, node: OpNode) -> int:
        attrs = frozenset((name, format_literal(literal)) for name, literal in node.attrs.items())
        types = tuple(str(value.type) for value in node.outputs)
        inputs = tuple(map(self.digest_of, node.inputs))
        regions = tuple((name, _region_digest(region)) for name, region in node.regions.items())
        return hash((node.op_type, node.operands, attrs, types, inputs, regions))


def _region_digest(region: Graph) -> int:
    digests = _Digests(region, {value: index for index, value in enumerate(region.arguments)})
    return hash((len(region), tuple(map(digests.digest_of, region.results[1]))))


class Matching:
    """Pairs of nodes and values of two graphs, each in at most one pair.

    The rules are applied in this order, from certain to heuristic; a later one never breaks a pair:

    1. Nodes that compute the same from the same values are matched, whatever their names.
    2. Readers of matched values at the same operand, and producers of matched values, are matched if they
       have the same op and are unambiguous: one candidate each, or the same name.
    3. Nodes with the same name, op and location in the model are matched.
    4. The result of a rewrite is matched with the node that has its op among those it replaces
       (``fused_from``), or else with the last of them.
    5. The rest is matched like lines of text: by a longest common subsequence of ops, attributes and types,
       then of ops alone.
    6. Nodes with the same inputs or the same name, and the same output types, are matched across ops.

    Rule 2 is applied again after each of the others.
    """

    def __init__(self, a: Graph, b: Graph) -> None:
        self.values = match_arguments(a, b)  # the value of ``b`` for each matched value of ``a``
        self.nodes: dict[OpNode, OpNode] = {}  # the node of ``b`` for each matched node of ``a``
        self._sides = a.nodes, b.nodes
        self._taken: set[OpNode] = set()
        self._order = [{node: position for position, node in enumerate(side)} for side in self._sides]
        self._pair_by_digest(a, b)
        self._propagate(self.values.items())
        self._pair_outputs(a, b)
        self._pair_by(lambda node: (node.name, node.op_type), may_be_same)
        # The node of ``b`` that replaces each node of ``a`` that a rewrite merged into others.
        self.claims = self._find_claims()
        self._pair_rewritten()
        self._pair_in_order(_content_key)
        self._pair_in_order(_op_key)
        self._pair_replaced()
        self._pair_by(lambda node: (node.name, _types(node)), lambda _, other: not _was_rewritten(other))
        self.claims = {
            node: other for node, other in self.claims.items() if self.nodes.get(node, other) is other
        }
        self._last_merged = {self.claims[node]: node for node in a.nodes if node in self.claims}

    def matches(self, mine: Value, other: Value) -> bool:
        """Return whether two values match; a merged node's output matches the last one it replaces."""
        node = other.producer
        last = None if node is None else self._last_merged.get(node)
        if node is None or last is None or self.nodes.get(last) is node:
            return self.values.get(mine) is other
        return mine.producer is last and len(node.outputs) == 1 and mine.type == other.type

    def _unmatched_nodes(self) -> tuple[list[OpNode], list[OpNode]]:
        a, b = self._sides
        return [node for node in a if node not in self.nodes], [node for node in b if node not in self._taken]

    def _add_pairs(self, pairs: Iterable[tuple[OpNode, OpNode]]) -> None:
        """Match these nodes if both are unmatched, and apply rule 2 to their values."""
        new: list[tuple[Value, Value]] = []
        for mine, other in pairs:
            if mine not in self.nodes and other not in self._taken:
                new += self._add_pair(mine, other)
        self._propagate(new)

    def _add_pair(self, mine: OpNode, other: OpNode) -> list[tuple[Value, Value]]:
        self.nodes[mine] = other
        self._taken.add(other)
        outputs = list(zip(mine.outputs, other.outputs, strict=False))
        self.values.update(outputs)
        if mine.operands == other.operands and len(mine.inputs) == len(other.inputs):
            outputs += zip(mine.inputs, other.inputs, strict=True)
        return outputs

    def _propagate(self, values: Iterable[tuple[Value, Value]]) -> None:
        """Match the readers and producers of these values where that is unambiguous (rule 2)."""
        # A worklist that grows while it is read: each new pair adds its inputs and outputs.
        waiting = list(values)
        for mine, other in waiting:
            candidates = list(self._pair_readers(mine, other)) if self.values.get(mine) is other else []
            if mine.producer is not None and other.producer is not None:
                candidates.append((mine.producer, other.producer))
            for left, right in candidates:
                is_free = left not in self.nodes and right not in self._taken
                if is_free and left.op_type == right.op_type:
                    waiting += self._add_pair(left, right)

    def _pair_readers(self, mine: Value, other: Value) -> Iterator[tuple[OpNode, OpNode]]:
        left, right = self._unmatched_readers(mine, 0), self._unmatched_readers(other, 1)
        for key in (key for key in left if key in right):
            if len(left[key]) == len(right[key]):
                yield from zip(left[key], right[key], strict=True)
                continue
            named = {node.name: node for node in right[key]}
            yield from ((node, named[node.name]) for node in left[key] if node.name in named)

    def _unmatched_readers(self, value: Value, side: int) -> dict[Hashable, list[OpNode]]:
        """Return the unmatched nodes that read ``value``, in order, by op and operand."""
        taken = self._taken if side else self.nodes.keys()
        readers: defaultdict[Hashable, list[OpNode]] = defaultdict(list)
        for node, index in value.uses:
            if node is not None and node not in taken and isinstance(index, int):
                operand = node.operands[index] if node.operands is not None else index
                readers[node.op_type, operand].append(node)
        for nodes in readers.values():
            nodes.sort(key=self._order[side].__getitem__)
        return readers

    def _pair_by_digest(self, a: Graph, b: Graph) -> None:
        # Matched arguments share a number; unmatched ones of ``b`` get negative numbers, which match nothing.
        ids = {value: index for index, value in enumerate(a.arguments, 1)}
        others = {other: ids[mine] for mine, other in self.values.items()}
        others.update((value, -index) for index, value in enumerate(b.arguments, 1) if value not in others)
        groups = _group_by_key(node_digests(b, others))
        for digest, mine in _group_by_key(node_digests(a, ids)).items():
            same = groups.get(digest, [])
            for left, right in (
                _pair_by_name(mine, same) if len(mine) != len(same) else zip(mine, same, strict=True)
            ):
                self._add_pair(left, right)

    def _pair_outputs(self, a: Graph, b: Graph) -> None:
        leaves = zip(a.results[1], b.results[1], strict=False)
        ends = [pair for pair in leaves if isinstance(pair[0], Value) and isinstance(pair[1], Value)]
        targets = {self.values.get(target): value for target, value in a.updates.items()}
        ends += [(targets[target], value) for target, value in b.updates.items() if target in targets]
        self._propagate(ends)

    def _pair_by(self, key: Callable[[OpNode], Hashable], fits: Callable[[OpNode, OpNode], bool]) -> None:
        left, right = self._unmatched_nodes()
        others = {key(node): node for node in right}
        pairs = [(node, others[key(node)]) for node in left if key(node) in others]
        self._add_pairs(pair for pair in pairs if fits(*pair))

    def _find_claims(self) -> dict[OpNode, OpNode]:
        """Return the last node that replaces each node that was merged into others."""
        named = {node.name: node for node in self._sides[0]}
        partners = {other: node for node, other in self.nodes.items()}
        claims: dict[OpNode, OpNode] = {}
        for other in self._sides[1]:
            partner = partners.get(other)
            if partner is not None and partner.provenance.fused_from == other.provenance.fused_from:
                continue  # not a result of this rewrite
            merged = [named[name] for name in other.provenance.fused_from if name in named]
            claims.update((node, other) for node in merged if self.nodes.get(node, other) is other)
        return claims

    def _pair_rewritten(self) -> None:
        merged = _group_by_key({node: other for node, other in self.claims.items() if node not in self.nodes})
        self._add_pairs(
            (next((node for node in nodes if node.op_type == other.op_type), nodes[-1]), other)
            for other, nodes in merged.items()
        )

    def _pair_in_order(self, key: Callable[[OpNode], Hashable]) -> None:
        """Match remaining nodes by a longest common subsequence, anchored by the existing pairs."""
        if not all(self._unmatched_nodes()):
            return
        a, b = self._sides
        number = {node: index for index, pair in enumerate(self.nodes.items()) for node in pair}
        common = common_subsequence(*[[number.get(node, key(node)) for node in side] for side in (a, b)])
        self._add_pairs((a[i], b[j]) for i, j in common)

    def _pair_replaced(self) -> None:
        """Match nodes with different ops that have the same inputs and output types."""
        left, right = self._unmatched_nodes()
        others = {(*node.inputs, *_types(node)): node for node in right if not _was_rewritten(node)}
        for node in left:
            inputs = [self.values.get(value) for value in node.inputs]
            other = others.get((*inputs, *_types(node)))
            if other is not None and inputs:
                self._add_pairs([(node, other)])


def may_be_same(mine: OpNode, other: OpNode) -> bool:
    """Return whether nodes of the same name may match: a rewrite may reuse the name of a removed node."""
    locations = [_location(node) for node in (mine, other)]
    is_unknown = _NOWHERE in locations and _types(mine) == _types(other)
    may_descend = not _was_rewritten(other) or mine.name in other.provenance.fused_from
    return (
        mine.in_prologue == other.in_prologue
        and (may_descend or mine.provenance.fused_from == other.provenance.fused_from)
        and (is_unknown or (locations[0] == locations[1] != _NOWHERE))
    )


def _location(node: OpNode) -> tuple[str, str, str]:
    return node.provenance.module, node.provenance.source, node.provenance.phase


def _group_by_key(keys: Mapping[OpNode, _Key]) -> dict[_Key, list[OpNode]]:
    groups: defaultdict[_Key, list[OpNode]] = defaultdict(list)
    for node, key in keys.items():
        groups[key].append(node)
    return groups


def _pair_by_name(mine: Iterable[OpNode], others: Iterable[OpNode]) -> list[tuple[OpNode, OpNode]]:
    """Return pairs of nodes from two groups of different size: those of the same name first."""
    named = {node.name: node for node in others}
    pairs = [(node, named.pop(node.name)) for node in mine if node.name in named]
    taken = {node for node, _ in pairs}
    return [*pairs, *zip((node for node in mine if node not in taken), named.values(), strict=False)]


def _was_rewritten(node: OpNode) -> bool:
    return bool(node.provenance.fused_from)


def _types(node: OpNode) -> tuple[Hashable, ...]:
    return tuple(str(value.type) for value in node.outputs)


def _op_key(node: OpNode) -> Hashable:
    return node.op_type, node.in_prologue, node.provenance.fused_from


def _content_key(node: OpNode) -> Hashable:
    return _op_key(node), _location(node)[::2], tuple(node.attrs), str(dict(node.attrs)), _types(node)

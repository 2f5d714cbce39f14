"""Pairs of nodes of two graphs that are the same."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, TypeVar

from npu_ir.core.node import OpNode, Value
from npu_ir.diff.arguments import match_arguments
from npu_ir.diff.digests import node_digests
from npu_ir.diff.subsequence import common_subsequence

if TYPE_CHECKING:
    from npu_ir.graph.graph import Graph

_Key = TypeVar("_Key", bound=Hashable)


class Matching:
    """Pairs of nodes and values of two graphs, each in one pair at most.

    1. Nodes that compute the same from the same are the same node, whatever they are called.
    2. What reads the same value in the same place, and what the same node reads in the same place, is the same node
       where no other could be meant: the same op, with the same name where there are several.
    3. Nodes of the same name, op and place in the model are the same node.
    4. A node that a rewrite made is the one with its op among those that it stands for, or else the last of them.
    5. What is left is matched as lines of text are: the longest common subsequence of ops, attributes and types,
       then of ops alone.
    6. What reads the same, or has the same name, and gives the same types is the same node with another op.

    Rule 2 is applied again behind each of the others.

    Attributes:
        nodes: The node of ``b`` for each of ``a`` that has one.
        values: The same for values.
        claims: For each node of ``a`` that a rewrite merged into another one: the node of ``b`` that stands for it.
    """

    def __init__(self, a: Graph, b: Graph) -> None:
        self.values = match_arguments(a, b)
        self.nodes: dict[OpNode, OpNode] = {}
        self._sides = a.nodes, b.nodes
        self._taken: set[OpNode] = set()
        self._order = [{node: place for place, node in enumerate(side)} for side in self._sides]
        self._pair_by_digest(a, b)
        self._spread(self.values.items())
        self._pair_ends(a, b)
        self._pair_by(_name, may_be_same)
        self.claims = self._claims()
        self._pair_rewritten()
        self._pair_in_order(_looks)
        self._pair_in_order(_op)
        self._pair_replaced()
        self._pair_by(_name_and_types, lambda _, other: not _was_rewritten(other))
        self.claims = {
            node: other for node, other in self.claims.items() if self.nodes.get(node, other) is other
        }
        self._last_merged = {self.claims[node]: node for node in a.nodes if node in self.claims}

    def stands_for(self, mine: Value, other: Value) -> bool:
        """Whether two values are the same; of a node that several became, it is what the last of them gave."""
        node = other.producer
        last = None if node is None else self._last_merged.get(node)
        if node is None or last is None or self.nodes.get(last) is node:
            return self.values.get(mine) is other
        return mine.producer is last and len(node.outputs) == 1 and mine.type == other.type

    def _left_over(self) -> tuple[list[OpNode], list[OpNode]]:
        a, b = self._sides
        return [node for node in a if node not in self.nodes], [node for node in b if node not in self._taken]

    def _pair(self, pairs: Iterable[tuple[OpNode, OpNode]]) -> None:
        """Take these nodes for the same, and what follows from that."""
        new: list[tuple[Value, Value]] = []
        for mine, other in pairs:
            if mine not in self.nodes and other not in self._taken:
                new += self._take(mine, other)
        self._spread(new)

    def _take(self, mine: OpNode, other: OpNode) -> list[tuple[Value, Value]]:
        self.nodes[mine] = other
        self._taken.add(other)
        outputs = list(zip(mine.outputs, other.outputs, strict=False))
        self.values.update(outputs)
        if mine.operands == other.operands and len(mine.inputs) == len(other.inputs):
            outputs += zip(mine.inputs, other.inputs, strict=True)
        return outputs

    def _spread(self, values: Iterable[tuple[Value, Value]]) -> None:
        """Match what reads these values, and what makes them, as far as that is beyond doubt."""
        waiting = list(values)
        for mine, other in waiting:
            found = list(self._same_readers(mine, other)) if self.values.get(mine) is other else []
            if mine.producer is not None and other.producer is not None:
                found.append((mine.producer, other.producer))
            for left, right in found:
                is_free = left not in self.nodes and right not in self._taken
                if is_free and left.op_type == right.op_type:
                    waiting += self._take(left, right)

    def _same_readers(self, mine: Value, other: Value) -> Iterator[tuple[OpNode, OpNode]]:
        left, right = self._readers(mine, 0), self._readers(other, 1)
        for key in (key for key in left if key in right):
            if len(left[key]) == len(right[key]):
                yield from zip(left[key], right[key], strict=True)
                continue
            named = {node.name: node for node in right[key]}
            yield from ((node, named[node.name]) for node in left[key] if node.name in named)

    def _readers(self, value: Value, side: int) -> dict[Hashable, list[OpNode]]:
        """Return the nodes that read ``value`` and have no partner, in order, by op and operand."""
        taken = self._taken if side else self.nodes.keys()
        found: defaultdict[Hashable, list[OpNode]] = defaultdict(list)
        for node, index in value.uses:
            if node is not None and node not in taken and isinstance(index, int):
                operand = node.operands[index] if node.operands is not None else index
                found[node.op_type, operand].append(node)
        for nodes in found.values():
            nodes.sort(key=self._order[side].__getitem__)
        return found

    def _pair_by_digest(self, a: Graph, b: Graph) -> None:
        ids = {value: index for index, value in enumerate(a.arguments, 1)}
        others = {other: ids[mine] for mine, other in self.values.items()}
        others.update((value, -index) for index, value in enumerate(b.arguments, 1) if value not in others)
        groups = _grouped(node_digests(b, others))
        for digest, mine in _grouped(node_digests(a, ids)).items():
            same = groups.get(digest, [])
            for left, right in (
                _by_name(mine, same) if len(mine) != len(same) else zip(mine, same, strict=True)
            ):
                self._take(left, right)

    def _pair_ends(self, a: Graph, b: Graph) -> None:
        leaves = zip(a.results[1], b.results[1], strict=False)
        ends = [pair for pair in leaves if isinstance(pair[0], Value) and isinstance(pair[1], Value)]
        targets = {self.values.get(target): value for target, value in a.updates.items()}
        ends += [(targets[target], value) for target, value in b.updates.items() if target in targets]
        self._spread(ends)

    def _pair_by(self, key: Callable[[OpNode], Hashable], fits: Callable[[OpNode, OpNode], bool]) -> None:
        left, right = self._left_over()
        others = {key(node): node for node in right}
        found = [(node, others[key(node)]) for node in left if key(node) in others]
        self._pair(pair for pair in found if fits(*pair))

    def _claims(self) -> dict[OpNode, OpNode]:
        """Return the last node that stands for each node that was merged into others."""
        named = {node.name: node for node in self._sides[0]}
        partners = {other: node for node, other in self.nodes.items()}
        claims: dict[OpNode, OpNode] = {}
        for other in self._sides[1]:
            partner = partners.get(other)
            if partner is not None and partner.provenance.fused_from == other.provenance.fused_from:
                continue  # that was so before
            merged = [named[name] for name in other.provenance.fused_from if name in named]
            claims.update((node, other) for node in merged if self.nodes.get(node, other) is other)
        return claims

    def _pair_rewritten(self) -> None:
        merged = _grouped({node: other for node, other in self.claims.items() if node not in self.nodes})
        self._pair(
            (next((node for node in nodes if node.op_type == other.op_type), nodes[-1]), other)
            for other, nodes in merged.items()
        )

    def _pair_in_order(self, key: Callable[[OpNode], Hashable]) -> None:
        """Match what is left over; nodes that have a partner stand for themselves."""
        if not all(self._left_over()):
            return
        a, b = self._sides
        number = {node: index for index, pair in enumerate(self.nodes.items()) for node in pair}
        found = common_subsequence(*[[number.get(node, key(node)) for node in side] for side in (a, b)])
        self._pair((a[i], b[j]) for i, j in found)

    def _pair_replaced(self) -> None:
        """Match nodes with different ops that read the same and give the same types."""
        left, right = self._left_over()
        others = {(*node.inputs, *_types(node)): node for node in right if not _was_rewritten(node)}
        for node in left:
            inputs = [self.values.get(value) for value in node.inputs]
            other = others.get((*inputs, *_types(node)))
            if other is not None and inputs:
                self._pair([(node, other)])


def may_be_same(mine: OpNode, other: OpNode) -> bool:
    """Whether nodes of the same name are the same: a rewrite may give a new one the name of one that is gone."""
    places = [(node.provenance.module, node.provenance.source) for node in (mine, other)]
    is_unknown = ("", "") in places and _types(mine) == _types(other)
    is_made_of_it = not _was_rewritten(other) or mine.name in other.provenance.fused_from
    return (
        mine.in_prologue == other.in_prologue
        and (is_made_of_it or mine.provenance.fused_from == other.provenance.fused_from)
        and (is_unknown or (places[0] == places[1] != ("", "")))
    )


def _grouped(keys: Mapping[OpNode, _Key]) -> dict[_Key, list[OpNode]]:
    """Return the nodes of each key, in order."""
    groups: defaultdict[_Key, list[OpNode]] = defaultdict(list)
    for node, key in keys.items():
        groups[key].append(node)
    return groups


def _by_name(mine: Iterable[OpNode], others: Iterable[OpNode]) -> list[tuple[OpNode, OpNode]]:
    """Return pairs of nodes that compute the same, where some are gone: those of the same name first."""
    named = {node.name: node for node in others}
    pairs = [(node, named.pop(node.name)) for node in mine if node.name in named]
    taken = {node for node, _ in pairs}
    return [*pairs, *zip((node for node in mine if node not in taken), named.values(), strict=False)]


def _was_rewritten(node: OpNode) -> bool:
    return bool(node.provenance.fused_from)


def _name(node: OpNode) -> Hashable:
    return node.name, node.op_type


def _types(node: OpNode) -> tuple[Hashable, ...]:
    return tuple(str(value.type) for value in node.outputs)


def _name_and_types(node: OpNode) -> Hashable:
    return node.name, _types(node)


def _op(node: OpNode) -> Hashable:
    return node.op_type, node.in_prologue, node.provenance.fused_from


def _looks(node: OpNode) -> Hashable:
    return _op(node), node.provenance.module, tuple(node.attrs), str(dict(node.attrs)), _types(node)

"""Patterns of the steps of optimizers, and the search for them.

Terms are those of `npu_passes.patterns`, read for one tensor of an op on lists or not: ``var`` stands for a
tensor, ``attr`` for a number of the graph or a literal, a tuple for terms that all have to match. The search
backtracks over ``one_of``; operands are matched from the last to the first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from npu_ir import OpNode, ScalarType, Value
from npu_ir.ops.effects import aten_name
from npu_ir.ops.schema import find_op, schema_of
from npu_passes.patterns.matcher import Goal, Search
from npu_passes.patterns.terms import Kind, Term, Wildcard
from npu_passes.rewriting.arguments import arguments_of

# A hyperparameter: a number of the graph, or a literal.
Number: TypeAlias = "Value | float"

_UNCHANGED = frozenset({"aten.detach.default", "aten.alias.default"})
_LISTS = "_foreach_"


class Reader:
    """Reader of the nodes of one graph; caches their arguments."""

    def __init__(self) -> None:
        self._arguments: dict[OpNode, tuple[Any, ...]] = {}

    def call(self, value: Value, *names: str) -> tuple[tuple[Any, ...], tuple[OpNode, ...]] | None:
        """Return the call that computes ``value``, if its op has one of these names, on lists or not.

        These are its arguments in the order of the schema, of a list the element at the index of the tensor;
        and the node, with the nodes after it that return its output unchanged.
        """
        origin, passed = strip_aliases(value)
        node = origin.producer
        if node is None or aten_name(node).removeprefix(_LISTS) not in names or node.in_prologue:
            return None
        operands = self._arguments_of(node)
        if is_on_lists(node):
            operands = tuple(item[origin.index] if isinstance(item, list) else item for item in operands)
        elif len(node.outputs) != 1:
            return None
        return operands, (node, *passed)

    def _arguments_of(self, node: OpNode) -> tuple[Any, ...]:
        if node not in self._arguments:
            self._arguments[node] = _bound_arguments(node)
        return self._arguments[node]


def _bound_arguments(node: OpNode) -> tuple[Any, ...]:
    """Return all arguments of a node in the order of the schema, including defaults."""
    op = find_op(node.op_type)
    assert op is not None, "the op of a node that is read is known"
    arguments = arguments_of(node, defaults=True)
    return tuple(arguments.get(arg.name) for arg in schema_of(op).args)


def is_on_lists(node: OpNode) -> bool:
    return aten_name(node).startswith(_LISTS)


def strip_aliases(value: Value) -> tuple[Value, tuple[OpNode, ...]]:
    """Return the value behind detach and alias nodes, and these nodes."""
    passed: list[OpNode] = []
    while value.producer is not None and value.producer.op_type in _UNCHANGED:
        passed.append(value.producer)
        value = value.producer.inputs[0]
    return value, tuple(passed)


def is_same(left: object, right: object) -> bool:
    """Return whether two operands are the same tensor, the same number of the graph, or equal literals."""
    if isinstance(left, Value) and isinstance(right, Value):
        return strip_aliases(left)[0] is strip_aliases(right)[0]
    return is_literal(left) and is_literal(right) and left == right


def is_literal(item: object) -> bool:
    return type(item) in (int, float)  # a bool is an int, but not a hyperparameter


def is_number(item: object) -> bool:
    """Return whether an operand is a number, of the graph or a literal."""
    return is_literal(item) or (isinstance(item, Value) and isinstance(item.type, ScalarType))


def number_nodes(items: Sequence[object]) -> list[OpNode]:
    """Return the nodes that compute these numbers, and the numbers that they read."""
    nodes: dict[OpNode, None] = {}
    pending = [item.producer for item in items if isinstance(item, Value)]
    while pending:
        node = pending.pop()
        if node is None or node in nodes or not node.op_type.startswith("operator."):
            continue
        nodes[node] = None
        pending += [value.producer for value in node.inputs]
    return list(nodes)


def number_operands(item: object, op_type: str) -> tuple[Any, ...] | None:
    """Return the operands of the op that computes a number of the graph; None if it is another one."""
    node = item.producer if isinstance(item, Value) else None
    if node is None or node.op_type != op_type:
        return None
    return _bound_arguments(node)


@dataclass(frozen=True, slots=True)
class StepCall:
    """Term of a call."""

    names: tuple[str, ...]  # names of ATen ops without overload, on lists or not; one of them is called
    operands: tuple[Term, ...]  # the leading operands
    result: str = ""  # the name of the tensor that it computes; "" if it is not bound


@dataclass(frozen=True, slots=True)
class Flag:
    """Term that matches anything, and tells that it has been matched."""

    name: str


@dataclass(frozen=True, slots=True)
class Complement:
    """Term of a number ``1 - x``."""

    x: Term


@dataclass(frozen=True, slots=True)
class Negative:
    """Term of a number ``-x``; a literal ``x`` is not negative."""

    x: Term


@dataclass(frozen=True, slots=True)
class Product:
    """Term of a number ``factor * x``, where ``factor`` is the name of a wildcard that is matched before."""

    factor: str
    x: Term


def call(name: str, *operands: Term, result: str = "") -> StepCall:
    """Return the term of a call; several names are separated by ``|``."""
    return StepCall(tuple(name.split("|")), operands, result)


class StepSearch(Search):
    """Search for a pattern behind one value.

    ``bound`` has tensors and numbers by name, and True for flags; ``nodes`` includes nodes that return the
    result of a call unchanged.
    """

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self._reader = reader

    def alternatives(self, item: Any, term: Term) -> Sequence[Sequence[Goal]]:
        if isinstance(term, StepCall):
            return self._match_call(item, term)
        if isinstance(term, Wildcard):
            return [[]] if self._bind(term, item) else []
        if isinstance(term, tuple):
            return [[(item, part) for part in term]]
        if isinstance(term, Flag):
            self.bound[term.name] = True
            return [[]]
        if isinstance(term, (Complement, Negative, Product)):
            return _number_goals(item, term, self.bound)
        return super().alternatives(item, term)

    def _match_call(self, item: Any, term: StepCall) -> Sequence[Sequence[Goal]]:
        operands, nodes = (isinstance(item, Value) and self._reader.call(item, *term.names)) or ((), ())
        if not nodes or len(operands) < len(term.operands):
            return []
        if term.result and not self._bind(Wildcard(term.result, Kind.VALUE), item):
            return []
        self.nodes.update(dict.fromkeys(nodes))
        return [list(zip(operands, term.operands, strict=False))]

    def _bind(self, term: Wildcard, item: Any) -> bool:
        if term.kind is Kind.DATA:
            fits = is_number(item)
        else:
            fits = isinstance(item, Value) and not is_number(item)
            item = strip_aliases(item)[0] if fits else item
        return fits and is_same(self.bound.setdefault(term.name, item), item)


def _number_goals(
    item: Any, term: Complement | Negative | Product, bound: Mapping[str, Any]
) -> Sequence[Sequence[Goal]]:
    """Return the number that is left for ``x`` as a goal: an operand, or computed for a literal."""
    if isinstance(term, Complement):
        if is_literal(item):
            return [[(1 - item, term.x)]]
        first, second = number_operands(item, "operator.sub") or (None, None)
        return [[(second, term.x)]] if is_literal(first) and first == 1 else []
    if isinstance(term, Negative):
        if is_literal(item):
            return [[(-item, term.x)]] if item <= 0 else []
        operands = number_operands(item, "operator.neg")
        return [] if operands is None else [[(operands[0], term.x)]]
    factor = bound[term.factor]
    if is_literal(item):
        return [[(item / factor, term.x)]] if is_literal(factor) and factor != 0 else []
    first, second = number_operands(item, "operator.mul") or (None, None)
    if is_same(first, factor):
        return [[(second, term.x)]]
    return [[(first, term.x)]] if is_same(second, factor) else []

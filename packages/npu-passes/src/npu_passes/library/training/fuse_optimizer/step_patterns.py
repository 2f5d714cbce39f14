"""Patterns of the steps of optimizers, and the search for them.

Terms are those of `npu_passes.patterns`, read for one tensor of an op on lists or not: ``var`` stands for a
tensor, ``attr`` for a number of the graph or a literal, a tuple for terms that all have to match. The search
backtracks over ``one_of``; operands are matched from the last to the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from npu_ir import OpNode, Value
from npu_passes.library.training.fuse_optimizer.operands import (
    Reader,
    is_literal,
    is_number,
    is_same,
    number_operands,
    strip_aliases,
)
from npu_passes.patterns.terms import Kind, OneOf, Term, Wildcard


@dataclass(frozen=True, slots=True)
class StepCall:
    """Term of a call.

    Attributes:
        names: Names of ATen ops without overload, on lists or not; one of them is called.
        operands: The leading operands.
        result: The name of the tensor that it computes; "" if it is not bound.
    """

    names: tuple[str, ...]
    operands: tuple[Term, ...]
    result: str = ""


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


@dataclass(slots=True)
class Match:
    """What is matched so far.

    Attributes:
        bound: Tensors and numbers by name; True for flags.
        nodes: The nodes of all calls, those that return their results unchanged included.
    """

    bound: dict[str, Any] = field(default_factory=dict)
    nodes: dict[OpNode, None] = field(default_factory=dict)


def match_step(reader: Reader, value: Value, pattern: Term) -> Match | None:
    """Return the first match of a pattern that computes ``value``; None if there is none."""
    found = Match()
    return found if _matches(reader, [(value, pattern)], found) else None


def _matches(reader: Reader, goals: list[tuple[Any, Term]], found: Match) -> bool:
    """Return whether all goals can be met; if not, ``found`` is left as it was."""
    bound, nodes = len(found.bound), len(found.nodes)
    while goals:
        item, term = goals.pop()
        if isinstance(term, OneOf):
            if any(_matches(reader, [*goals, (item, option)], found) for option in term.options):
                return True
            more = None
        else:
            more = _goals(reader, item, term, found)
        if more is None:
            while len(found.bound) > bound:
                found.bound.popitem()
            while len(found.nodes) > nodes:
                found.nodes.popitem()
            return False
        goals += more
    return True


def _goals(reader: Reader, item: Any, term: Term, found: Match) -> Sequence[tuple[Any, Term]] | None:
    """Return what remains for ``item`` to match ``term``; None if it does not."""
    if isinstance(term, StepCall):
        return _call_goals(reader, item, term, found)
    if isinstance(term, Wildcard):
        return [] if _bind(term, item, found) else None
    if isinstance(term, tuple):
        return [(item, part) for part in term]
    if isinstance(term, Flag):
        found.bound[term.name] = True
        return []
    if isinstance(term, (Complement, Negative, Product)):
        return _number_goals(item, term, found)
    return [] if is_literal(item) and item == term else None


def _call_goals(reader: Reader, item: Any, term: StepCall, found: Match) -> Sequence[tuple[Any, Term]] | None:
    made = reader.call(item, *term.names) if isinstance(item, Value) else None
    if made is None or len(made.operands) < len(term.operands):
        return None
    if term.result and not _bind(Wildcard(term.result, Kind.VALUE), item, found):
        return None
    found.nodes.update(dict.fromkeys(made.nodes))
    return list(zip(made.operands, term.operands, strict=False))


def _bind(term: Wildcard, item: Any, found: Match) -> bool:
    if term.kind is Kind.DATA:
        fits = is_number(item)
    else:
        fits = isinstance(item, Value) and not is_number(item)
        item = strip_aliases(item)[0] if fits else item
    return fits and is_same(found.bound.setdefault(term.name, item), item)


def _number_goals(
    item: Any, term: Complement | Negative | Product, found: Match
) -> Sequence[tuple[Any, Term]] | None:
    """Return the number that is left for ``x``: an operand, or computed for a literal."""
    if isinstance(term, Complement):
        if is_literal(item):
            return [(1 - item, term.x)]
        first, second = number_operands(item, "operator.sub") or (None, None)
        return [(second, term.x)] if is_literal(first) and first == 1 else None
    if isinstance(term, Negative):
        if is_literal(item):
            return [(-item, term.x)] if item <= 0 else None
        operands = number_operands(item, "operator.neg")
        return None if operands is None else [(operands[0], term.x)]
    factor = found.bound[term.factor]
    if is_literal(item):
        return [(item / factor, term.x)] if is_literal(factor) and factor != 0 else None
    first, second = number_operands(item, "operator.mul") or (None, None)
    if is_same(first, factor):
        return [(second, term.x)]
    return [(first, term.x)] if is_same(second, factor) else None

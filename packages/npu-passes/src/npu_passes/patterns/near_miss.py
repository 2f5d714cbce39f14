"""Near misses of patterns: all ops of a pattern are there, and one argument is another one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from npu_ir import Graph, OpNode, Value
from npu_passes.patterns.matcher import is_equal, split_arguments
from npu_passes.patterns.terms import Call, Kind, OneOf, Term, Wildcard, subterms


def find_near_miss(graph: Graph, root: OpNode, pattern: Call) -> str | None:
    """Return which one argument keeps ``pattern`` from matching at ``root``; None if more than that does.

    What a predicate of the pattern refuses, or an alternative of it, does not count as one: it is meant.
    """
    if pattern.index >= len(root.outputs):
        return None
    misses = _misses(graph, root.outputs[pattern.index], pattern)
    return misses[0] if misses is not None and len(misses) == 1 else None


def _misses(graph: Graph, item: Any, call: Call) -> list[str] | None:
    """Return what differs in the arguments of a call; None if ``item`` is not its output."""
    node = item.producer if isinstance(item, Value) and item.index == call.index else None
    if node is None or node.op_type != call.op_type or node.graph is not graph or node.regions:
        return None
    explicit, defaults = split_arguments(node, call)
    unstated = [
        _miss_text(node, name, argument, defaults.get(name)) + " (leave it open with ...)"
        for name, argument in explicit.items()
        if not call.is_open and name not in call.args and not is_equal(argument, defaults.get(name))
    ]
    arguments = {**defaults, **explicit}
    found = [_argument_misses(graph, node, arguments, order) for order in _orders(call)]
    stated = min((misses for misses in found if misses is not None), key=len, default=None)
    return None if stated is None else [*unstated, *stated]


def _orders(call: Call) -> Sequence[Mapping[str, Term]]:
    if not call.is_commutative:
        return [call.args]
    (first, one), (second, other), *rest = call.args.items()
    return [call.args, {first: other, second: one, **dict(rest)}]


def _argument_misses(
    graph: Graph, node: OpNode, arguments: Mapping[str, Any], terms: Mapping[str, Term]
) -> list[str] | None:
    misses: list[str] = []
    for name, term in terms.items():
        found = _term_misses(graph, arguments.get(name), term)
        if found is None:
            return None
        misses += [text or _miss_text(node, name, arguments.get(name), term) for text in found]
    return misses


def _term_misses(graph: Graph, argument: Any, term: Term) -> list[str] | None:
    """Return the misses of a term, each "" where it is the argument itself; None if no near miss can be."""
    if isinstance(term, OneOf):
        return None
    if isinstance(term, Call):
        return _misses(graph, argument, term)
    if isinstance(term, Wildcard):
        if _is_of_kind(argument, term):
            return []
        return [""] if term.where is None else None
    if isinstance(term, (list, tuple)) and isinstance(argument, list) and len(argument) == len(term):
        parts = [_term_misses(graph, *pair) for pair in zip(argument, term, strict=True)]
        known = [part for part in parts if part is not None]
        return [text for part in known for text in part] if len(known) == len(parts) else None
    if any(isinstance(part, (Call, OneOf)) for part in subterms(term)):
        return None
    return [] if is_equal(argument, term) else [""]


def _is_of_kind(argument: Any, term: Wildcard) -> bool:
    return term.kind is Kind.EITHER or isinstance(argument, Value) is (term.kind is Kind.VALUE)


def _miss_text(node: OpNode, name: str, argument: Any, wanted: Any) -> str:
    op_name = node.op_type.split(".")[1] if "." in node.op_type else node.op_type
    return f"{op_name}: {name} is {_text(argument)}, the pattern has {_text(wanted)}"


def _text(item: Any) -> str:
    if isinstance(item, Wildcard):
        return item.kind.value
    if isinstance(item, (list, tuple)):
        return f"[{', '.join(map(_text, item))}]"
    return f"%{item.name}" if isinstance(item, Value) else repr(item)

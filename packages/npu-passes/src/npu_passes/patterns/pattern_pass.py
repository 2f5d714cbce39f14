"""Passes that consist of rules: a pattern and its replacement."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from npu_ir import Graph, Value
from npu_ir.ops.schema import find_op
from npu_passes.base import Pass
from npu_passes.errors import PassError
from npu_passes.patterns.matching import Match, match_call
from npu_passes.patterns.terms import Attr, Call, Term, Var
from npu_passes.rewriting import Edit


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A pattern and what to put in its place.

    What the inner calls of the pattern return must be read by the match alone, unless they are ``shared``: a
    match that is read elsewhere is refused. A pattern of which the first output is meant and another one is
    read does not match.

    Attributes:
        name: What is done, in a word or two.
        pattern: The outermost call.
        replacement: A term with the wildcards of the pattern, or a function ``(edit, match) -> Value`` that adds
            the nodes itself.
        where: Returns why a match is refused; None where it is not.

    Raises:
        PassError: The replacement has a wildcard that the pattern lacks, or the pattern is no call.
    """

    name: str
    pattern: Call
    replacement: Term | Callable[[Edit, Match], Value]
    where: Callable[[Match], str | None] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, Call):
            raise PassError(f"rule {self.name!r}: a pattern is a call of an op, not {self.pattern!r}")
        known = set(_wildcards(self.pattern))
        unknown = sorted(set(_wildcards(self.replacement)) - known)
        if unknown:
            raise PassError(
                f"rule {self.name!r}: the replacement has {unknown[0]!r}, the pattern has not",
                fix=f"the pattern has {', '.join(sorted(known)) or 'no wildcards'}",
            )


class PatternPass(Pass):
    """A pass that is a list of rules. At each node the first rule that matches is applied.

    It looks at every node once: what a rule has made is looked at in the next round.
    """

    rules: ClassVar[tuple[Rule, ...]] = ()
    is_idempotent: ClassVar[bool] = False
    _index: ClassVar[Mapping[str, Sequence[Rule]]] = {}

    def __init_subclass__(cls) -> None:
        index: dict[str, list[Rule]] = {}
        for rule in cls.rules:
            index.setdefault(rule.pattern.op_type, []).append(rule)
        cls._index = index
        super().__init_subclass__()

    def run(self, graph: Graph) -> bool:
        """Apply the rules; linear in the number of nodes."""
        edited = False
        for node in graph.body:
            for rule in () if node.is_erased else self._index.get(node.op_type, ()):
                match = match_call(graph, node, rule.pattern)
                if match is not None and self._apply(rule, match):
                    edited = True
                    break
        return edited

    def _apply(self, rule: Rule, match: Match) -> bool:
        elsewhere = match.read_elsewhere()
        reason = None if elsewhere is None else f"%{elsewhere.name} is read elsewhere, too"
        if reason is None and any(
            value.uses for value in match.root.outputs if value.index != rule.pattern.index
        ):
            reason = "another of its outputs is read, too"
        if reason is None and rule.where is not None:
            reason = rule.where(match)
        if reason is not None:
            self.refuse(match.root, reason, rule.name)
            return False
        with self.rewrite(match.graph, rule.name, *match.nodes) as edit:
            old = match.root.outputs[rule.pattern.index]
            edit.replace(old, _made(edit, match, rule.replacement, old))
        return True


def _made(edit: Edit, match: Match, replacement: Any, old: Value) -> Value:
    """Return the value that takes the place of ``old``."""
    if not isinstance(replacement, (Var, Call)) and callable(replacement):
        return replacement(edit, match)  # type: ignore[no-any-return]
    made = _instance(edit, match, replacement, old)
    if not isinstance(made, Value):
        raise PassError(f"the replacement is {made!r}, no value")
    return made


def _instance(edit: Edit, match: Match, term: Term, old: Value | None = None) -> Any:
    if isinstance(term, (Var, Attr)):
        return match[term.name]
    if isinstance(term, (list, tuple)):
        return [_instance(edit, match, part) for part in term]
    if not isinstance(term, Call):
        return term
    args = {name: _instance(edit, match, part) for name, part in term.args.items()}
    # Only an operator of PyTorch can tell its type; anything else returns what it takes the place of.
    types = [old.type] if old is not None and find_op(term.op_type) is None else None
    positional = [args.pop(name) for name in list(args) if name.isdecimal()]
    return edit.calls(term.op_type, *positional, types=types, **args)[term.index]


def _wildcards(term: Term) -> list[str]:
    if isinstance(term, (Var, Attr)):
        return [term.name]
    parts = term.args.values() if isinstance(term, Call) else term if isinstance(term, (list, tuple)) else ()
    return [name for part in parts for name in _wildcards(part)]

"""Passes that consist of rules: a pattern and its replacement each."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from npu_ir import Graph, OpNode, Value
from npu_ir.ops.schema import find_op
from npu_passes.core.base import Pass
from npu_passes.core.edit import Edit
from npu_passes.errors import PassError, failure_of
from npu_passes.patterns.matcher import Match, find_matches
from npu_passes.patterns.near_miss import find_near_miss
from npu_passes.patterns.terms import Call, Kind, Namespace, OneOf, Op, Term, Wildcard, required_ops, subterms
from npu_passes.rewriting.value_replacement import ValueReplacer, equals_up_to_strides

# The replacement of each output of the outermost node; None for an unused output.
Replacements: TypeAlias = "tuple[Value | None, ...]"


@dataclass(frozen=True, slots=True, eq=False)
class Rule:
    """A pattern and its replacement.

    Attributes:
        name: Name of the rewrite, in a word or two.
        pattern: A call of an op, or an output of one. The results of inner calls must not be read outside the
            match, unless they are ``shared``.
        replacement: A term with the wildcards of the pattern; a tuple of terms, one for each output of the
            outermost call (None for one that must be unused); or a function ``(edit, match)`` that adds the
            nodes itself and returns a value, or a tuple of values.
        where: Returns the reason to refuse a match, or None to accept it.

    Raises:
        PassError: The replacement has a wildcard that the pattern lacks, or is not a value; one name has two
            kinds, or the pattern is not a call.
    """

    name: str
    pattern: Call
    replacement: Term | Callable[[Edit, Match], Value | Replacements]
    where: Callable[[Match], str | None] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, Call):
            raise PassError(f"rule {self.name!r}: a pattern is a call of an op, not {self.pattern!r}")
        kinds: dict[str, Kind] = {}
        for item in _wildcards(self.pattern):
            if kinds.setdefault(item.name, item.kind) is not item.kind:
                raise PassError(
                    f"rule {self.name!r}: {item.name!r} is {kinds[item.name].value}, and {item.kind.value}",
                    fix="give them two names",
                )
        for term in self._terms.values():
            self._check_result(term)
        for item in _wildcards(self.replacement):
            if item.name not in kinds:
                raise PassError(
                    f"rule {self.name!r}: the replacement has {item.name!r}, which the pattern lacks",
                    fix=f"the pattern has {', '.join(kinds) or 'no wildcards'}",
                )

    def _check_result(self, term: Term) -> None:
        """Raise if a term cannot replace an output."""
        is_value = isinstance(term, Call) or (isinstance(term, Wildcard) and term.kind is not Kind.DATA)
        if term is not None and not is_value:
            raise PassError(
                f"rule {self.name!r}: the replacement is {term!r}, not a value",
                fix="it is a call, a wildcard for a value, or a function; a tuple of these for several"
                " outputs",
            )
        if any(isinstance(part, OneOf) for part in subterms(term)):
            raise PassError(
                f"rule {self.name!r}: one_of is for patterns: a replacement is one term",
                fix="write one rule for each, or a function",
            )

    @property
    def _is_function(self) -> bool:
        return not isinstance(self.replacement, (Op, Namespace)) and callable(self.replacement)

    @property
    def _terms(self) -> dict[int, Term]:
        """Terms that replace outputs of the root, by index; none for a replacement function."""
        if self._is_function:
            return {}
        if isinstance(self.replacement, (tuple, list)):
            return dict(enumerate(self.replacement))
        return {self.pattern.index: self.replacement}

    def find_problem(self, match: Match) -> str | None:
        """Return why a match is refused; None if it is accepted."""
        elsewhere = match.find_outside_read()
        if elsewhere is not None:
            return f"%{elsewhere.name} is read elsewhere, too"
        terms = self._terms
        for value in match.root.outputs:
            if value.use_count and not self._is_function and terms.get(value.index) is None:
                return f"its output %{value.name} is read, too"
        reason = None if self.where is None else self.where(match)
        if reason is not None and not isinstance(reason, str):
            raise PassError(
                f"where= returned {reason!r}", fix="it returns why a match is refused, in words, or None"
            )
        if reason is not None:
            return reason
        for index, term in terms.items():
            old, new = (
                match.root.outputs[index],
                match.bound[term.name] if isinstance(term, Wildcard) else None,
            )
            if isinstance(new, Value) and old.use_count and not equals_up_to_strides(old.type, new.type):
                return f"the replacement %{new.name} is {new.type}, and %{old.name} is {old.type}"
        return None

    def build(self, edit: Edit, match: Match) -> Replacements:
        """Add the nodes of the replacement; return the replacement of each output of the root.

        Raises:
            PassError: The replacement yields too few or too many values, or something else.
        """
        outputs = match.root.outputs
        if self._is_function:
            result = self.replacement(edit, match)
        else:
            result = _NodeBuilder(edit, match, outputs[self.pattern.index]).build(self.replacement)
        if isinstance(result, (tuple, list)):
            values = tuple(result)
        else:
            values = tuple(result if value.index == self.pattern.index else None for value in outputs)
        if len(values) != len(outputs):
            raise PassError(f"there are {len(values)} replacements for {len(outputs)} outputs")
        for value, new in zip(outputs, values, strict=True):
            if not isinstance(new, Value) and (new is not None or value.use_count):
                raise PassError(f"the replacement of %{value.name} is {new!r}, not a value")
        return values


def _wildcards(term: Term) -> Iterator[Wildcard]:
    return (item for item in subterms(term) if isinstance(item, Wildcard))


class _NodeBuilder:
    """Builder of nodes from terms: one node per call, even if the term contains the call several times."""

    def __init__(self, edit: Edit, match: Match, old: Value) -> None:
        self._edit = edit
        self._match = match
        self._old = old
        self._outputs: dict[int, Sequence[Value]] = {}

    def build(self, term: Term, is_outermost: bool = True) -> Any:
        if isinstance(term, Wildcard):
            return self._match[term.name]
        if isinstance(term, (list, tuple)):
            return [self.build(part, is_outermost=False) for part in term]
        if not isinstance(term, Call):
            return term
        key = id(term.args)  # by identity: outputs of one call, and a call that appears twice, are one node
        if key not in self._outputs:
            self._outputs[key] = self._call(term, is_outermost)
        return self._outputs[key][term.index]

    def _call(self, call: Call, is_outermost: bool) -> Sequence[Value]:
        args = {name: self.build(part, is_outermost=False) for name, part in call.args.items()}
        op = find_op(call.op_type)
        if op is not None and call.has_schema:
            return self._edit.calls(call.op_type, **args)
        positional = [args.pop(name) for name in list(args) if name.isdecimal()]
        # The type of an op without schema cannot be inferred; the outermost call keeps the replaced one.
        types = [self._old.type] if is_outermost and op is None else None
        return self._edit.calls(call.op_type, *positional, types=types, **args)


class PatternPass(Pass):
    """A pass that is a list of rules. At each node the first rule that matches is applied.

    It visits every node once, in order; the new nodes of a rule are visited in the next round.

    Attributes:
        rules: The patterns and their replacements.
    """

    rules: ClassVar[tuple[Rule, ...]] = ()
    # By the op type of the outermost call: the rules, each with the op types that all its matches contain.
    _index: ClassVar[Mapping[str, Sequence[tuple[Rule, frozenset[str]]]]] = {}

    def __init_subclass__(cls) -> None:
        index: dict[str, list[tuple[Rule, frozenset[str]]]] = {}
        if not (isinstance(cls.rules, tuple) and all(isinstance(rule, Rule) for rule in cls.rules)):
            raise PassError(
                f"{cls.__name__}.rules is a tuple of rules, not {reprlib.repr(cls.rules)}",
                fix="mind the comma of a tuple of one: rules = (Rule(...),)",
            )
        names = [rule.name for rule in cls.rules]
        for rule in cls.rules:
            if names.count(rule.name) > 1:
                raise PassError(f"{cls.__name__} has two rules called {rule.name!r}", fix="rename one")
            index.setdefault(rule.pattern.op_type, []).append((rule, required_ops(rule.pattern)))
        cls._index = index
        super().__init_subclass__()

    def run(self, graph: Graph) -> bool:
        """Apply the rules; linear in the number of nodes."""
        rules = self._possible_rules(graph)
        if not rules:
            return False
        edited = False
        placing = ValueReplacer(graph)
        for node in graph.body:
            for rule in () if node.is_erased else rules.get(node.op_type, ()):
                if self._apply(placing, graph, node, rule):
                    if not edited:  # from here on the graph may have ops that it lacked
                        rules = {key: [rule for rule, _ in pairs] for key, pairs in self._index.items()}
                    edited = True
                    break
        return edited

    def _possible_rules(self, graph: Graph) -> dict[str, list[Rule]]:
        """Return the rules all of whose ops the graph has, by the op type of the outermost call."""
        present = {node.op_type for node in graph.nodes}
        return {
            op_type: rules
            for op_type in present & self._index.keys()
            if (rules := [rule for rule, required in self._index[op_type] if required <= present])
        }

    def _apply(self, placing: ValueReplacer, graph: Graph, node: OpNode, rule: Rule) -> bool:
        """Rewrite the match of ``rule`` at ``node``, unless refused; return whether the graph was edited."""
        edits = graph.edits
        match, refused = self._find_match(graph, node, rule)
        if match is not None:
            refused = self._rewrite(placing, match, rule)
        if refused is not None:
            self.refuse(node, refused, rule.name)
        return graph.edits != edits

    def _find_match(self, graph: Graph, node: OpNode, rule: Rule) -> tuple[Match | None, str | None]:
        """Return the first match that is not refused; if there is none, why not the first or a near one."""
        refused = None
        try:
            for match in find_matches(graph, node, rule.pattern):
                reason = rule.find_problem(match)
                if reason is None:
                    return match, None
                refused = refused or reason
            if refused is None:
                refused = find_near_miss(graph, node, rule.pattern)
        except Exception as error:
            raise failure_of(f"{self.name}: {rule.name}", error, f"node {node.name!r}") from error
        return None, refused

    def _rewrite(self, placing: ValueReplacer, match: Match, rule: Rule) -> str | None:
        """Insert the replacement of a match; return why an output is not replaced, if one is not."""
        refused = None
        with self.rewrite(match.graph, rule.name, *match.nodes) as edit:
            for old, new in zip(match.root.outputs, rule.build(edit, match), strict=True):
                if new is not None:
                    refused = placing.replace(edit, old, new) or refused
            # Impure ones, too, which the rewrite itself erases only if they were replaced.
            for node in reversed(match.nodes):
                if not node.is_erased and not any(value.use_count for value in node.outputs):
                    edit.erase(node)
        return refused

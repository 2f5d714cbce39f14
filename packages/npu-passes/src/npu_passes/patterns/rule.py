"""Rule of a pattern pass: a pattern and its replacement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from npu_ir import Value
from npu_ir.ops.schema import find_op, schema_of
from npu_passes.core.edit import Edit
from npu_passes.errors import PassError
from npu_passes.patterns.matcher import Match
from npu_passes.patterns.terms import (
    Call,
    Kind,
    Namespace,
    OneOf,
    Op,
    Output,
    Term,
    Wildcard,
    wildcards,
)
from npu_passes.rewriting.arguments import defaults_of
from npu_passes.rewriting.value_replacement import equals_up_to_strides

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
    pattern: Call | Output
    replacement: Term | Callable[[Edit, Match], Value | Replacements]
    where: Callable[[Match], str | None] | None = None

    def __post_init__(self) -> None:
        if not isinstance(self.pattern, (Call, Output)):
            raise PassError(f"rule {self.name!r}: a pattern is a call of an op, not {self.pattern!r}")
        kinds: dict[str, Kind] = {}
        for item in wildcards(self.pattern):
            if kinds.setdefault(item.name, item.kind) is not item.kind:
                raise PassError(
                    f"rule {self.name!r}: {item.name!r} is {kinds[item.name].value}, and {item.kind.value}",
                    fix="give them two names",
                )
        if not self._is_function:
            for _, term in self._replaced_outputs():
                self._check_result(term)
        for item in wildcards(self.replacement):
            if item.name not in kinds:
                raise PassError(
                    f"rule {self.name!r}: the replacement has {item.name!r}, which the pattern lacks",
                    fix=f"the pattern has {', '.join(kinds) or 'no wildcards'}",
                )

    def _check_result(self, term: Term) -> None:
        """Raise if a term cannot replace an output."""
        is_value = isinstance(term, (Call, Output)) or (
            isinstance(term, Wildcard) and term.kind is not Kind.DATA
        )
        if term is not None and not is_value:
            raise PassError(
                f"rule {self.name!r}: the replacement is {term!r}, not a value",
                fix="it is a call, a wildcard for a value, or a function; a tuple of these for several"
                " outputs",
            )
        if _has_choice(term):
            raise PassError(
                f"rule {self.name!r}: one_of is for patterns: a replacement is one term",
                fix="write one rule for each, or a function",
            )

    def find_problem(self, match: Match) -> str | None:
        """Return why a match is refused; None if it is accepted."""
        elsewhere = match.find_outside_read()
        if elsewhere is not None:
            return f"%{elsewhere.name} is read elsewhere, too"
        for value in match.root.outputs:
            if value.use_count and not self._replaces(value.index):
                return f"its output %{value.name} is read, too"
        reason = None if self.where is None else self.where(match)
        if reason is not None and not isinstance(reason, str):
            raise PassError(
                f"where= returned {reason!r}", fix="it returns why a match is refused, in words, or None"
            )
        return self._find_misfit(match) if reason is None else reason

    def _find_misfit(self, match: Match) -> str | None:
        """Return why a matched argument cannot replace an output of the root; None if all can."""
        for index, term in self._replaced_outputs():
            old, new = (
                match.root.outputs[index],
                match.bound[term.name] if isinstance(term, Wildcard) else None,
            )
            if isinstance(new, Value) and old.use_count and not equals_up_to_strides(old.type, new.type):
                return f"the replacement %{new.name} is {new.type}, and %{old.name} is {old.type}"
        return None

    def _replaced_outputs(self) -> Iterable[tuple[int, Term]]:
        """Return the indices of outputs with the terms that replace them; not for a replacement function."""
        if isinstance(self.replacement, (tuple, list)):
            return enumerate(self.replacement)
        return [(self.pattern.index, self.replacement)]

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
        values = tuple(result) if isinstance(result, (tuple, list)) else None
        if values is None:
            values = tuple(result if value.index == self.pattern.index else None for value in outputs)
        if len(values) != len(outputs):
            raise PassError(f"there are {len(values)} replacements for {len(outputs)} outputs")
        for value, new in zip(outputs, values, strict=True):
            if not isinstance(new, Value) and (new is not None or value.use_count):
                raise PassError(f"the replacement of %{value.name} is {new!r}, not a value")
        return values

    @property
    def _is_function(self) -> bool:
        return not isinstance(self.replacement, (Op, Namespace)) and callable(self.replacement)

    def _replaces(self, index: int) -> bool:
        if isinstance(self.replacement, (tuple, list)):
            return index < len(self.replacement) and self.replacement[index] is not None
        return self._is_function or index == self.pattern.index


def _has_choice(term: Term) -> bool:
    if isinstance(term, (Call, Output)):
        return _has_choice(list(term.call.args.values()))
    return isinstance(term, OneOf) or (isinstance(term, (list, tuple)) and any(map(_has_choice, term)))


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
        if not isinstance(term, (Call, Output)):
            return term
        call = term.call
        if id(call) not in self._outputs:  # by identity: a term that appears twice is one node
            self._outputs[id(call)] = self._call(call, is_outermost)
        return self._outputs[id(call)][term.index]

    def _call(self, call: Call, is_outermost: bool) -> Sequence[Value]:
        args = {name: self.build(part, is_outermost=False) for name, part in call.args.items()}
        op = find_op(call.op_type)
        if op is not None and call.has_schema:
            positional = _pop_positional(args, defaults_of(op), op)
            return self._edit.calls(call.op_type, *positional, **args)
        positional = [args.pop(name) for name in list(args) if name.isdecimal()]
        # The type of an op without schema cannot be inferred; the outermost call keeps the replaced one.
        types = [self._old.type] if is_outermost and op is None else None
        return self._edit.calls(call.op_type, *positional, types=types, **args)


def _pop_positional(args: dict[str, Any], defaults: Mapping[str, Any], op: Any) -> list[Any]:
    """Pop the arguments from ``args`` that can be positional; return them in order.

    Schemas have arguments called ``self`` and ``name``, which clash with parameters of `Edit.calls`.
    """
    names = [arg.name for arg in schema_of(op).args if not arg.kwarg_only]
    while names and names[-1] not in args:
        names.pop()
    return [args.pop(name) if name in args else defaults.get(name) for name in names]

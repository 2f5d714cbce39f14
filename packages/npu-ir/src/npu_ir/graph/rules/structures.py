"""Rules of structures, for those written by hand, parsed from text or loaded from a file."""

from __future__ import annotations

from collections.abc import Callable

from npu_ir.core.literals import Literal
from npu_ir.core.structure import (
    DEFAULTS,
    LEAF,
    LEAF_STRUCTURE,
    MAX_DEPTH,
    Structure,
    dict_keys,
)


def structure_problem(structure: Structure, depth: int = 0) -> str | None:
    """Return the first problem with a structure or its children, or None."""
    if structure.kind == LEAF:
        return None if structure == LEAF_STRUCTURE else "a leaf is not a container"
    if depth >= MAX_DEPTH:
        return f"containers nested deeper than {MAX_DEPTH}"
    problem = context_problem(structure.kind, structure.context, len(structure.children))
    problems = (structure_problem(child, depth + 1) for child in structure.children)
    return problem or next(filter(None, problems), None)


def call_problem(structure: Structure) -> str | None:
    """Return why a structure is not that of ``(args, kwargs)``, or None."""
    problem = structure_problem(structure)
    is_call = structure.kind == "tuple" and [child.kind for child in structure.children] == ["tuple", "dict"]
    if problem is None and not (
        is_call and all(isinstance(name, str) for name in structure.children[1].context)
    ):
        return "a call is a tuple of two: the arguments in a tuple, the keyword arguments, by name, in a dict"
    return problem


def context_problem(kind: str, context: Literal, count: int) -> str | None:
    """Return why a container of this kind cannot have this context and ``count`` elements, or None."""
    if kind == LEAF:
        return "a leaf is not a container"
    find_problem = _CONTEXT_PROBLEMS.get(kind)
    return None if find_problem is None else find_problem(context, count)


def _require_no_context(kind: str) -> Callable[[Literal, int], str | None]:
    return lambda context, _: None if context is None else f"a {kind} has no context"


def _keys_problem(keys: Literal, count: int) -> str | None:
    if not isinstance(keys, list) or len(keys) != count:
        return f"expected a list of {count} keys"
    return None if len(set(dict_keys(keys))) == count else "two keys of a dict are equal"


def _defaultdict_problem(context: Literal, count: int) -> str | None:
    if (
        not isinstance(context, list)
        or len(context) != 2
        or isinstance(context[0], list)
        or context[0] not in DEFAULTS
    ):
        return "expected the name of the default and the keys"
    return _keys_problem(context[1], count)


def _namedtuple_problem(context: Literal, count: int) -> str | None:
    if not (isinstance(context, list) and len(context) == 2 and isinstance(context[0], str)):
        return "expected the name of the type and its fields"
    problem = _keys_problem(context[1], count)
    if problem is None and not all(isinstance(field, str) and field.isidentifier() for field in context[1]):
        return "the fields of a named tuple are identifiers"
    return problem


_CONTEXT_PROBLEMS: dict[str, Callable[[Literal, int], str | None]] = {
    **{kind: _require_no_context(kind) for kind in ("tuple", "list", "torch.Size")},
    "dict": _keys_problem,
    "collections.OrderedDict": _keys_problem,
    "defaultdict": _defaultdict_problem,
    "namedtuple": _namedtuple_problem,
}

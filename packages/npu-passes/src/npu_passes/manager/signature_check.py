"""Check of a graph's signature, which passes preserve: arguments, results, mutated state and weights."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from npu_ir import Graph, TensorType, Value
from npu_ir.core.literals import format_literal
from npu_ir.core.node import external_names
from npu_ir.core.structure import Structure, describe


def find_signature_change(before: Graph, after: Graph) -> str | None:
    """Return a difference between two graphs that their callers would see; None if there is none.

    The strides of results may differ, a returned number may become plain data, and weights may become unused.
    """
    return next(_find_changes(before, after), None)


def _find_changes(before: Graph, after: Graph) -> Iterator[str]:
    yield from _find_tree_changes("takes", *_arguments(after), *_arguments(before))
    yield from _find_tree_changes("returns", *_results(after), *_results(before))
    updates = [sorted(external_names(target)[0] for target in graph.updates) for graph in (after, before)]
    if updates[0] != updates[1]:
        now, was = (", ".join(names) or "nothing" for names in updates)
        yield f"it updates {now}; before, {was}"
    for name in sorted(_weight_names(after) - _weight_names(before)):
        yield f"it needs a weight {name!r}, which no checkpoint has"


def _find_tree_changes(
    verb: str, now: Structure, paths: list[str], leaves: Sequence[Any], was: Structure, *before: Any
) -> Iterator[str]:
    paths_before, leaves_before = before
    if paths != paths_before:
        yield f"it {verb} {', '.join(paths) or 'nothing'}; before, {', '.join(paths_before) or 'nothing'}"
    elif now != was:
        yield f"it {verb} {describe(now)}; before, {describe(was)}"
    else:
        for path, new, old in zip(paths, leaves, leaves_before, strict=True):
            if not _can_replace(new, old, may_be_known=verb == "returns"):
                yield f"it {verb} {_describe(new)} as {path}; before, {_describe(old)}"


def _arguments(graph: Graph) -> tuple[Structure, list[str], Sequence[Any]]:
    structure, leaves = graph.call
    args, kwargs = structure.children
    return structure, [*args.leaf_paths("args"), *kwargs.leaf_paths("kwargs")], leaves


def _results(graph: Graph) -> tuple[Structure, list[str], Sequence[Any]]:
    structure, leaves = graph.results
    return structure, list(structure.leaf_paths("result")), leaves


def _can_replace(new: Any, old: Any, *, may_be_known: bool) -> bool:
    """Return whether one leaf can replace another: a value of the same type, or the same data."""
    if isinstance(old, Value) and isinstance(new, Value):
        if isinstance(old.type, TensorType):
            return old.type.same_shape_and_dtype(new.type)
        return not isinstance(new.type, TensorType) and old.type.kind == new.type.kind
    if isinstance(old, Value):
        return may_be_known and not isinstance(old.type, TensorType)
    return not isinstance(new, Value) and format_literal(new) == format_literal(old)


def _describe(leaf: Any) -> str:
    return repr(leaf) if isinstance(leaf, Value) else format_literal(leaf)


def _weight_names(graph: Graph) -> set[str]:
    return {name for value in graph.weights for name in external_names(value)}

"""The order of passes: by their constraints, and in a pipeline with the passes that join it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from npu_passes.core.base import Pass
from npu_passes.core.registry import origin_of
from npu_passes.errors import PassError


def join_passes(pipeline: str, own: list[Pass], joining: list[Pass]) -> list[Pass]:
    """Return the passes of a pipeline with those that join it, none of which may reorder it."""
    fixed = sort_passes(own)
    if not joining:
        return fixed
    # First none, then each joining pass alone, so that an error names the one at fault; then all of them.
    for many in ([], *([item] for item in joining), joining):
        try:
            order = sort_passes([*fixed, *many], fixed=len(fixed))
        except PassError as error:
            origins = list(dict.fromkeys(origin_of(item.name) for item in many))
            disabled = ",".join(origin.partition(" ")[0] for origin in origins)
            raise PassError(
                f"{', '.join(item.name for item in many)} cannot join the pipeline {pipeline!r},"
                f" whose own passes run as {','.join(map(str, fixed))}: {error.message}",
                where=", ".join(origins),
                fix=f"set NPU_DISABLE_PLUGINS={disabled}; the author can change before=, after= or"
                " pipelines=",
            ) from error
    return order


def sort_passes(passes: Sequence[Pass], *, fixed: int = 0) -> list[Pass]:
    """Return passes sorted to satisfy their ``before`` and ``after``, and otherwise in the given order.

    Constraints hold for each occurrence of a pass that is listed several times; the occurrences keep their
    order. The first ``fixed`` passes keep their relative order.

    Raises:
        PassError: The constraints contradict each other; names the passes of a cycle.
    """
    # Stable topological sort (Kahn's algorithm): of the passes that may run next, the first one given.
    earlier: dict[int, set[int]] = {index: set() for index in range(len(passes))}
    for index, item in enumerate(passes):
        if 0 < index < fixed:
            earlier[index].add(index - 1)
        for other_index, other in enumerate(passes):
            if other.name == item.name:
                continue
            if other.name in item.after or item.name in other.before:
                earlier[index].add(other_index)
    order: list[int] = []
    remaining = dict.fromkeys(range(len(passes)))
    while remaining:
        free = next((index for index in remaining if not earlier[index] & remaining.keys()), None)
        if free is None:
            names = _find_cycle(earlier, remaining, passes)
            raise PassError(
                f"the passes {' -> '.join(names)} must each run before the next",
                fix="remove one of them, or change its before= or after=",
            )
        del remaining[free]
        order.append(free)
    return [passes[index] for index in order]


def _find_cycle(earlier: dict[int, set[int]], among: Iterable[int], passes: Sequence[Pass]) -> list[str]:
    """Return the names on a cycle of constraints, each to come before the next; the first one is repeated."""
    # Every remaining pass waits for a remaining one: following predecessors must come back to a pass.
    among = list(among)
    seen: list[int] = []
    at = among[0]
    while at not in seen:
        seen.append(at)
        at = min(earlier[at] & set(among))
    cycle = seen[seen.index(at) :]
    return [passes[index].name for index in (at, *reversed(cycle))]

"""Choice of values for symbolic input sizes that the given inputs do not determine."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice

from npu_ir.errors import UsageError
from npu_ir.graph.graph import Graph
from npu_ir.symbolic.constraints import Range

_MAX_CANDIDATES = 4096  # candidates for one symbol


def choose_sizes(graph: Graph, inferred: Mapping[str, int], wanted: Mapping[str, int]) -> dict[str, int]:
    """Return a value for each symbol in the sizes of inputs that is not in ``inferred`` by given inputs.

    It is the wanted one, otherwise the smallest from 2 on that ranges and constraints allow, otherwise 1 or
    less.

    Raises:
        UsageError: A wanted symbol is in no input, or its value is out of range or differs from that in
            ``inferred``; or no value is found that the constraints allow.
    """
    names = [name for name in graph.symbols if any(name in value.type.symbols for value in graph.inputs)]
    for name, size in wanted.items():
        _require_possible(graph, names, name, size, inferred)
    values = {**inferred, **wanted}
    chosen = {}
    for name in names:
        if name not in values:
            chosen[name] = values[name] = _smallest(graph, name, values)
        elif name not in inferred:
            chosen[name] = values[name]
    return chosen


def _require_possible(
    graph: Graph, names: Iterable[str], name: str, size: int, inferred: Mapping[str, int]
) -> None:
    if name not in graph.symbols:
        fix = f"its symbols: {', '.join(graph.symbols) or 'none'}"
        raise UsageError(f"the graph has no symbol {name!r}", fix=fix)
    if name not in names:
        raise UsageError(f"the size {name!r} is not in an input: it depends on their content")
    if size not in graph.symbols[name]:
        raise UsageError(f"the size {name!r} cannot be {size}: it is in {graph.symbols[name]}")
    if inferred.get(name, size) != size:
        reason = f"the inputs that are given make it {inferred[name]}"
        raise UsageError(f"the size {name!r} cannot be {size}: {reason}")


def _smallest(graph: Graph, name: str, values: Mapping[str, int]) -> int:
    """Return the first candidate that satisfies all constraints on it and ``values`` alone."""
    # Greedy, without backtracking: a constraint counts for the last of its symbols to get a value.
    assigned = values.keys() | {name}
    decided = [item for item in graph.constraints if name in item.symbols and item.symbols <= assigned]
    for value in islice(_candidates(graph.symbols[name]), _MAX_CANDIDATES):
        if all(constraint.holds({**values, name: value}) for constraint in decided):
            return value
    raise UsageError(
        f"no size {name!r} is found that the graph allows: {', '.join(map(str, decided))}",
        fix="give the sizes: --size NAME=NUMBER",
    )


def _candidates(allowed: Range) -> Iterable[int]:
    # From 2 on first: torch.export specializes a graph on the sizes 0 and 1.
    low = 0 if allowed.low is None else allowed.low
    high = max(low, 2) + _MAX_CANDIDATES if allowed.high is None else allowed.high
    return (
        *range(max(low, 2), min(high + 1, max(low, 2) + _MAX_CANDIDATES)),
        *range(min(high, 1), low - 1, -1),
    )

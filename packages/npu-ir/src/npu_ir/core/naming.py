"""What values and nodes are called."""

from __future__ import annotations

from collections.abc import Mapping


def unique_name(taken: Mapping[str, object], counters: dict[str, int], name: str) -> str:
    """Return ``name``, or the next free one of ``name#1``, ``name#2``, ...

    Args:
        taken: The names in use.
        counters: The last number given out for each name; kept up to date, so that this is O(1).
        name: The wanted name; a number behind ``#`` does not count as part of it.
    """
    if name not in taken:
        return name
    base, _, suffix = name.rpartition("#")
    base = base if base and suffix.isdigit() else name
    count = counters.get(base, 0) + 1
    while f"{base}#{count}" in taken:
        count += 1
    counters[base] = count
    return f"{base}#{count}"


def short_name(op_type: str) -> str:
    """Return what to call a node of ``op_type``: ``conv2d`` for ``aten.conv2d.default``."""
    parts = op_type.strip("<>").split(".")
    return parts[1] if len(parts) > 1 else parts[0].split(" ")[-1]


def default_output_names(node_name: str, count: int) -> list[str]:
    """Return the wanted output names of a node: its own, numbered where there are several."""
    return [node_name] if count == 1 else [f"{node_name}.{index}" for index in range(count)]

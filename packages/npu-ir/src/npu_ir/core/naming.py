"""Unique and default names of values and nodes."""

from __future__ import annotations

from collections.abc import Mapping


def unique_name(taken: Mapping[str, object], counters: dict[str, int], name: str) -> str:
    """Return ``name``, or the next free one of ``name#1``, ``name#2``, ...

    A numeric suffix after ``#`` is not part of the preferred name. ``counters`` has the last number assigned
    for each name; it is updated, so that this is O(1) amortized.
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
    """Return the default name of a node of ``op_type``: ``conv2d`` for ``aten.conv2d.default``."""
    parts = op_type.strip("<>").split(".")
    return parts[1] if len(parts) > 1 else parts[0].split(" ")[-1]


def default_output_names(node_name: str, count: int) -> list[str]:
    """Return the default output names of a node: its own name, numbered if it has several outputs."""
    return [node_name] if count == 1 else [f"{node_name}.{index}" for index in range(count)]

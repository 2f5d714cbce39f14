"""FX nodes that stand for others: in no graph, but converted like the one they stand for."""

from __future__ import annotations

from typing import Any

from torch.fx import Node


def stand_in(node: Node, op: Any, args: tuple[Any, ...], value: Any, name: str = "") -> Node:
    """Return an FX node that calls ``op`` in place of ``node`` and returns what ``value`` is like.

    It comes from where ``node`` comes from, and has its name unless it gets another.
    """
    made = Node(node.graph, name or node.name, "call_function", op, (), {})
    made._args = args  # without making it a user of what it reads
    made.meta = {**node.meta, "val": value}
    return made

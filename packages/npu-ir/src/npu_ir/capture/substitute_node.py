"""FX nodes that stand for others: in no graph, but converted like the one they stand for."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node


def stand_in(node: Node, op: Any, args: tuple[Any, ...], value: Any, name: str = "") -> Node:
    """Return an FX node that calls ``op`` in place of ``node`` and returns what ``value`` is like.

    It comes from where ``node`` comes from, and has its name unless it gets another.
    """
    made = Node(node.graph, name or node.name, "call_function", op, (), {})
    made._args = args  # without making it a user of what it reads
    made.meta = {**node.meta, "val": value}
    return made


def plain_index(node: Node) -> Node | None:
    """Return ``x[i, j]`` in a score function of ``flex_attention`` as a call of ``aten.index``; else None.

    PyTorch hides it in an operator of its own, for the sake of gradients (torch 2.13).
    """
    name = getattr(node.target, "__name__", "")
    if name != "flat_apply" or not str(node.args[2]).endswith(".ModIndex"):
        return None
    tensor, *indices = node.args[3:]
    return stand_in(node, torch.ops.aten.index.Tensor, (tensor, indices), node.meta["val"], "index")

"""Substitute FX nodes: not part of any graph, but converted in place of another node."""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node


def make_substitute_node(node: Node, op: Any, args: tuple[Any, ...], value: Any, name: str = "") -> Node:
    """Return an FX node that calls ``op`` in place of ``node``, with the result ``value``.

    It has the provenance of ``node``, and its name by default.
    """
    substitute = Node(node.graph, name or node.name, "call_function", op, (), {})
    substitute._args = args  # set directly, as the args setter would register it as a user of its operands
    substitute.meta = {**node.meta, "val": value}
    return substitute


def unwrap_index(node: Node) -> Node | None:
    """Return ``x[i, j]`` in a score function of ``flex_attention`` as a call of ``aten.index``; else None.

    PyTorch wraps it in a special operator for the sake of gradients (torch 2.13).
    """
    name = getattr(node.target, "__name__", "")
    if name != "flat_apply" or not str(node.args[2]).endswith(".ModIndex"):
        return None
    tensor, *indices = node.args[3:]
    return make_substitute_node(
        node, torch.ops.aten.index.Tensor, (tensor, indices), node.meta["val"], "index"
    )

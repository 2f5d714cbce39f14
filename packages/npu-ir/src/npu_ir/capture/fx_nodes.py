"""Nodes of FX graphs: the bodies that they run, their provenance, and substitutes for them."""

from __future__ import annotations

import operator
import os
import re
import sys
from collections.abc import Iterator
from typing import Any

import torch
from torch.fx import GraphModule, Node

from npu_ir.core.node import Provenance

GRAD_REGION = "wrap_with_set_grad_enabled"
AUTOCAST_REGION = "wrap_with_autocast"
# The call that torch.export 2.13 leaves of an autocast region around control flow.
ENTER_AUTOCAST = "_enter_autocast"
# Calls of custom ops that write, on copies (`npu_ir._torch.ops.functional_call`), or on copies of bases, from
# which they create the views. PyTorch's own functionalization leaves the latter (torch 2.13).
FUNCTIONAL_CALL, FUNCTIONAL_CALL_ON_VIEWS = "auto_functionalized", "auto_functionalized_v2"


def nodes(module: torch.nn.Module) -> Iterator[Node]:
    """Yield the nodes of ``module`` and of all bodies in it."""
    for part in module.modules():
        if isinstance(part, GraphModule):
            yield from part.graph.nodes


def attribute_of(node: Node, module: GraphModule) -> Any:
    """Return the attribute of ``module`` that a ``get_attr`` node reads."""
    return operator.attrgetter(str(node.target))(module)


def bodies(node: Node, module: GraphModule) -> Iterator[GraphModule]:
    """Yield the bodies that ``node``, a node of ``module``, runs."""
    for item in node.all_input_nodes:
        if item.op == "get_attr" and isinstance(body := attribute_of(item, module), GraphModule):
            yield body


def is_call_of(node: Node, *names: str) -> bool:
    """Return whether ``node`` calls a function, or runs a body, of one of these names."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") in names


# The key of the phase of a training step in the metadata of an FX node, under "custom", which PyTorch keeps.
PHASE = "npu_ir.phase"
_FRAME = re.compile(r'File "([^"<][^"]*)", line (\d+)')  # not <eval_with_key>, code that PyTorch generated
_TORCH_DIRECTORY = os.path.dirname(torch.__file__) + os.sep


def provenance_of(node: torch.fx.Node) -> Provenance:
    """Return module path, ``file:line`` and phase of ``node``; empty where its metadata lacks them."""
    phase = (node.meta.get("custom") or {}).get(PHASE, "")
    return Provenance(_module_path(node), _relative_to_import_path(source_line(node)), phase=phase)


def _relative_to_import_path(path: str) -> str:
    """Return ``path`` relative to its entry of ``sys.path``, which is the same on every machine."""
    folders = [folder for folder in sys.path if folder and path.startswith(os.path.join(folder, ""))]
    return path[len(os.path.join(max(folders, key=len), "")) :] if folders else path


def _module_path(node: torch.fx.Node) -> str:
    stack = node.meta.get("nn_module_stack")
    if not stack:
        return ""
    path = next(reversed(stack.values()))[0]
    return str(path).removeprefix("L['self'].").removeprefix("L['self']")


def source_line(node: torch.fx.Node) -> str:
    """Return the innermost ``file:line`` outside PyTorch; one inside it if there is no other."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    outside = [frame for frame in frames if not frame[0].startswith(_TORCH_DIRECTORY)]
    chosen = (outside or frames)[-1:]
    return ":".join(chosen[0]) if chosen else ""


def location_of(node: torch.fx.Node) -> str:
    """Return the location of an error: the FX node and the user's source line."""
    line = source_line(node)
    return f"node {node.name!r}" + (f", {line}" if line else "")


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
    if not is_call_of(node, "flat_apply") or not str(node.args[2]).endswith(".ModIndex"):
        return None
    tensor, *indices = node.args[3:]
    return make_substitute_node(
        node, torch.ops.aten.index.Tensor, (tensor, indices), node.meta["val"], "index"
    )

"""The nested FX graphs of an FX graph: branches, loop bodies, regions with their own gradient mode."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch.fx import Graph as FxGraph
from torch.fx import GraphModule, Node

GRAD_REGION = "wrap_with_set_grad_enabled"
AUTOCAST_REGION = "wrap_with_autocast"
# The call that torch.export 2.13 leaves of an autocast region around control flow.
ENTER_AUTOCAST = "_enter_autocast"


def graphs(module: torch.nn.Module) -> Iterator[FxGraph]:
    """Yield the graph of ``module`` and those of all bodies in it."""
    yield from (part.graph for part in module.modules() if isinstance(part, GraphModule))


def nodes(module: torch.nn.Module) -> Iterator[Node]:
    """Yield the nodes of ``module`` and of all bodies in it."""
    for graph in graphs(module):
        yield from graph.nodes


def bodies(node: Node, module: GraphModule) -> Iterator[GraphModule]:
    """Yield the bodies that ``node``, a node of ``module``, runs."""
    for item in node.all_input_nodes:
        if item.op == "get_attr":
            attribute = module
            for step in str(item.target).split("."):
                attribute = getattr(attribute, step)
            if isinstance(attribute, GraphModule):
                yield attribute


def is_call_of(node: Node, *names: str) -> bool:
    """Return whether ``node`` calls a function, or runs a body, of one of these names."""
    return node.op == "call_function" and getattr(node.target, "__name__", "") in names

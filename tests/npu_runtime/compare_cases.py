"""Shared by tests of comparisons: models, and a wrong pass."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from npu_ir import Graph, extract_ir, parse_ir
from npu_passes import Pass
from tests.support.corpus.case import Function

GELU, SIN, RELU = "aten.gelu.default", "aten.sin.default", "aten.relu.default"


class Block(nn.Module):
    """A linear layer, an activation whose result is small, and a factor that makes differences large."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.nn.functional.gelu(self.linear(x))
        return (hidden * 1000).sin() + hidden


class Counting(nn.Module):
    """Has a buffer that each call changes, and takes an argument that it changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.register_buffer("secret", torch.ones(2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(x.relu())
        self.secret.mul_(2.0)
        return self.count + x + self.secret


def graph_of(function: Callable[..., Any], *args: Any) -> Graph:
    return extract_ir(Function(function), args)


class ReluToNeg(Pass):
    """Change what a graph computes."""

    name = "relu-to-neg"

    def run(self, graph: Graph) -> bool:
        found = list(graph.nodes_of(RELU))
        for node in found:
            with self.rewrite(graph, "to-neg", node) as edit:
                edit.replace(node.outputs[0], edit.call("aten.neg.default", node.inputs[0]))
        return bool(found)


class Layer(Function):
    """Calls a function with itself, which has weights, and the arguments."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        self.linear = nn.Linear(4, 4)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def changed(graph: Graph, old: str, new: str) -> Graph:
    """Return a graph with another attribute; provenance is lost with the text."""
    assert str(graph).count(old) == 1
    return parse_ir(str(graph).replace(old, new))


def changed_op(graph: Graph, old: str, new: str) -> Graph:
    """Return a graph with another op, of the same name."""
    return changed(graph, f"aten.{old}.default", f"aten.{new}.default")

"""Shared by tests of comparisons: models, wrong passes, backends."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Graph, extract_ir, parse_ir
from npu_passes import Pass
from npu_runtime.diagnostics.compare import Comparison
from npu_runtime.diagnostics.compare.comparison import Row
from tests.support.corpus.case import Function

GELU, SIN, RELU = "aten.gelu.default", "aten.sin.default", "aten.relu.default"


class Block(nn.Module):
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


def divergence(found: Comparison) -> Row:
    """Return the first divergence of a comparison that must have found one."""
    assert found.first_divergence is not None, str(found)
    return found.first_divergence


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
    assert str(graph).count(old) == 1
    return parse_ir(str(graph).replace(old, new))


def changed_op(graph: Graph, old: str, new: str) -> Graph:
    return changed(graph, f"aten.{old}.default", f"aten.{new}.default")


_ACTIVATIONS: tuple[Callable[[Tensor], Tensor], ...] = (
    F.relu,
    lambda x: F.relu(x, inplace=True),
    lambda x: F.relu_(x * 1),
    F.hardswish,
    F.silu,
    F.gelu,
    lambda x: x.clone().relu_(),
)


class Unit(nn.Module):
    """Two convolutions and norms around activations, added to what came in; all images have one shape."""

    def __init__(self, pick: random.Random, channels: int) -> None:
        super().__init__()
        kernel = pick.choice([1, 3])
        self.first = nn.Conv2d(channels, channels, kernel, 1, kernel // 2, bias=pick.random() < 0.5)
        self.second = nn.Conv2d(channels, channels, 3, 1, 1, bias=pick.random() < 0.5)
        self.norms = nn.ModuleList(pick.choice([nn.BatchNorm2d(channels), nn.Identity()]) for _ in range(2))
        self.inner, self.outer = pick.choice(_ACTIVATIONS), pick.choice(_ACTIVATIONS)
        self.join = pick.choice(["add", "add_", "cat", "none"])
        self.halve = nn.Conv2d(2 * channels, channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(self.norms[0](self.first(x)))
        y = self.norms[1](self.second(y))
        if self.join == "add":
            y = y + x
        elif self.join == "add_":
            y += x
        elif self.join == "cat":
            y = self.halve(torch.cat([x, y], 1))
        return self.outer(y)


class Residual(nn.Module):
    """A stem, some units, one of which may be there twice, and a linear head."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        pick = random.Random(seed)
        channels = pick.choice([4, 8, 16])
        self.stem = nn.Conv2d(3, channels, 3, pick.choice([1, 2]), 1)
        self.units = nn.ModuleList(Unit(pick, channels) for _ in range(pick.randint(1, 3)))
        self.again = pick.random() < 0.3
        self.pool = pick.choice([nn.MaxPool2d(2), nn.AvgPool2d(2), nn.Identity()])
        self.head = nn.Linear(channels, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = self.pool(self.stem(x))
        for unit in (*self.units, *self.units[:1]) if self.again else self.units:
            x = unit(x)
        return self.head(x.mean((2, 3)))


def random_model(seed: int) -> tuple[nn.Module, Tensor]:
    """Return a model in evaluation mode, with norms that have seen data, and an input."""
    torch.manual_seed(seed)
    model = Residual(seed)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            statistics: Any = module.running_mean, module.running_var
            statistics[0].normal_()
            statistics[1].uniform_(0.5, 2)
    return model.eval(), torch.randn(2, 3, 12, 12)

"""Weights in modules: tied, in lists and dicts, under odd names, unused, frozen."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, randint, randn

from tests.support.corpus.case import Call, Table, call

CASES = Table()
module = CASES.module


def rows() -> Call:
    return call(randn(3, 4))


def add(inputs: Any = rows) -> Any:
    return CASES.add(inputs)


@add(lambda: call(randint(0, 10, (2, 3))))
class TiedEmbedding(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4)
        self.head = nn.Linear(4, 10, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Any) -> Any:
        return self.head(self.embedding(tokens))


@add()
class TiedThreeTimes(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
        for layer in self.layers[1:]:
            layer.weight = self.layers[0].weight
        self.alias = self.layers[0].bias

    def forward(self, x: Any) -> Any:
        for layer in self.layers:
            x = layer(x)
        return x + self.alias


@add()
class SameModuleUnderTwoNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = self.second = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.second(self.first(x))


@add()
class BuffersUnderTwoNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        shared = randn(4)
        self.register_buffer("a", shared)
        self.register_buffer("b", shared, persistent=False)
        self.register_buffer("c", shared)

    def forward(self, x: Any) -> Any:
        return x * self.a + self.b - self.c


@add()
class ParameterIsViewOfAnother(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(randn(4, 4))
        self.register_buffer("row", self.weight.detach()[0])

    def forward(self, x: Any) -> Any:
        return x @ self.weight + self.row


@add()
class UnusedWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used = nn.Linear(4, 4)
        self.never = nn.Linear(4, 2)
        self.register_buffer("nothing", torch.zeros(3))
        self.register_parameter("absent", None)
        self.register_buffer("missing", None)

    def forward(self, x: Any) -> Any:
        return self.used(x)


@add()
class OddNames(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_parameter("weird name", nn.Parameter(randn(4)))
        self.register_parameter("gewicht_ß", nn.Parameter(randn(4)))
        self.register_buffer("重み", randn(4))
        self.register_buffer('say "hi"\n%x', randn(4))
        self.add_module("input", nn.Linear(4, 4))
        self.add_module("return", nn.Linear(4, 4))
        self.add_module("0#1", nn.Linear(4, 4))

    def forward(self, x: Any) -> Any:
        y = getattr(self, "return")(self.input(x)) + getattr(self, "0#1")(x)
        return y * self._parameters["weird name"] + self.gewicht_ß - self.重み * self._buffers['say "hi"\n%x']


@add()
class ListsAndDicts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList([randn(4), randn(4, 4)])
        self.named = nn.ParameterDict({"scale": randn(4), "odd key": randn(4)})
        self.blocks = nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ModuleList([nn.Tanh()])})

    def forward(self, x: Any) -> Any:
        y = self.blocks["a"](x) @ self.weights[1] + self.weights[0]
        return self.blocks["b"][0](y * self.named["scale"] - self.named["odd key"])


@add()
class IntegerAndBooleanBuffers(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("order", torch.tensor([3, 1, 0, 2]))
        self.register_buffer("mask", torch.tensor([True, False, True, True]))
        self.register_buffer("scale", torch.tensor(2, dtype=torch.int8))
        self.register_buffer("halves", randn(4).half())

    def forward(self, x: Any) -> Any:
        return torch.where(self.mask, x[:, self.order], 0) * self.scale + self.halves


@add()
class FrozenWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.free = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.free(self.frozen(x))

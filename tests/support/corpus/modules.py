"""Weights in modules: tied, in lists and dicts, under odd names, unused, frozen."""

from typing import Any

import torch
from torch import nn, randint, randn

from tests.support.corpus.case import Holding, Table, call, floats

CASES = Table(floats((3, 4)))
module = CASES.module


def tied_embedding() -> nn.Module:
    embedding, head = nn.Embedding(10, 4), nn.Linear(4, 10, bias=False)
    head.weight = embedding.weight
    return Holding(lambda self, tokens: self.head(self.embedding(tokens)), embedding=embedding, head=head)


def tied_three_times() -> nn.Module:
    layers = nn.Sequential(*(nn.Linear(4, 4) for _ in range(3)))
    for layer in layers[1:]:
        layer.weight = layers[0].weight
    return Holding(lambda self, x: self.layers(x) + self.alias, layers=layers, alias=layers[0].bias)


def same_module_under_two_names() -> nn.Module:
    layer = nn.Linear(4, 4)
    return Holding(lambda self, x: self.second(self.first(x)), first=layer, second=layer)


def buffers_under_two_names() -> nn.Module:
    shared = randn(4)
    model = Holding(lambda self, x: x * self.a + self.b - self.c, a=shared, c=shared)
    model.register_buffer("b", shared, persistent=False)
    return model


def parameter_is_view_of_another() -> nn.Module:
    weight = nn.Parameter(randn(4, 4))
    return Holding(lambda self, x: x @ self.weight + self.row, weight=weight, row=weight.detach()[0])


def unused_weights() -> nn.Module:
    model = Holding(
        lambda self, x: self.used(x), used=nn.Linear(4, 4), never=nn.Linear(4, 2), nothing=torch.zeros(3)
    )
    model.register_parameter("absent", None)
    model.register_buffer("missing", None)
    return model


module("tied_embedding", tied_embedding, lambda: call(randint(0, 10, (2, 3))))
module("tied_three_times", tied_three_times)
module("same_module_under_two_names", same_module_under_two_names)
module("buffers_under_two_names", buffers_under_two_names)
module("parameter_is_view_of_another", parameter_is_view_of_another)
module("unused_weights", unused_weights)


@CASES.add()
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


@CASES.add(
    holding=lambda: {
        "weights": nn.ParameterList([randn(4), randn(4, 4)]),
        "named": nn.ParameterDict({"scale": randn(4), "odd key": randn(4)}),
        "blocks": nn.ModuleDict({"a": nn.Linear(4, 4), "b": nn.ModuleList([nn.Tanh()])}),
    }
)
def lists_and_dicts(self: Any, x: Any) -> Any:
    y = self.blocks["a"](x) @ self.weights[1] + self.weights[0]
    return self.blocks["b"][0](y * self.named["scale"] - self.named["odd key"])


@CASES.add(
    holding=lambda: {
        "order": torch.tensor([3, 1, 0, 2]),
        "mask": torch.tensor([True, False, True, True]),
        "scale": torch.tensor(2, dtype=torch.int8),
        "halves": randn(4).half(),
    }
)
def integer_and_boolean_buffers(self: Any, x: Any) -> Any:
    return torch.where(self.mask, x[:, self.order], 0) * self.scale + self.halves


@CASES.add(holding=lambda: {"frozen": nn.Linear(4, 4).requires_grad_(False), "free": nn.Linear(4, 4)})
def frozen_weights(self: Any, x: Any) -> Any:
    return self.free(self.frozen(x))

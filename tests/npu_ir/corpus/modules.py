"""How modules hold their weights: tied, parametrized, in lists and dicts, under odd names, hooked, nested."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn, randint, randn
from torch.nn import functional as fn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm

from tests.npu_ir.corpus.case import Call, Table, call

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


@add()
class DataOfWeights(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return fn.linear(x, self.linear.weight.data.T, self.linear.bias.detach()) + x.data


class ExtraState(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"version": 3}

    def set_extra_state(self, state: Any) -> None:
        return None


module("extra_state", lambda: ExtraState(4, 2), rows)
module("weight_norm", lambda: parametrizations.weight_norm(nn.Linear(4, 3)), rows)
module("weight_norm_by_hook", lambda: weight_norm(nn.Linear(4, 3)), rows)
module("spectral_norm_eval", lambda: parametrizations.spectral_norm(nn.Linear(4, 3)).eval(), rows)
module("spectral_norm_training", lambda: parametrizations.spectral_norm(nn.Linear(4, 3)), rows)
module("spectral_norm_by_hook", lambda: spectral_norm(nn.Linear(4, 3)).eval(), rows)
module("orthogonal", lambda: parametrizations.orthogonal(nn.Linear(4, 4)), rows, meta_by_moving=True)


class Symmetric(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.triu() + x.triu(1).T


def symmetric() -> nn.Module:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric(), unsafe=True)
    return layer


module("parametrized", symmetric, rows)
module("pruned", lambda: prune.l1_unstructured(nn.Linear(4, 3), "weight", amount=0.5), rows)


class PerRow(nn.Module):
    """A module applied to every row by vmap."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        y = torch.vmap(lambda row, scale: torch.relu_(self.linear(row)) * scale, in_dims=(0, None))(x, x[0])
        y.add_(1)
        return y


class GradientInside(nn.Module):
    def forward(self, x: Any) -> Any:
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad((x**3).sum(), x)
        return gradient


module("vmap", PerRow, rows)
module("autograd_grad", GradientInside, rows)


def hooked() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    layer.register_forward_hook(lambda module, args, output: output + 1)
    layer.register_forward_hook(lambda module, args, kwargs, output: output * 3, with_kwargs=True)
    return nn.Sequential(layer, nn.ReLU())


module("hooks", hooked, rows)


class Nested(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.inner = Nested(depth - 1) if depth else nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.inner(x) + 1


module("nested_30_deep", lambda: Nested(30), rows)
module("sequential_of_60", lambda: nn.Sequential(*(nn.Linear(4, 4) for _ in range(60))), rows)


@add()
def unrolled_loop_of_1000_ops(x: Any) -> Any:
    for step in range(500):
        x = x * 0.99 + step
    return x


@add()
class EarlyExit(nn.Module):
    """Control flow on Python values, resolved when the model is captured."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(4, 4) for _ in range(4))
        self.depth = 2

    def forward(self, x: Any) -> Any:
        for index, layer in enumerate(self.layers):
            if index >= self.depth or x.shape[-1] != 4:
                break
            x = layer(x) if self.training else -layer(x)
        return x


module("mode_of_submodules_differs", lambda: nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)).eval()), rows)
module("identity", nn.Identity, rows)
module("adaptive_log_softmax", lambda: LogProbabilities(), rows)


class LogProbabilities(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4])

    def forward(self, x: Any) -> Any:
        return self.inner.log_prob(x)

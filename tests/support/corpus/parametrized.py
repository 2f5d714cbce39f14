"""Modules whose weights are computed: parametrizations, pruning, hooks, extra state; deep and long ones."""

from typing import Any

import torch
from torch import nn
from torch.nn import functional as fn
from torch.nn.utils import parametrizations, parametrize, prune, spectral_norm, weight_norm

from tests.support.corpus.case import Table, floats

CASES = Table(floats((3, 4)))
module = CASES.module


@CASES.add(holding=lambda: {"linear": nn.Linear(4, 4)})
def data_of_weights(self: Any, x: Any) -> Any:
    return fn.linear(x, self.linear.weight.data.T, self.linear.bias.detach()) + x.data


class ExtraState(nn.Linear):
    def get_extra_state(self) -> Any:
        return {"version": 3}

    def set_extra_state(self, state: Any) -> None:
        return None


module("extra_state", lambda: ExtraState(4, 2))
module("weight_norm", lambda: parametrizations.weight_norm(nn.Linear(4, 3)))
module("weight_norm_by_hook", lambda: weight_norm(nn.Linear(4, 3)))
module("spectral_norm_eval", lambda: parametrizations.spectral_norm(nn.Linear(4, 3)).eval())
module("spectral_norm_training", lambda: parametrizations.spectral_norm(nn.Linear(4, 3)))
module("spectral_norm_by_hook", lambda: spectral_norm(nn.Linear(4, 3)).eval())
module("orthogonal", lambda: parametrizations.orthogonal(nn.Linear(4, 4)), meta_by_moving=True)


class Symmetric(nn.Module):
    def forward(self, x: Any) -> Any:
        return x.triu() + x.triu(1).T


def symmetric() -> nn.Module:
    layer = nn.Linear(4, 4)
    parametrize.register_parametrization(layer, "weight", Symmetric(), unsafe=True)
    return layer


module("parametrized", symmetric)
module("pruned", lambda: prune.l1_unstructured(nn.Linear(4, 3), "weight", amount=0.5))


class GradientInside(nn.Module):
    def forward(self, x: Any) -> Any:
        x = x.detach().requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad((x**3).sum(), x)
        return gradient


@CASES.add(holding=lambda: {"linear": nn.Linear(4, 4)})
def vmap(self: Any, x: Any) -> Any:
    y = torch.vmap(lambda row, scale: torch.relu_(self.linear(row)) * scale, in_dims=(0, None))(x, x[0])
    y.add_(1)
    return y


module("autograd_grad", GradientInside)


def hooked() -> nn.Module:
    layer = nn.Linear(4, 4)
    layer.register_forward_pre_hook(lambda module, args: (args[0] * 2,))
    layer.register_forward_hook(lambda module, args, output: output + 1)
    layer.register_forward_hook(lambda module, args, kwargs, output: output * 3, with_kwargs=True)
    return nn.Sequential(layer, nn.ReLU())


module("hooks", hooked)


class Nested(nn.Module):
    def __init__(self, depth: int) -> None:
        super().__init__()
        self.inner = Nested(depth - 1) if depth else nn.Linear(4, 4)

    def forward(self, x: Any) -> Any:
        return self.inner(x) + 1


module("nested_30_deep", lambda: Nested(30))
module("sequential_of_60", lambda: nn.Sequential(*(nn.Linear(4, 4) for _ in range(60))))


@CASES.add()
def unrolled_loop_of_300_ops(x: Any) -> Any:
    for step in range(150):
        x = x * 0.99 + step
    return x


@CASES.add(holding=lambda: {"layers": nn.ModuleList(nn.Linear(4, 4) for _ in range(4)), "depth": 2})
def early_exit(self: Any, x: Any) -> Any:
    """Control flow on Python values, resolved when the model is captured."""
    for index, layer in enumerate(self.layers):
        if index >= self.depth or x.shape[-1] != 4:
            break
        x = layer(x) if self.training else -layer(x)
    return x


module("mode_of_submodules_differs",
    lambda: nn.Sequential(nn.Dropout(0.5), nn.Sequential(nn.Dropout(0.5)).eval()))  # fmt: skip
module("identity", nn.Identity)


@CASES.add(holding=lambda: {"inner": nn.AdaptiveLogSoftmaxWithLoss(4, 6, [2, 4])})
def adaptive_log_softmax(self: Any, x: Any) -> Any:
    return self.inner.log_prob(x)

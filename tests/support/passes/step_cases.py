"""Graphs of a loss and its gradients, as a training step has them, and the same by autograd."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.fx.experimental.proxy_tensor import make_fx

from npu_ir import Graph
from npu_ir.capture.graph_module import convert_graph_module
from npu_passes import Pass, PassManager
from npu_passes.manager.checked_mode import Checked
from npu_passes.testing import check_pass

Loss = Callable[[Tensor, Tensor], Tensor]


class Step:
    """The loss of a model and the gradients of its parameters; parameters and batch are graph inputs."""

    def __init__(self, model: nn.Module, loss: Loss, *batch: Tensor) -> None:
        self._model, self._loss = model, loss
        self._names = [name for name, _ in model.named_parameters()]
        self.args = [parameter.detach() for parameter in model.parameters()] + list(batch)
        traced = make_fx(self.eager, tracing_mode="fake")(*self.args)
        functional = make_fx(torch.func.functionalize(traced), tracing_mode="fake")(*self.args)
        functional.graph.eliminate_dead_code()
        self.graph = PassManager.of_pipeline("minimal").run(convert_graph_module(functional)).graph

    def eager(self, *args: Tensor) -> list[Tensor]:
        count = len(self._names)
        weights = [item.detach().requires_grad_() for item in args[:count]]
        found = functional_call(self._model, dict(zip(self._names, weights, strict=True)), args[count:-1])
        loss = self._loss(found, args[-1])
        return [loss.detach(), *torch.autograd.grad(loss, weights)]

    def checked(self, item: type[Pass]) -> int:
        """Return how many graphs a pass changes, one or none; it is held to its promises."""
        return check_pass(item, self.graph, data=Checked(calls=[(self.args, {})]))


def rewritten(graph: Graph, *passes: type[Pass]) -> Graph:
    return PassManager([*passes]).run(graph).graph


def refusals(graph: Graph, *passes: type[Pass]) -> list[str]:
    return [entry.reason for entry in PassManager([*passes]).run(graph).journal.refusals]


def count(graph: Graph, op: str) -> int:
    return len(list(graph.nodes_of(op)))


def assert_equal(found: Sequence[Any], wanted: Sequence[Any]) -> None:
    """Assert that results are those that are wanted, to the bit."""
    for got, expected in zip(found, wanted, strict=True):
        assert (got.dtype, got.shape, got.stride()) == (expected.dtype, expected.shape, expected.stride())
        assert torch.equal(got, expected)

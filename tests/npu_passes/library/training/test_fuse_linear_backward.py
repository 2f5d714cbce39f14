"""The gradients of a linear layer, and of the activation behind it, become one op that computes the same."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import execute_ir
from npu_passes import PassError, PassManager
from npu_passes.library import FuseLinearBackward
from npu_passes.ops.fused import ACTIVATION_GRADIENTS, LINEAR_ACTIVATION_BACKWARD, LINEAR_BACKWARD
from tests.support.corpus.case import Holding
from tests.support.passes.pattern_cases import capture
from tests.support.passes.step_cases import Step, assert_equal, count, refusals, rewritten
from tests.support.rows import each_row

ACTIVATIONS = [
    (F.relu, "relu"),
    (F.gelu, "gelu"),
    (lambda x: F.gelu(x, approximate="tanh"), "gelu_tanh"),
    (F.silu, "silu"),
    (torch.sigmoid, "sigmoid"),
    (torch.tanh, "tanh"),
]

SIZES = [(6, 3), (6, 5), (3, 5)]


def step(function: Any, rows: int = 6, inputs: int = 5, outputs: int = 3, **modules: nn.Module) -> Step:
    return Step(
        Holding(function, **modules), F.mse_loss, torch.randn(rows, inputs), torch.randn(rows, outputs)
    )


def masks(item: Step) -> list[Any]:
    graph = rewritten(item.graph, FuseLinearBackward)
    return [node.attrs["mask"] for node in graph.nodes_of(LINEAR_BACKWARD, LINEAR_ACTIVATION_BACKWARD)]


@each_row("activation, name", ACTIVATIONS)
def test_the_gradients_of_two_layers_become_two_ops(activation: Any, name: Any) -> None:
    item = step(
        lambda self, x: self.second(activation(self.first(x))), first=nn.Linear(5, 7), second=nn.Linear(7, 3)
    )

    graph = rewritten(item.graph, FuseLinearBackward)

    (behind,) = graph.nodes_of(LINEAR_BACKWARD)
    (front,) = graph.nodes_of(LINEAR_ACTIVATION_BACKWARD)
    assert (behind.attrs["mask"], front.attrs["mask"]) == ([True] * 3, [False, True, True])
    assert front.attrs["activation"] == name
    assert count(graph, "aten.mm.default") == count(graph, "aten.sum.dim_IntList") == 0
    assert_equal(execute_ir(graph, item.args), item.eager(*item.args))
    assert item.checked(FuseLinearBackward)
    assert name in ACTIVATION_GRADIENTS


def test_the_gradient_of_an_activation_alone_stays() -> None:
    item = step(lambda self, x: torch.relu(x * self.scale.weight[0])[:, :3], scale=nn.Embedding(1, 5))

    assert item.checked(FuseLinearBackward) == 0


def test_only_a_relu_that_nothing_else_reads_goes_into_the_gradient(subtests: pytest.Subtests) -> None:
    rows = {
        "another threshold": (lambda self, x: self.last(F.threshold(self.first(x), 0.5, 0.0)), {}),
        "read elsewhere": (
            lambda self, x: self.last(torch.relu(self.first(x) + self.table.weight)),
            {"table": nn.Embedding(6, 7)},
        ),
    }
    for case, (function, modules) in rows.items():
        with subtests.test(case):
            item = step(function, first=nn.Linear(5, 7), last=nn.Linear(7, 3), **modules)

            graph = rewritten(item.graph, FuseLinearBackward)

            assert count(graph, LINEAR_ACTIVATION_BACKWARD) == 0
            assert count(graph, LINEAR_BACKWARD) == 2
            assert item.checked(FuseLinearBackward) == 1


def test_a_layer_without_bias_has_two_gradients() -> None:
    item = step(
        lambda self, x: self.second(self.first(x).exp()),
        first=nn.Linear(5, 7, bias=False),
        second=nn.Linear(7, 3, bias=False),
    )

    # Of the first layer there is the gradient of the weight alone: that is an op already.
    assert masks(item) == [[True, True, False]]
    assert item.checked(FuseLinearBackward) == 1


def test_two_layers_whose_results_are_added_have_an_op_each() -> None:
    item = step(
        lambda self, x: self.left(self.first(x).exp()) + self.right(self.first(x).sin()),
        first=nn.Linear(5, 7),
        left=nn.Linear(7, 3),
        right=nn.Linear(7, 3),
    )

    graph = rewritten(item.graph, FuseLinearBackward)

    weights = [node.inputs[2].name for node in graph.nodes_of(LINEAR_BACKWARD) if node.attrs["mask"][0]]
    assert count(graph, LINEAR_BACKWARD) == 4
    assert weights == [graph.inputs[4].name, graph.inputs[2].name]
    assert item.checked(FuseLinearBackward) == 1


def test_an_input_that_is_computed_late_is_refused() -> None:
    def late(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
        return torch.mm(grad, weight), torch.mm(grad.t(), x.exp())

    graph = PassManager.of_pipeline("minimal").run(capture(late, *map(torch.randn, SIZES))).graph

    assert refusals(graph, FuseLinearBackward) == ["%exp is computed after 'mm'"]


def test_ops_say_what_they_lack() -> None:
    grad, x = torch.randn(6, 3), torch.randn(6, 5)

    with pytest.raises(PassError, match="computes grad_input from the weight, and there is none"):
        torch.ops.npu.linear_backward(grad, x, None, [True, True, True])
    with pytest.raises(PassError, match="has no activation 'mish'"):
        torch.ops.npu.linear_activation_backward(grad, grad, x, None, [False, True, True], "mish")

"""A loss and its gradient become one op that computes the same."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import execute_ir
from npu_passes.library import FuseLossGradient
from npu_passes.ops.fused import CROSS_ENTROPY_WITH_GRAD, MSE_LOSS_WITH_GRAD
from tests.support.passes.step_cases import Step, assert_equal, count, refusals, rewritten
from tests.support.rows import each_row

LEFT = ("aten.ones_like.default", "aten.mse_loss_backward.default", "aten._log_softmax.default")


def classes(loss: Any, rows: int = 6, *, ignored: int = 0) -> Step:
    target = torch.randint(0, 4, (rows,))
    target[:ignored] = -100
    return Step(nn.Linear(5, 4), loss, torch.randn(rows, 5), target)


def numbers(loss: Any) -> Step:
    return Step(nn.Linear(5, 4), loss, torch.randn(6, 5), torch.randn(6, 4))


def assert_fused(step: Step, op: str, **attrs: Any) -> None:
    graph = rewritten(step.graph, FuseLossGradient)

    (node,) = graph.nodes_of(op)
    assert {name: node.attrs[name] for name in attrs} == attrs
    assert not list(graph.nodes_of(*LEFT))
    assert_equal(execute_ir(graph, step.args), step.eager(*step.args))
    assert step.checked(FuseLossGradient) == 1


@each_row("reduction, number", [("mean", 1), ("sum", 2)])
def test_a_loss_and_its_gradient_become_one_op(reduction: str, number: int) -> None:
    squares = numbers(lambda x, y: F.mse_loss(x, y, reduction=reduction))
    entropy = classes(lambda x, y: F.cross_entropy(x, y, reduction=reduction), ignored=number)

    assert_fused(squares, MSE_LOSS_WITH_GRAD, reduction=number, scale=1.0)
    assert_fused(entropy, CROSS_ENTROPY_WITH_GRAD, reduction=number, ignore_index=-100)


def test_a_loss_may_be_scaled_by_numbers(subtests: pytest.Subtests) -> None:
    rows = {
        "divided": (lambda loss: loss / 3, torch.tensor(1.0).div(3).item()),
        "scaled": (lambda loss: loss * 128.0 / 7, torch.tensor(1.0).div(7).mul(128.0).item()),
    }
    for case, (scaled, scale) in rows.items():
        with subtests.test(case):
            assert_fused(
                classes(lambda x, y: scaled(F.cross_entropy(x, y))), CROSS_ENTROPY_WITH_GRAD, scale=scale
            )
            assert_fused(numbers(lambda x, y: scaled(F.mse_loss(x, y))), MSE_LOSS_WITH_GRAD, scale=scale)


def test_the_gradient_of_a_loss_may_be_a_constant() -> None:
    step = classes(lambda x, y: F.cross_entropy(x, y))
    (ones,) = step.graph.nodes_of("aten.ones_like.default")
    constant = step.graph.add_constant("half", torch.tensor(0.5))
    step.graph.replace_all_uses(ones.outputs[0], constant)
    step.graph.erase(ones)

    (node,) = rewritten(step.graph, FuseLossGradient).nodes_of(CROSS_ENTROPY_WITH_GRAD)

    assert node.attrs["scale"] == 0.5
    assert step.checked(FuseLossGradient) == 1


def test_two_losses_are_fused_each() -> None:
    def both(x: Tensor, y: Tensor) -> Tensor:
        return F.cross_entropy(x, y) + 0.5 * F.mse_loss(x, x.detach().sin())

    step = classes(both)

    graph = rewritten(step.graph, FuseLossGradient)

    assert count(graph, CROSS_ENTROPY_WITH_GRAD) == count(graph, MSE_LOSS_WITH_GRAD) == 1
    assert step.checked(FuseLossGradient) == 1


def test_other_losses_are_left_alone(subtests: pytest.Subtests) -> None:
    unknown = "the gradient of the loss is not a known number"
    rows = [
        (classes(lambda x, y: F.cross_entropy(x, y, weight=torch.ones(4))), "classes have weights"),
        (classes(lambda x, y: F.cross_entropy(x, y, reduction="none").mean()), "is that of each row"),
        (classes(lambda x, y: F.cross_entropy(x, y).square()), unknown),
        (numbers(lambda x, y: F.mse_loss(x, y).square()), unknown),
        (classes(lambda x, y: F.cross_entropy(x, y, label_smoothing=0.1)), None),
    ]
    for step, reason in rows:
        with subtests.test(reason=reason):
            assert step.checked(FuseLossGradient) == 0
            found = refusals(step.graph, FuseLossGradient)
            assert reason is None or any(reason in item for item in found)

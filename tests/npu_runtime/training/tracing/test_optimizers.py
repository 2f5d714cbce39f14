"""Optimizers that are none of torch.optim: a step does what they do in eager PyTorch, or says why not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn, optim

from npu_runtime import TrainStep
from npu_runtime.errors import TracingError
from npu_runtime.training.tracing.hyperparameters import make_reader
from tests.support.corpus.case import Holding
from tests.support.training.eager import step_by_hand

mse = nn.functional.mse_loss


class Replacing(optim.Optimizer):
    """Makes its momentum anew in each step, as one writes it without foreach."""

    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, {"lr": lr})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:
        for group in self.param_groups:
            for parameter in group["params"]:
                state = self.state[parameter]
                old = state.get("m", torch.zeros_like(parameter))
                state["m"], state["before"] = old * 0.9 + parameter.grad, old
                parameter.sub_(group["lr"] * (state["m"] + 0.5 * state["before"]))


class Counting(Replacing):
    def __init__(self, parameters: Any, lr: float) -> None:
        super().__init__(parameters, lr)
        self.count = 0

    def step(self, closure: Any = None) -> None:
        self.count += 1
        super().step()


def step_of(kind: Any) -> tuple[nn.Module, optim.Optimizer, Any, Any]:
    torch.manual_seed(0)
    model = nn.Linear(4, 3).double()
    optimizer = kind(model.parameters(), lr=0.1)
    batch = torch.randn(6, 4).double(), torch.randn(6, 3).double()
    return model, optimizer, step_by_hand(model, optimizer), batch


@pytest.mark.smoke
def test_numbers_of_groups_are_read_by_name_whatever_type_they_have_by_then() -> None:
    optimizer = optim.Adam([torch.zeros(2)], lr=0.1, betas=(0.8, 0.9))
    read = make_reader({"": optimizer}, ["group0.betas.1", "group0.lr"])
    assert read() == [0.9, 0.1]

    assert read() is read()  # while they are the same floats

    rate = torch.tensor(0.5)
    optimizer.param_groups[0].update(lr=rate, betas=[0.7, 0.75])
    before = read()
    rate.mul_(2)

    assert (before, read()) == ([0.75, 0.5], [0.75, 1.0])


def test_state_that_is_replaced_is_kept_from_step_to_step() -> None:
    model, optimizer, step, batch = step_of(Replacing)
    expected = [step(*batch) for _ in range(5)]
    twin, own, function, _ = step_of(Replacing)
    traced = TrainStep(function)

    torch.testing.assert_close([traced(*batch) for _ in range(5)], expected)
    torch.testing.assert_close(own.state[twin.weight], optimizer.state[model.weight])


def test_an_optimizer_that_counts_in_python_is_refused_and_left_alone() -> None:
    _, optimizer, function, batch = step_of(Counting)
    traced = TrainStep(function)
    traced(*batch)  # in eager: it makes the state

    with pytest.raises(
        TracingError, match=r"(?s)the step of Counting changes its attribute 'count'.*optimizer\.state"
    ):
        traced(*batch)
    assert optimizer.count == 1


def test_state_of_one_parameter_in_two_optimizers_is_refused() -> None:
    model = nn.Linear(4, 3)
    first, second = (optim.Adam(model.parameters()) for _ in range(2))
    by_hand = step_by_hand(model, first)

    def step(x: Tensor, y: Tensor) -> Tensor:
        loss: Tensor = by_hand(x, y)
        second.step()
        return loss

    with pytest.raises(
        TracingError, match="(?s)two optimizers keep state of the parameter 'weight'.*let one of them"
    ):
        TrainStep(step, modules=[model], optimizers=[first, second])(torch.randn(6, 4), torch.randn(6, 3))


def dampened() -> tuple[nn.Module, optim.SGD]:
    """Return a model of two layers, of which a step takes the first, or both."""
    torch.manual_seed(0)
    model = Holding(
        lambda self, x: self.first(x) + self.second(x) if self.takes_both else self.first(x),
        first=nn.Linear(4, 3),
        second=nn.Linear(4, 3),
    )
    return model, optim.SGD(model.parameters(), lr=0.1, momentum=0.9, dampening=0.5)


def test_a_parameter_that_has_no_gradient_yet_gets_its_state_from_the_first_step_with_one() -> None:
    """SGD with dampening begins with the first gradient itself."""
    model, optimizer = dampened()
    eager, other = dampened()
    step, by_hand = TrainStep(model, optimizer, mse, capture="require"), step_by_hand(eager, other)
    x, y = torch.randn(6, 4), torch.randn(6, 3)

    for index in range(7):
        model.takes_both = eager.takes_both = index >= 3
        torch.testing.assert_close(step(x, y), by_hand(x, y))
        if index == 2:
            assert step.artifact.capture_state == "planned"
            assert set(optimizer.state) == set(model.first.parameters())

    assert step.artifact.capture_state == "planned"
    torch.testing.assert_close(model.state_dict(), eager.state_dict())
    torch.testing.assert_close(optimizer.state_dict(), other.state_dict())

"""The comparison of training steps accepts equivalent ones, and finds every planted error."""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from tests.support.training.cases import all_parameters, case_named
from tests.support.training.eager import EagerStep, State, trained
from tests.support.training.judging import problems, reference
from tests.support.training.models import MLP, Checkpointed, ConvNet, Residual, Tied
from tests.support.training.optimizers import RECIPES, Recipe, recipe_named

MLP_CASE = case_named("mlp")

# What is tested here is the comparison that the other tests make.
pytestmark = pytest.mark.exhaustive


@pytest.mark.parametrize("recipe", [pytest.param(item, id=item.name) for item in RECIPES])
def test_the_other_form_of_an_optimizer_is_no_error(recipe: Recipe) -> None:
    wanted = reference(MLP_CASE, recipe)
    of_one_form = dataclasses.replace(wanted, eager=wanted.eager[:1])

    assert problems(wanted.eager[1], of_one_form) == ""


@pytest.mark.parametrize(("recipe", "wrong"), [
    ("SGD, weight decay", {"weight_decay": 0.1001}),
    ("SGD, nesterov", {"nesterov": False}),
    ("SGD, dampening", {"dampening": 0.3001}),
    ("Adam", {"betas": (0.8, 0.9501)}),
    ("Adam", {"eps": 1.1e-4}),
    ("Adam, amsgrad", {"amsgrad": False}),
    ("Adagrad", {"lr_decay": 0.1001}),
    ("RMSprop, centered", {"centered": False}),
    ("Rprop", {"step_sizes": (0.001, 0.0201)}),
    ("ASGD", {"t0": 3.0}),
    ("Muon", {"momentum": 0.901}),
])  # fmt: skip
def test_a_wrong_number_of_an_optimizer_is_found(recipe: str, wrong: dict[str, Any]) -> None:
    right = recipe_named(recipe)

    found = trained(EagerStep, MLP_CASE, dataclasses.replace(right, options={**right.options, **wrong}))

    assert problems(found, reference(MLP_CASE, right)) != ""


class HalfOfTheSum(Residual):
    """Only the second use of the shared layers gives them a gradient."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            x = x + self.down(F.relu(self.up(x)))
        return self.head(x + self.down(F.relu(self.up(x))))


class OneUse(Tied):
    """The embedding gets a gradient as the output layer only."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        left, right = self.mix(self.embed(tokens).detach()).chunk(2, -1)
        return self.head(left * torch.sigmoid(right))


class OtherMask(Checkpointed):
    """What is computed again draws other random numbers."""

    def _block(self, x: torch.Tensor) -> torch.Tensor:
        torch.rand(1 if self._calls % 2 else 2)
        self._calls += 1
        return super()._block(x)

    _calls = 0


def momentum_of_norm() -> nn.Module:
    model = ConvNet()
    model.norm1.momentum = 0.1001
    return model


def four_times(prediction: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
    return 4 * F.mse_loss(prediction, target)


@pytest.mark.parametrize(("case", "wrong"), [
    pytest.param("residual, shared layers", {"build": HalfOfTheSum}, id="gradient of one use"),
    pytest.param("embedding, tied weights", {"build": OneUse}, id="gradient of one tied use"),
    pytest.param("activation checkpointing", {"build": OtherMask}, id="mask of the backward pass"),
    pytest.param("cnn, batch norm", {"build": momentum_of_norm}, id="momentum of a norm"),
    pytest.param("frozen parameters", {"build": MLP}, id="frozen parameters"),
    pytest.param("parameter groups", {"groups": all_parameters}, id="groups"),
    pytest.param("norm of gradients clipped", {"options": {"clip_grad_norm": 0.5005}}, id="norm"),
    pytest.param("gradients clipped", {"options": {"clip_grad_value": 0.05005}}, id="clipping"),
    pytest.param("4 microbatches", {"loss": four_times}, id="sum of microbatches"),
    pytest.param("autocast bf16", {"options": {}}, id="autocast"),
])  # fmt: skip
@pytest.mark.parametrize("recipe", ["SGD, nesterov", "Adam"])
def test_a_wrong_step_is_found(case: str, wrong: dict[str, Any], recipe: str) -> None:
    right = case_named(case)

    found = trained(EagerStep, dataclasses.replace(right, **wrong), recipe_named(recipe))

    assert problems(found, reference(right, recipe_named(recipe))) != ""


@pytest.mark.parametrize(("spoil", "problem"), [
    pytest.param(lambda state: state.pop("fc1.weight.step"), "fc1.weight.step after step 4: is missing",
        id="gone"),
    pytest.param(lambda state: state.update(extra=torch.ones(1)), "extra after step 4: eager has no",
        id="extra"),
    pytest.param(lambda state: state.update(result=torch.tensor(1.0).double()), "is torch.float64",
        id="dtype"),
    pytest.param(lambda state: state["fc1.bias"].fill_(torch.nan), "is NaN or infinite where", id="NaN"),
    pytest.param(lambda state: state["fc2.weight"][0, 0].add_(1e-5), "fc2.weight after step 4: error",
        id="element"),
    pytest.param(lambda state: state["fc2.weight.step"].add_(1), "fc2.weight.step after step 4",
        id="counter"),
])  # fmt: skip
def test_a_finding_names_tensor_step_and_problem(spoil: Callable[[State], Any], problem: str) -> None:
    recipe = recipe_named("Adam")
    found = trained(EagerStep, MLP_CASE, recipe)

    spoil(found[-1])

    assert problem in problems(found, reference(MLP_CASE, recipe))

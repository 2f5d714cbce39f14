"""The state of a step is loaded whole, or not at all: what does not fit is named."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from npu_runtime import TrainStep
from npu_runtime.errors import TracingError
from tests.support.rows import each_row

BATCH = torch.randn(5, 3), torch.randn(5, 2)


class Net(nn.Module):
    """A model that has a tensor at the beginning, a buffer, and state besides tensors."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(3, 4)
        self.norm = nn.BatchNorm1d(4)
        self.last = nn.Linear(4, 2)
        self.extra = 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.last(self.norm(self.first(x)))
        return result

    def get_extra_state(self) -> float:
        return self.extra

    def set_extra_state(self, state: float) -> None:
        self.extra = state


def adam(model: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.Adam(model.parameters(), lr=0.1)


def made(
    make: Callable[[nn.Module], torch.optim.Optimizer] = adam, *, steps: int = 1
) -> tuple[Net, torch.optim.Optimizer, TrainStep]:
    model = Net()
    optimizer = make(model)
    step = TrainStep(model, optimizer, F.mse_loss)
    for _ in range(steps):
        step(*BATCH)
    return model, optimizer, step


def without(name: str) -> Callable[[dict[str, Any]], object]:
    return lambda part: part.pop(name)


def with_entry(name: str, entry: Any) -> Callable[[dict[str, Any]], object]:
    return lambda part: part.update({name: entry})


def of_group(change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda part: change(part["param_groups"][0])


def of_entries(place: int, change: Callable[[dict[str, Any]], object]) -> Callable[[dict[str, Any]], object]:
    return lambda part: change(part["state"][place])


MISFITS = {
    "an unexpected tensor": ("model", with_entry("third.weight", torch.ones(2)), '"third.weight"'),
    "a missing tensor": ("model", without("last.bias"), '"last.bias"'),
    "a missing buffer": ("model", without("norm.running_var"), '"norm.running_var"'),
    "another shape": ("model", with_entry("last.bias", torch.ones(5)), "size mismatch for last.bias"),
    "no tensor": ("model", with_entry("last.bias", None), '"last.bias"'),
    "no groups": (
        "optimizer",
        without("param_groups"),
        "does not fit: it has no 'param_groups'",
    ),
    "no state": ("optimizer", without("state"), "does not fit: it has no 'state'"),
    "another number of groups": (
        "optimizer",
        lambda part: part["param_groups"].append(part["param_groups"][0]),
        "a different number of parameter groups",
    ),
    "a group of fewer parameters": (
        "optimizer",
        of_group(lambda group: group["params"].pop()),
        "doesn't match the size of optimizer's group",
    ),
    "no parameters": ("optimizer", of_group(without("params")), "it has no 'params'"),
    "no rate": ("optimizer", of_group(without("lr")), "group 0 of its param_groups has no 'lr'"),
    "no betas": ("optimizer", of_group(without("betas")), "group 0 of its param_groups has no 'betas'"),
    "an average of another shape": (
        "optimizer",
        of_entries(1, with_entry("exp_avg", torch.ones(7))),
        "the 'exp_avg' of parameter 1 is of shape [7], not [4]",
    ),
    "an average that is a number": (
        "optimizer",
        of_entries(0, with_entry("exp_avg", torch.ones(()))),
        "the 'exp_avg' of parameter 0 is of shape [], not [4, 3]",
    ),
    "a count that is a list": (
        "optimizer",
        of_entries(0, with_entry("step", torch.ones(3))),
        "the 'step' of parameter 0 is of shape [3], not []",
    ),
}


@pytest.mark.smoke
@pytest.mark.parametrize("steps", [0, 2])
@each_row("part, change, reason", MISFITS)
def test_a_state_that_does_not_fit_is_not_loaded_in_part(
    part: str, change: Callable[[Any], object], reason: str, steps: int
) -> None:
    state = copy.deepcopy(made()[2].state_dict())
    state["model"]["_extra_state"] = 1.0
    change(state[part])
    model, optimizer, step = made(steps=steps)
    before = copy.deepcopy(step.state_dict())
    random = torch.get_rng_state()

    with pytest.raises(TracingError, match=f"(?s){re.escape(reason)}.*give what state_dict"):
        step.load_state_dict(state)

    assert model.extra == 0.0
    torch.testing.assert_close(model.state_dict(), before["model"], rtol=0, atol=0)
    torch.testing.assert_close(optimizer.state_dict(), before["optimizer"], rtol=0, atol=0)
    assert torch.equal(torch.get_rng_state(), random)
    assert step(*BATCH).isfinite()


@pytest.mark.parametrize("name", ["SGD", "Adagrad", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"])
@pytest.mark.parametrize("taken", [0, 1])
def test_the_state_of_each_optimizer_fits_a_new_one(name: str, taken: int) -> None:
    options = {"momentum": 0.9} if name in ("SGD", "RMSprop") else {}

    def make(model: nn.Module) -> torch.optim.Optimizer:
        made: torch.optim.Optimizer = getattr(torch.optim, name)(model.parameters(), lr=0.01, **options)
        return made

    _, _, step = made(make, steps=taken)
    _, _, resumed = made(make, steps=0)

    resumed.load_state_dict(copy.deepcopy(step.state_dict()))

    assert torch.equal(resumed(*BATCH), step(*BATCH))
    torch.testing.assert_close(resumed.state_dict(), step.state_dict(), rtol=0, atol=0)


def test_hooks_may_rename_what_is_loaded() -> None:
    state = copy.deepcopy(made()[2].state_dict())
    state["model"]["old.bias"] = state["model"].pop("last.bias")
    model, _, step = made()

    def rename(module: nn.Module, loaded: dict[str, Any], *_: Any) -> None:
        loaded["last.bias"] = loaded.pop("old.bias")

    model.register_load_state_dict_pre_hook(rename)

    step.load_state_dict(state)

    assert torch.equal(model.last.bias, state["model"]["old.bias"])


def test_a_hook_that_fails_leaves_the_state() -> None:
    state = copy.deepcopy(made()[2].state_dict())
    _, optimizer, step = made()
    before = copy.deepcopy(step.state_dict())

    def fail(_: Any) -> None:
        raise OSError("disk full")

    optimizer.register_load_state_dict_post_hook(fail)

    with pytest.raises(TracingError, match="the state of the optimizer does not fit: OSError: disk full"):
        step.load_state_dict(state)
    torch.testing.assert_close(step.state_dict(), before, rtol=0, atol=0)


@pytest.mark.parametrize("names", [["encoder"], ["encoder", "head", "third"], None])
def test_the_state_of_several_modules_has_their_names(names: list[str] | None) -> None:
    encoder, head = nn.Linear(3, 4), nn.Linear(4, 2)
    optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)

    def function(x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = F.mse_loss(head(encoder(x)), target)
        loss.backward()
        optimizer.step()
        return loss

    step = TrainStep(function)
    state = copy.deepcopy(step.state_dict())
    step.load_state_dict(state)
    state["model"] = None if names is None else {name: state["model"].get(name) for name in names}

    with pytest.raises(TracingError, match=r"'model', has the keys \['encoder', 'head'\], not"):
        step.load_state_dict(state)

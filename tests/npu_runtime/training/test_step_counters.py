"""Step counters: what follows from them is as exact as in eager mode, where they are numbers of Python."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn, optim
from torch.nn.functional import mse_loss

from npu_runtime import TrainStep

# The default betas: with 0.999, ``1 - beta2**step`` in float32 has three digits left.
OPTIMIZERS: dict[str, Callable[[Iterable[nn.Parameter]], optim.Optimizer]] = {
    "Adam": lambda parameters: optim.Adam(parameters, 0.01),
    "Adagrad": lambda parameters: optim.Adagrad(parameters, 0.05, lr_decay=0.1),
    "Adamax": lambda parameters: optim.Adamax(parameters, 0.01),
    "NAdam": lambda parameters: optim.NAdam(parameters, 0.01),
    "RAdam": lambda parameters: optim.RAdam(parameters, 0.01),
}
STEPS = 8  # RAdam trusts its variance from the sixth on


def _trained(dtype: torch.dtype, make: Any, step_of: Callable[[nn.Module, optim.Optimizer], Any]) -> Any:
    torch.manual_seed(0)
    model = nn.Linear(4, 3)
    rows, target = torch.randn(5, 4), torch.randn(5, 3)
    model = model.to(dtype)
    optimizer = make(model.parameters())
    step = step_of(model, optimizer)
    for _ in range(STEPS):
        step(rows.to(dtype), target.to(dtype))
    states = [copy.deepcopy(optimizer.state[item]) for item in model.parameters()]
    return torch.cat([item.detach().flatten() for item in model.parameters()]), states


def _eager(model: nn.Module, optimizer: optim.Optimizer) -> Any:
    def step(rows: torch.Tensor, target: torch.Tensor) -> None:
        optimizer.zero_grad()
        mse_loss(model(rows), target).backward()
        optimizer.step()

    return step


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_bias_corrections_are_as_exact_as_in_eager_mode(name: str) -> None:
    def ours(model: nn.Module, optimizer: optim.Optimizer) -> Any:
        return TrainStep(model, optimizer, mse_loss)

    exact, _ = _trained(torch.float64, OPTIMIZERS[name], _eager)
    wanted, states = _trained(torch.float32, OPTIMIZERS[name], _eager)

    found, own_states = _trained(torch.float32, OPTIMIZERS[name], ours)

    assert (found - exact).abs().max() <= 3 * (wanted - exact).abs().max()
    for own, state in zip(own_states, states, strict=True):
        assert (own["step"].dtype, float(own["step"])) == (state["step"].dtype, STEPS)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_model_of_float64_trains_with_its_digits(name: str) -> None:
    wanted, _ = _trained(torch.float64, OPTIMIZERS[name], _eager)

    found, _ = _trained(
        torch.float64, OPTIMIZERS[name], lambda model, optimizer: TrainStep(model, optimizer, mse_loss)
    )

    # NAdam's product of momenta is float32 in eager mode, too.
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-9)

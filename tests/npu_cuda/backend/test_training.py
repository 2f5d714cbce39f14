"""Training steps on the backend `host` are native, update in place, and train as eager does."""

import copy
import re
from collections.abc import Callable, Iterable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from npu_runtime import TrainStep

Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]
OPTIMIZERS: dict[str, Optimizer] = {
    "Adam": lambda parameters: torch.optim.Adam(parameters, 1e-2),
    "AdamW, amsgrad": lambda parameters: torch.optim.AdamW(parameters, 1e-2, amsgrad=True),
    "SGD": lambda parameters: torch.optim.SGD(parameters, 0.1),
    "SGD, weight decay": lambda parameters: torch.optim.SGD(parameters, 0.1, weight_decay=0.01),
    "SGD, Nesterov": lambda parameters: torch.optim.SGD(
        parameters, 0.1, momentum=0.9, nesterov=True, weight_decay=0.01
    ),
}


def network(dtype: torch.dtype) -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).to(dtype)


def schedule(optimizer: torch.optim.Optimizer, step: int) -> None:
    """Change every number that a scheduler changes."""
    for group in optimizer.param_groups:
        group["lr"] *= 0.9
        if step == 3 and "betas" in group:
            group["betas"] = (0.8, 0.98)
        if step == 3 and group.get("momentum"):
            group["momentum"] = 0.7
        if step == 4 and "eps" in group:
            group["eps"] = 1e-5


@pytest.mark.parametrize("make", OPTIMIZERS.values(), ids=OPTIMIZERS)
@pytest.mark.parametrize(
    ("dtype", "tolerance"), [(torch.float32, 2e-6), (torch.float64, 1e-14), (torch.bfloat16, 0.03)]
)
def test_a_step_is_native_and_in_place_and_trains_as_eager_does(
    make: Optimizer, dtype: torch.dtype, tolerance: float
) -> None:
    model = network(dtype)
    eager = copy.deepcopy(model)
    optimizer, eager_optimizer = make(model.parameters()), make(eager.parameters())
    step = TrainStep(model, optimizer, F.mse_loss, backend="host")
    x, target = torch.randn(5, 8, dtype=dtype), torch.randn(5, 4, dtype=dtype)

    for index in range(6):
        schedule(optimizer, index)
        schedule(eager_optimizer, index)
        loss = step(x, target)
        eager_optimizer.zero_grad()
        wanted = F.mse_loss(eager(x), target)
        wanted.backward()
        eager_optimizer.step()
        torch.testing.assert_close(loss, wanted.detach(), rtol=tolerance, atol=tolerance)

    for parameter, each in zip(model.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(parameter, each, rtol=tolerance, atol=tolerance)
        for name, state in eager_optimizer.state[each].items():
            if state is not None:
                torch.testing.assert_close(
                    optimizer.state[parameter][name], state, rtol=10 * tolerance, atol=tolerance
                )
    plan = step.artifact.plan
    assert plan is not None
    state = {item.value for item in plan.buffers if item.kind == "state"}
    assert {f"{kind}_step#1.0" for kind in ("adam", "sgd")} & state
    if dtype is torch.float64:  # all numbers but the learning rate are numbers of Python, which ATen takes
        return
    assert [call.backend for call in plan.calls["commit"]] == ["host"]
    assert {item.backend for item in step.artifact.lowered.ops if item.op.kind != "aten.full.default"} == {
        "host"
    }


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        # A bias in front of a norm has no gradient but rounding errors, of which Adam makes steps.
        self.first, self.second = nn.Conv2d(3, 8, 3, padding=1, bias=False), nn.Conv2d(8, 12, 3, stride=2)
        self.norm, self.last = nn.BatchNorm2d(8), nn.Linear(12, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = F.relu(self.second(F.relu(self.norm(self.first(x)))))
        out: torch.Tensor = self.last(x.mean((2, 3)))
        return out


def test_a_batch_that_requires_a_gradient_is_copied_without_its_history() -> None:
    model = network(torch.float32)
    step = TrainStep(model, torch.optim.Adam(model.parameters()), F.mse_loss, backend="host")
    x = torch.randn(5, 8, requires_grad=True)

    losses = [step(item, torch.zeros(5, 4)) for item in (x, x * 2, x * 2)]

    fixed = [item for item in step.artifact.inputs if item is not None]
    assert not any(item.requires_grad for item in (*fixed, *losses))
    assert x.grad is None
    assert fixed[0].eq(x * 2).all()


def test_a_step_says_what_runs_native_and_what_does_not() -> None:
    model = network(torch.float32)
    step = TrainStep(model, torch.optim.RMSprop(model.parameters()), F.mse_loss, backend="host")
    assert step.explain() == "no step has been taken"
    step(torch.randn(5, 8), torch.randn(5, 4))

    found = step.artifact.explain()

    assert found.share("host") == 1
    assert 0.5 < found.share("host", by="count") < 1
    lines = step.explain().splitlines()
    assert any(re.fullmatch(r"  host: \d+ of \d+ nodes, 100.0% of FLOPs", line) for line in lines)
    assert any("no native op for aten._foreach_" in line and "  not host: " in line for line in lines)
    plain = TrainStep(model, torch.optim.RMSprop(model.parameters()), F.mse_loss)
    plain(torch.randn(5, 8), torch.randn(5, 4))
    assert "of FLOPs" not in plain.explain()


def test_images_of_a_step_are_channels_last() -> None:
    torch.manual_seed(0)
    model = Convolutional()
    eager = copy.deepcopy(model)
    optimizer, eager_optimizer = (
        OPTIMIZERS["Adam"](model.parameters()),
        OPTIMIZERS["Adam"](eager.parameters()),
    )
    step = TrainStep(model, optimizer, F.cross_entropy, backend="host")
    x, target = torch.randn(4, 3, 12, 12), torch.randint(0, 4, (4,))

    for _ in range(3):
        loss = step(x, target)
        eager_optimizer.zero_grad()
        wanted = F.cross_entropy(eager(x), target)
        wanted.backward()
        eager_optimizer.step()

    torch.testing.assert_close(loss, wanted.detach(), rtol=1e-4, atol=1e-5)
    for name, buffer in eager.named_buffers():
        torch.testing.assert_close(dict(model.named_buffers())[name], buffer, rtol=1e-4, atol=1e-5)
    for kind in ("aten.convolution.default", "aten._native_batch_norm_legit_functional.default"):
        for node in step.graph.nodes_of(kind):
            assert node.outputs[0].tensor_type.memory_format is torch.channels_last


class Masked(nn.Module):
    """Scores of which some are minus infinity, as in a mask that is trained."""

    def __init__(self) -> None:
        super().__init__()
        scores = torch.arange(20.0).reshape(4, 5)
        self.scores = nn.Parameter(scores.masked_fill(scores % 3 == 0, -torch.inf))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.scores.softmax(-1) * x


@pytest.mark.parametrize("make", [
    lambda parameters: torch.optim.SGD(parameters, 0.1),
    lambda parameters: torch.optim.SGD(parameters, 0.1, momentum=0.9),
    lambda parameters: torch.optim.Adam(parameters, 0.1),
    lambda parameters: torch.optim.AdamW(parameters, 0.1, weight_decay=0.1),
    lambda parameters: torch.optim.AdamW(parameters, 0.1, weight_decay=0),
], ids=["SGD", "momentum", "Adam", "AdamW", "AdamW without decay"])  # fmt: skip
def test_parameters_without_bound_stay_as_they_are_in_eager_mode(make: Optimizer) -> None:
    model, eager = Masked(), Masked()
    optimizer, eager_optimizer = make(model.parameters()), make(eager.parameters())
    step = TrainStep(model, optimizer, F.mse_loss, backend="host")
    x, target = torch.rand(4, 5), torch.rand(4, 5)

    for _ in range(3):
        step(x, target)
        eager_optimizer.zero_grad()
        F.mse_loss(eager(x), target).backward()
        eager_optimizer.step()

    assert eager.scores.isneginf().any()
    torch.testing.assert_close(model.scores, eager.scores)


def test_a_step_keeps_to_a_budget_of_memory_that_the_program_counts_in_and_gives_the_same_bits() -> None:
    torch.manual_seed(0)
    layers = [part for _ in range(8) for part in (nn.Linear(16, 16), nn.LayerNorm(16), nn.GELU())]
    model, x, target = nn.Sequential(*layers), torch.randn(512, 16), torch.randn(512, 16)
    frugal_model = copy.deepcopy(model)
    plain = TrainStep(model, torch.optim.AdamW(model.parameters(), 1e-2), F.mse_loss, backend="host")
    losses = [plain(x, target) for _ in range(3)]
    plan = plain.artifact.plan
    assert plan is not None
    assert plan.backend_bytes > plan.arena_bytes
    budget = int(plan.peak_bytes * 0.6)

    frugal = TrainStep(
        frugal_model,
        torch.optim.AdamW(frugal_model.parameters(), 1e-2),
        F.mse_loss,
        backend="host",
        memory_budget_bytes=budget,
    )
    found = [frugal(x, target) for _ in range(3)]

    assert frugal.artifact.plan is not None
    assert frugal.artifact.plan.peak_bytes <= budget
    assert found == losses
    assert all(map(torch.equal, frugal_model.parameters(), model.parameters()))

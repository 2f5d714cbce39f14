"""LSTMs are traced as one node for each layer and direction, and train as in eager mode."""

import copy
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn, optim
from torch.utils.checkpoint import checkpoint

from npu_runtime import TrainStep
from npu_runtime.training import compile_ir
from tests.support.rows import each_row
from tests.support.training.side_by_side import Told, assert_as_eager


class Recurrent(nn.Module):
    """An LSTM of some options, whose states are read or not, and a layer."""

    def __init__(self, reads_states: bool = True, **options: Any) -> None:
        super().__init__()
        self.lstm = nn.LSTM(7, 6, **options)
        self.head = nn.LazyLinear(3)
        self.reads_states = reads_states
        self(torch.randn(5, 2, 7))

    def forward(self, x: Tensor) -> Tensor:
        y, (h, c) = self.lstm(x)
        return self.head(y + (h.mean() * c.mean() if self.reads_states else 0))  # type: ignore[no-any-return]


def nodes_of(model: nn.Module, x: Tensor) -> list[str]:
    batch = x, torch.zeros_like(model(x).detach())
    graph = compile_ir(model, optim.SGD(model.parameters(), 0.1), F.mse_loss, batch)
    return [node.op_type for node in graph.nodes]


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {},
    "results alone": {"reads_states": False},
    "batches first": {"batch_first": True},
    "layers": {"num_layers": 3},
    "both directions": {"bidirectional": True, "num_layers": 2},
    "without biases": {"bias": False},
    "dropout": {"num_layers": 2, "dropout": 0.4, "batch_first": True},
}


@each_row("options", OPTIONS)
def test_a_step_trains_as_in_eager_mode(options: dict[str, Any]) -> None:
    def story(told: Told) -> Any:
        return [item for _ in range(3) for item in (told.step(x, target), torch.rand(2))]

    model = Recurrent(**options)
    x = torch.randn(5, 2, 7)
    target = torch.randn(5, 2, 3)

    assert_as_eager(story, model)
    count = options.get("num_layers", 1) * (2 if options.get("bidirectional") else 1)
    names = nodes_of(model, x)
    assert names.count("npu.lstm.default") == names.count("npu.lstm_backward.default") == count


def test_an_lstm_without_a_batch_is_traced_so_too() -> None:
    model = Recurrent()

    assert "npu.lstm.default" in nodes_of(model, torch.randn(5, 7))
    assert_as_eager(lambda told: [told.step(torch.randn(5, 7), torch.randn(5, 3)) for _ in range(2)], model)


@each_row("model", {
    "projected states": lambda: Recurrent(proj_size=4),
    "float64": lambda: Recurrent().double(),
})  # fmt: skip
def test_what_onednn_does_not_run_is_traced_step_by_step(model: Any) -> None:
    made = model()
    dtype = next(made.parameters()).dtype
    batch = torch.randn(5, 2, 7, dtype=dtype), torch.randn(5, 2, 3, dtype=dtype)

    names = nodes_of(made, batch[0])

    assert "npu.lstm.default" not in names
    assert names.count("aten.tanh.default") >= 5
    assert_as_eager(lambda told: [told.step(*batch) for _ in range(2)], made)


Batch = tuple[Tensor, Tensor]


def with_penalty(model: nn.Module, batch: Batch) -> Tensor:
    """Gradients of gradients, as a critic of a WGAN has them."""
    x = batch[0].clone().requires_grad_()
    loss = F.mse_loss(model(x), batch[1])
    (slope,) = torch.autograd.grad(loss, x, create_graph=True)
    return loss + 100 * slope.square().sum()


def of_a_penalty_alone(model: nn.Module, batch: Batch) -> Tensor:
    x = batch[0].clone().requires_grad_()
    (slope,) = torch.autograd.grad(model(x).square().sum(), x, create_graph=True)
    return slope.square().sum()


def by_torch_func(model: nn.Module, batch: Batch) -> Tensor:
    slope = torch.func.grad(lambda x: model(x).square().sum())(batch[0])
    return F.mse_loss(model(batch[0]), batch[1]) + slope.mean()


def checkpointed(model: nn.Module, batch: Batch, use_reentrant: bool) -> Tensor:
    x = batch[0].clone().requires_grad_()
    return F.mse_loss(checkpoint(model, x, use_reentrant=use_reentrant), batch[1])


class Stop(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> None:
        return None


def without_gradients(model: nn.Module, batch: Batch) -> Tensor:
    assert isinstance(model, Recurrent)
    return F.mse_loss(model.head(Stop.apply(model.lstm(batch[0])[0])), batch[1])


@each_row("loss_of", {
    "penalty": with_penalty,
    "penalty alone": of_a_penalty_alone,
    "torch.func": by_torch_func,
    "checkpoint": partial(checkpointed, use_reentrant=False),
    "reentrant checkpoint": partial(checkpointed, use_reentrant=True),
    "no gradient": without_gradients,
})  # fmt: skip
def test_gradients_however_they_are_asked_for_are_those_of_eager_mode(loss_of: Any) -> None:
    batch = torch.randn(5, 2, 7), torch.randn(5, 2, 3)
    model = Recurrent(num_layers=2, bidirectional=True)
    ends = []
    for is_eager in (True, False):
        mine = copy.deepcopy(model)
        optimizer = optim.SGD(mine.parameters(), 0.05)

        def step(x: Tensor, target: Tensor, mine: nn.Module = mine, optimizer: Any = optimizer) -> Tensor:
            optimizer.zero_grad()
            loss: Tensor = loss_of(mine, (x, target))
            loss.backward()
            optimizer.step()
            return loss.detach()

        run = step if is_eager else TrainStep(step, modules=[mine], optimizers=[optimizer])
        ends.append(([run(*batch) for _ in range(3)], mine.state_dict()))

    torch.testing.assert_close(*ends, rtol=1e-4, atol=1e-6)


def test_without_onednn_there_is_no_layer_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with torch.backends.mkldnn.flags(enabled=False):
        assert "npu.lstm.default" not in nodes_of(Recurrent(), torch.randn(5, 2, 7))

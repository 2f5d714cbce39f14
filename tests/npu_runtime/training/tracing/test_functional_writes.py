"""Writes of a traced step: replaced on its graph where that is simple, as PyTorch functionalizes them."""

from collections.abc import Callable
from typing import NoReturn

import pytest
import torch
from torch import Tensor, nn, optim
from torch.fx import GraphModule
from torch.nn import functional as F

from npu_ir import Graph
from npu_runtime import TrainStep
from npu_runtime._torch.tracing_context import TracingContext
from npu_runtime.training import compile_ir
from npu_runtime.training.tracing import tracer
from npu_runtime.training.tracing.functional_writes import replace_writes

Make = Callable[[], nn.Module]


class Written(nn.Module):
    """A layer whose result goes through ``write``."""

    def __init__(self, write: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.calls: Tensor
        self.register_buffer("calls", torch.zeros(3))
        self.write = write

    def forward(self, x: Tensor) -> Tensor:
        self.calls.add_(1)
        return self.write(self.layer(x)) * self.calls.sum()


def doubled_behind_a_view(x: Tensor) -> Tensor:
    view = x.detach()
    x = x * 1
    same = x.detach()
    x.mul_(2)
    return x + same.sin() + view


WHOLE: dict[str, Make] = {
    "linear": lambda: nn.Linear(4, 4),
    # Not behind the layer, whose bias would have gradients of rounding errors, which Adam makes whole steps.
    "batch-norm": lambda: nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, 4)),
    "dropout": lambda: nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5)),
    "in place": lambda: nn.Sequential(
        nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Linear(4, 4), nn.SiLU(inplace=True)
    ),
    "behind a view": lambda: Written(doubled_behind_a_view),
    "turned in place": lambda: Written(lambda x: _turned_in_place(x * 1)),
    "constant": lambda: Written(lambda x: x + torch.tensor([1.0, 2.0, 3.0, 4.0]).add_(1)),
}
PARTS: dict[str, Make] = {
    "a row": lambda: Written(lambda x: x.clone().index_fill_(0, torch.tensor([1]), 0.0)[0:1].add_(1) + x),
    "transposed": lambda: Written(lambda x: x.clone().t().mul_(2).t()),
    "another dtype": lambda: Written(lambda x: torch.ones(6, 4, dtype=torch.int64).eq_(2) + x),
    "written and turned": lambda: Written(lambda x: (x * 1).transpose_(0, 1).mul_(2).t()),
    "seen by a part": lambda: Written(lambda x: _written_behind_a_part(x * 1)),
}
OPTIMIZERS: dict[str, Callable[..., optim.Optimizer]] = {
    "SGD": lambda parameters: optim.SGD(parameters, lr=0.1, momentum=0.9),
    "Adam": lambda parameters: optim.Adam(parameters, lr=0.1),
    "Adam, not foreach": lambda parameters: optim.Adam(parameters, lr=0.1, foreach=False),
}


def _turned_in_place(x: Tensor) -> Tensor:
    before = x.detach()
    return x.transpose_(0, 1).sin().t() + before + x.t()


def _written_behind_a_part(x: Tensor) -> Tensor:
    part = x.detach().unbind(0)[0]
    x.mul_(2)
    return x + part


def trace(make: Make, optimizer: str) -> Graph:
    torch.manual_seed(0)
    model = make()
    return compile_ir(model, OPTIMIZERS[optimizer](model.parameters()), F.mse_loss, (_batch(), _batch()))


def _batch() -> Tensor:
    return torch.randn(6, 4)


def refuse(*_arguments: object) -> NoReturn:
    raise AssertionError("traced again")


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
@pytest.mark.parametrize("model", WHOLE)
def test_writes_of_whole_tensors_are_replaced_as_pytorch_does_it(
    model: str, optimizer: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(TracingContext, "functionalize", refuse)
        graph = trace(WHOLE[model], optimizer)
    monkeypatch.setattr(tracer, "replace_writes", lambda _module: False)
    expected = trace(WHOLE[model], optimizer)

    assert [(node.op_type, node.outputs[0].type) for node in graph.nodes if not is_copy(node.op_type)] == [
        (node.op_type, node.outputs[0].type) for node in expected.nodes if not is_copy(node.op_type)
    ]
    assert [str(item) for item in graph.updates] == [str(item) for item in expected.updates]


def is_copy(op_type: str) -> bool:
    """Return whether an op copies or names a tensor: PyTorch copies constants that nothing writes.

    That of 2.15 functionalizes ``detach`` as ``alias``.
    """
    return op_type in ("aten.clone.default", "aten.detach.default", "aten.alias.default")


@pytest.mark.parametrize("model", PARTS)
def test_writes_that_a_view_sees_are_left_to_pytorch(model: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = []

    def ask(module: GraphModule) -> bool:
        answers.append(replace_writes(module))
        return answers[-1]

    monkeypatch.setattr(tracer, "replace_writes", ask)

    trace(PARTS[model], "SGD")

    assert answers == [False]


@pytest.mark.parametrize("model", [*WHOLE, *PARTS])
def test_steps_that_write_do_what_eager_pytorch_does(model: str) -> None:
    make = {**WHOLE, **PARTS}[model]
    torch.manual_seed(0)
    ours, eager = make(), make()
    eager.load_state_dict(ours.state_dict())
    optimizers = [OPTIMIZERS["Adam"](item.parameters()) for item in (ours, eager)]
    step = TrainStep(ours, optimizers[0], F.mse_loss)
    for seed in range(3):
        x, y = _batch(), _batch()
        torch.manual_seed(seed)
        loss = step(x, y)
        torch.manual_seed(seed)
        optimizers[1].zero_grad()
        expected = F.mse_loss(eager(x), y)
        expected.backward()  # type: ignore[no-untyped-call]
        optimizers[1].step()
        torch.testing.assert_close(loss, expected.detach())

    torch.testing.assert_close(ours.state_dict(), eager.state_dict())

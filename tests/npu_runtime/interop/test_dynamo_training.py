"""``torch.compile(..., backend="npu")`` with gradients: training goes as in eager mode, step by step."""

import copy
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
from torch import nn

from tests.npu_runtime.interop.compiled_graphs import CompiledGraphs, compiled, compiled_graphs
from tests.support.corpus.case import Holding
from tests.support.training.models import ConvNet, Transformer

__all__ = ["compiled_graphs"]

STEPS = 3
Optimizer = Callable[[Iterable[nn.Parameter]], torch.optim.Optimizer]


class Counting(nn.Module):
    """A buffer that advances, a graph break, a region without gradients, and one in half precision."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        x = self.first(x)
        torch._dynamo.graph_break()
        with torch.no_grad():
            scale = x.abs().mean()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            y = self.second(x)
        return y.to(x.dtype) / scale


class HalfNorms(nn.Module):
    """Norms of bfloat16 with weights of float32, whose statistics are float32."""

    def __init__(self) -> None:
        super().__init__()
        norms = nn.BatchNorm2d(4), nn.GroupNorm(2, 4), nn.BatchNorm2d(4).eval(), nn.LayerNorm(6)
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), *norms)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.layers(x).to(x.dtype)


def branch() -> nn.Module:
    return Holding(
        lambda self, x: torch.cond(
            x.sum() > 0, lambda x: self.linear(x).sin(), lambda x: self.linear(x).cos(), (x,)
        ),
        linear=nn.Linear(4, 4),
    )


def sgd(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, 0.1, momentum=0.9)


def adam(parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, 1e-2)


def trained(
    run: Callable[..., Any], model: nn.Module, optimizer: Optimizer, data: list[torch.Tensor]
) -> list[torch.Tensor]:
    steps, losses = optimizer(model.parameters()), []
    for index, x in enumerate(data):
        torch.manual_seed(index)
        loss = run(x).square().mean()
        steps.zero_grad()
        loss.backward()
        steps.step()
        losses.append(loss.detach())
    return [*losses, *(tensor.clone() for tensor in model.state_dict().values())]


def in_float64(model: nn.Module, data: list[torch.Tensor]) -> tuple[nn.Module, list[torch.Tensor]]:
    return copy.deepcopy(model).double(), [
        item.double() if item.is_floating_point() else item for item in data
    ]


def assert_equal_but_for_noise(
    actual: list[torch.Tensor], eager: list[torch.Tensor], exact: list[torch.Tensor]
) -> None:
    """Fail unless results are as near to those in float64 as eager's are, or equal to eager's."""
    for index, (found, wanted, reference) in enumerate(zip(actual, eager, exact, strict=True)):
        noise = (wanted.double() - reference.double()).abs().max()
        assert (found.double() - wanted.double()).abs().max() <= noise, f"tensor {index}"


def mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 4))


def images() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8)


def tokens() -> torch.Tensor:
    return torch.randint(0, 20, (2, 5))


@pytest.mark.parametrize("optimizer", [pytest.param(sgd, marks=pytest.mark.exhaustive), adam])
@pytest.mark.parametrize(("build", "make"), [
    pytest.param(mlp, lambda: torch.randn(5, 8), id="mlp"),
    pytest.param(ConvNet, images, id="batch norm"),
    pytest.param(HalfNorms, images, id="norms of bfloat16"),
    pytest.param(lambda: Transformer(0.0), tokens, id="transformer"),
    pytest.param(branch, lambda: torch.randn(3, 4), id="branch"),
])  # fmt: skip
def test_training_goes_as_in_eager_mode(
    compiled_graphs: CompiledGraphs, build: Any, make: Any, optimizer: Optimizer
) -> None:
    model, data = build(), [make() for _ in range(STEPS)]
    double, exact_data = in_float64(model, data)
    eager = copy.deepcopy(model)

    actual = trained(compiled(model, fullgraph=True), model, optimizer, data)

    assert compiled_graphs.names == ["forward", "backward"]
    assert_equal_but_for_noise(
        actual, trained(eager, eager, optimizer, data), trained(double, double, optimizer, exact_data)
    )


@pytest.mark.parametrize(("build", "make", "names"), [
    pytest.param(Transformer, tokens, ["forward", "backward"], id="dropout"),
    pytest.param(Counting, lambda: torch.randn(3, 4), ["forward", "forward", "backward", "backward"],
        id="regions"),
])  # fmt: skip
def test_random_numbers_buffers_and_graph_breaks_go_as_in_eager_mode(
    compiled_graphs: CompiledGraphs, build: Any, make: Any, names: list[str]
) -> None:
    model, data = build(), [make() for _ in range(STEPS)]
    eager = copy.deepcopy(model)

    actual = trained(compiled(model), model, adam, data)

    assert compiled_graphs.names == names
    for found, wanted in zip(actual, trained(eager, eager, adam, data), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_batches_of_any_size_train_with_one_pair_of_graphs(compiled_graphs: CompiledGraphs) -> None:
    model = ConvNet()
    eager, data = copy.deepcopy(model), [torch.randn(rows, 3, 8, 8) for rows in (2, 5, 3)]

    actual = trained(compiled(model, fullgraph=True, dynamic=True), model, sgd, data)

    assert compiled_graphs.names == ["forward", "backward"]
    for found, wanted in zip(actual, trained(eager, eager, sgd, data), strict=True):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-6)


def test_results_without_gradients_stand_beside_those_with_some(compiled_graphs: CompiledGraphs) -> None:
    def function(x: torch.Tensor) -> Any:
        return x.sin(), x.argmax(), None, x.shape[0], x.detach() * 2

    left, right = (torch.ones(3).requires_grad_() for _ in range(2))

    ours, theirs = compiled(function, fullgraph=True)(left), function(right)
    ours[0].sum().backward()
    theirs[0].sum().backward()

    assert [getattr(item, "requires_grad", None) for item in ours] == [True, False, None, None, False]
    assert ours[1:4] == theirs[1:4]
    assert torch.equal(left.grad, right.grad)  # type: ignore[arg-type]


def test_a_backward_pass_may_take_sizes_that_divide_by_a_size() -> None:
    def function(x: torch.Tensor) -> Any:
        return x.reshape(-1, 4).tanh().view(x.shape[0], -1).exp()

    ours = compiled(function, dynamic=True)

    for rows in (2, 3, 5):
        left, right = (torch.linspace(-1, 1, rows * 8).view(rows, 8).requires_grad_() for _ in range(2))
        ours(left).sum().backward()
        function(right).sum().backward()
        torch.testing.assert_close(left.grad, right.grad)

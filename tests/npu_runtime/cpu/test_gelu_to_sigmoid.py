"""The tanh form of GELU by a sigmoid, and its gradient by a derivative that is kept."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Graph, execute_ir, extract_ir
from npu_passes import PassManager
from npu_passes.core.registry import MINIMAL, TRAIN
from npu_passes.manager.checked_mode import Checked
from npu_passes.testing import check_pass
from npu_runtime import TrainStep
from npu_runtime.cpu.gelu_to_sigmoid import GeluToSigmoid
from npu_runtime.training import compile_ir
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_training import RATE, assert_trains, count_of
from tests.support.training.cases import Case

EVERY = GeluToSigmoid(min_elements=0)
GELU, GRADIENT = "aten.gelu.default", "aten.gelu_backward.default"


def perceptron(approximate: str = "tanh") -> nn.Module:
    return nn.Sequential(nn.Linear(7, 12), nn.GELU(approximate), nn.Linear(12, 3))


def rows(generator: torch.Generator) -> tuple[Any, ...]:
    return torch.randn(5, 7, generator=generator), torch.randn(5, 3, generator=generator)


def step_of(model: nn.Module, dtype: torch.dtype = torch.float32) -> tuple[Graph, Checked]:
    batch = tuple(item.to(dtype) for item in rows(torch.Generator()))
    model = model.to(dtype)
    graph = compile_ir(model, torch.optim.SGD(model.parameters(), lr=0.5), F.mse_loss, batch)
    return PassManager.of_pipeline("minimal").run(graph).graph, Checked(model.state_dict(), [(batch, RATE)])


class Gelu(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return F.gelu(x, approximate="tanh")


def test_it_and_its_gradient_are_computed_by_a_sigmoid() -> None:
    graph, data = step_of(perceptron())

    assert check_pass(EVERY, graph, data=data) == 1

    made = PassManager([EVERY]).run(graph).graph
    assert count_of(graph, GELU, GRADIENT) == 2
    assert count_of(made, GELU, GRADIENT) == 0
    assert count_of(made, "aten.sigmoid.default") == 1


def test_without_a_gradient_no_derivative_is_computed() -> None:
    graph = extract_ir(Gelu(), (torch.randn(5, 7),))

    assert check_pass(EVERY, graph) == 1

    made = PassManager([EVERY]).run(graph).graph
    assert [node.op_type.split(".")[1] for node in made.body] == [
        "mul",
        "mul",
        "add",
        "mul",
        "sigmoid",
        "mul",
    ]


def test_where_it_is_small_it_keeps_its_digits() -> None:
    """Nothing cancels out, as it does in ``1 + tanh(u)``; elsewhere the error is that of PyTorch."""
    x = torch.linspace(-6, 12, 4001)
    graph = PassManager([EVERY]).run(extract_ir(Gelu(), (x,))).graph
    wanted = F.gelu(x.double(), approximate="tanh")

    found = execute_ir(graph, (x,))

    torch.testing.assert_close(found.double(), wanted, rtol=1e-5, atol=0)
    assert (found - wanted).abs().max() < 2 * (F.gelu(x, approximate="tanh") - wanted).abs().max()


def test_infinities_and_nan_stay_what_they_are() -> None:
    """At minus infinity PyTorch has NaN, which is 0 times infinity, and so has this."""
    x = torch.tensor([torch.inf, torch.nan, -torch.inf, 1e30, -1e30])
    graph = PassManager([EVERY]).run(extract_ir(Gelu(), (x,))).graph

    found = execute_ir(graph, (x,))

    torch.testing.assert_close(found, F.gelu(x, approximate="tanh"), rtol=0, atol=0, equal_nan=True)


def test_the_gradient_of_large_numbers_is_that_of_the_function() -> None:
    x = torch.tensor([3e13, -3e13, 1e18, -1e18, 40.0, -40.0]).requires_grad_()
    weight = nn.Parameter(torch.ones(6))
    model = Holding(lambda self, x: F.gelu(x * self.weight, approximate="tanh"), weight=weight)
    step = TrainStep(model, torch.optim.SGD(model.parameters(), lr=1.0), lambda y, _: y.sum(), passes=[EVERY])

    step(x.detach(), torch.zeros(()))

    assert not count_of(step.graph, GELU, GRADIENT)
    F.gelu(x, approximate="tanh").sum().backward()
    torch.testing.assert_close(1 - model.weight.detach(), x.grad * x.detach(), rtol=1e-6, atol=0)


class TanhGradient(torch.autograd.Function):
    """The erf form, with the gradient of the tanh form."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return F.gelu(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.ops.aten.gelu_backward(grad, *ctx.saved_tensors, approximate="tanh")


def test_a_gradient_without_a_function_in_front_of_it_is_left() -> None:
    model = nn.Linear(7, 3)

    def step(x: Tensor, y: Tensor) -> Tensor:
        optimizer.zero_grad()
        prediction = model(x)
        F.mse_loss(TanhGradient.apply(prediction), y).backward()
        optimizer.step()
        return F.gelu(prediction.detach(), approximate="tanh")

    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    graph = compile_ir(step, example_batch=rows(torch.Generator()))
    made = PassManager(f"{MINIMAL},{EVERY}").run(graph).graph

    assert count_of(made, GRADIENT) == 1
    assert count_of(made, GELU) == 1  # the erf form


@pytest.mark.parametrize(
    ("item", "approximate", "dtype", "reasons"),
    [
        (GeluToSigmoid(), "tanh", torch.float32, ["60 elements are too few to pay for more calls"]),
        (EVERY, "tanh", torch.float64, ["it is f64[5, 12]"]),
        (EVERY, "none", torch.float32, []),
    ],
    ids=["small", "float64", "erf"],
)
def test_others_are_left(
    item: GeluToSigmoid, approximate: str, dtype: torch.dtype, reasons: list[str]
) -> None:
    graph, data = step_of(perceptron(approximate), dtype)

    assert check_pass(item, graph, data=data) == 0
    assert [found.reason for found in PassManager([item]).run(graph).journal.refusals] == reasons


def test_training_is_as_near_to_float64_as_eager_is() -> None:
    case = Case("gelu", perceptron, rows)

    assert_trains(case, f"{TRAIN},{EVERY}", lambda graph: not count_of(graph, GELU, GRADIENT))

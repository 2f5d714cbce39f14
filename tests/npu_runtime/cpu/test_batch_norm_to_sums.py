"""Norms over a batch, and their gradients, by sums: as exact as PyTorch's in contiguous memory."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Graph
from npu_passes import PassManager
from npu_passes.core.registry import TRAIN
from npu_passes.manager.checked_mode import Checked
from npu_passes.testing import check_pass
from npu_runtime import TrainStep
from npu_runtime.cpu.batch_norm_to_sums import BatchNormToSums
from npu_runtime.training import compile_ir
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_training import RATE, assert_trains, count_of
from tests.support.rows import each_row
from tests.support.training.cases import Case

EVERY = BatchNormToSums(min_elements=0)
NORM, GRADIENT = "aten._native_batch_norm_legit_functional.default", "aten.native_batch_norm_backward.default"


def behind_scales(norm: nn.Module, channels: int = 6) -> nn.Module:
    """Return a norm behind a factor for each channel, so that the norm's input has a gradient."""

    def forward(self: Any, x: Tensor) -> Any:
        return self.norm(x * self.weight.view(1, -1, *[1] * (x.ndim - 2)))

    return Holding(forward, weight=nn.Parameter(torch.randn(channels)), norm=norm)


def shifted() -> nn.Module:
    """Return a norm of the input and a shift of each of its elements, whose gradient is that of the input."""
    shift = nn.Parameter(torch.zeros(64, 3, 8, 8))
    return Holding(lambda self, x: self.norm(x + self.shift), shift=shift, norm=nn.BatchNorm2d(3))


def step_of(model: nn.Module, *shape: int, dtype: torch.dtype = torch.float32) -> tuple[Graph, Checked]:
    batch = (3 + 2 * torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype))
    model = model.to(dtype)
    graph = compile_ir(model, torch.optim.SGD(model.parameters(), lr=0.5), F.mse_loss, batch)
    weights = model.state_dict()
    return PassManager.of_pipeline("minimal").run(graph).graph, Checked(weights, [(batch, RATE)])


@pytest.mark.parametrize(("norm", "shape"), [
    pytest.param(nn.BatchNorm1d(6), (5, 6), id="1d"),
    pytest.param(nn.BatchNorm1d(6), (5, 6, 7), id="1d-sequence"),
    pytest.param(nn.BatchNorm2d(6, eps=0.1, momentum=0.3), (3, 6, 5, 4), id="2d"),
    pytest.param(nn.BatchNorm3d(6), (2, 6, 3, 4, 5), id="3d"),
    pytest.param(nn.BatchNorm2d(6, affine=False), (3, 6, 5, 4), id="no-weight"),
    pytest.param(nn.BatchNorm2d(6, track_running_stats=False), (3, 6, 5, 4), id="no-running-statistics"),
])  # fmt: skip
def test_a_norm_and_its_gradient_are_computed_by_sums(norm: nn.Module, shape: tuple[int, ...]) -> None:
    graph, data = step_of(behind_scales(norm), *shape)

    assert check_pass(EVERY, graph, data=data) == 1

    made = PassManager([EVERY]).run(graph).graph
    assert count_of(graph, GRADIENT) == 1
    assert count_of(made, NORM, "aten._native_batch_norm_legit.no_stats", GRADIENT) == 0
    scaled = next(node.outputs[0] for node in made.nodes_of("aten.mul.Tensor"))
    readers = {node.op_type for node, _ in scaled.uses if node}
    assert readers == {"aten.sum.dim_IntList", "aten.sub.Tensor"}, "it is not kept for the gradient"


def test_a_norm_without_a_gradient_of_its_input_is_computed_by_sums() -> None:
    graph, data = step_of(nn.BatchNorm2d(6), 3, 6, 5, 4)

    assert check_pass(EVERY, graph, data=data) == 1


@each_row("spread", [1.0, 0.0])
def test_a_channel_far_from_zero_keeps_its_digits(spread: float) -> None:
    """A sum of squares less the square of a sum would cancel; the mean itself rounds nothing off."""
    x = 1000.1 + spread * torch.randn(64, 3, 8, 8)
    model = behind_scales(nn.BatchNorm2d(3, affine=False), 3)
    nn.init.ones_(model.weight)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    step = TrainStep(model, optimizer, lambda y, _: (y.sum(), y), passes=[EVERY])

    found = step(x, torch.zeros(()))[1]

    assert not count_of(step.graph, NORM)
    wanted = F.batch_norm(x.double(), None, None, training=True)
    torch.testing.assert_close(found.double(), wanted, rtol=0, atol=1e-6)
    eager = F.batch_norm(x, None, None, training=True)
    assert (found - wanted).norm() <= (eager - wanted).norm()


def test_the_gradients_of_a_channel_far_from_zero_keep_their_digits() -> None:
    """The mean of thousands is rounded by a part of deviations of hundredths; gradients are not."""
    spread = torch.randn(64, 3, 8, 8)
    x, grad = 1000.1 + 0.01 * spread, 1 + spread + torch.randn(64, 3, 8, 8)
    wanted = shifted().double()
    (wanted(x.double()) * grad).sum().backward()
    model = shifted()
    step = TrainStep(
        model, torch.optim.SGD(model.parameters(), lr=1.0), lambda y, g: (y * g).sum(), passes=[EVERY]
    )

    step(x, grad)

    assert not count_of(step.graph, NORM, GRADIENT)
    for before, now, true in zip(
        shifted().parameters(), model.parameters(), wanted.parameters(), strict=True
    ):
        scale = true.grad.abs().max()
        torch.testing.assert_close((before - now).double() / scale, true.grad / scale, rtol=0, atol=1e-4)


@pytest.mark.parametrize(
    ("item", "dtype", "reason"),
    [
        (BatchNormToSums(), torch.float32, "360 elements are too few to pay for more calls"),
        (EVERY, torch.float64, "it is of f64[3, 6, 5, 4], f64[6], f64[6], f64[6], f64[6]"),
    ],
    ids=["small", "float64"],
)
def test_norms_are_left_with_a_reason(item: BatchNormToSums, dtype: torch.dtype, reason: str) -> None:
    graph, data = step_of(behind_scales(nn.BatchNorm2d(6)), 3, 6, 5, 4, dtype=dtype)

    assert check_pass(item, graph, data=data) == 0
    assert [refusal.reason for refusal in PassManager([item]).run(graph).journal.refusals] == [reason]


def test_a_norm_of_running_statistics_is_left() -> None:
    norm = nn.BatchNorm2d(6).eval()
    graph, data = step_of(behind_scales(norm), 3, 6, 5, 4)

    assert check_pass(EVERY, graph, data=data) == 0


def perceptron() -> nn.Module:
    return nn.Sequential(nn.Linear(7, 12, bias=False), nn.BatchNorm1d(12), nn.Tanh(), nn.Linear(12, 3))


def rows(generator: torch.Generator) -> tuple[Any, ...]:
    return torch.randn(9, 7, generator=generator), torch.randn(9, 3, generator=generator)


def test_training_is_as_near_to_float64_as_eager_is() -> None:
    case = Case("norm", perceptron, rows)

    assert_trains(case, f"{TRAIN},{EVERY}", lambda graph: not count_of(graph, NORM, GRADIENT))

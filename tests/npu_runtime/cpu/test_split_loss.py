"""A loss of all elements as the loss of each, and their mean or sum: the same bits, in planned memory."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from npu_ir import Graph, extract_ir
from npu_passes import PassManager
from npu_passes.testing import check_pass
from npu_runtime import TrainStep
from npu_runtime.cpu.split_loss import SplitLoss
from tests.support.corpus.case import Function
from tests.support.rows import each_row

LOSSES: dict[str, Callable[..., Tensor]] = {
    "mse": F.mse_loss,
    "smooth l1": lambda x, y, **more: F.smooth_l1_loss(x, y, beta=0.3, **more),
    "huber": lambda x, y, **more: F.huber_loss(x, y, delta=0.3, **more),
}


def graph_of(loss: Callable[..., Tensor], reduction: str, dtype: torch.dtype = torch.float32) -> Graph:
    function = Function(lambda x, y: loss(x, y, reduction=reduction))
    return extract_ir(function, (torch.randn(65, 33, dtype=dtype), torch.randn(65, 33, dtype=dtype)))


def test_a_loss_is_computed_in_steps_to_the_bit(subtests: pytest.Subtests) -> None:
    reduction_rows = [
        ("mean", torch.float32, "aten.div.Tensor"),
        ("mean", torch.float64, "aten.div.Tensor"),
        ("mean", torch.bfloat16, "aten.mean.default"),
        ("sum", torch.float32, "aten.sum.default"),
        ("sum", torch.bfloat16, "aten.sum.default"),
    ]
    for reduction, dtype, last in reduction_rows:
        for loss in LOSSES.values():
            with subtests.test(reduction=reduction, dtype=dtype, last=last, loss=loss):
                graph = graph_of(loss, reduction, dtype)

                assert check_pass(SplitLoss(), graph) > 0

                assert list(PassManager([SplitLoss()]).run(graph).graph.nodes)[-1].op_type == last


@pytest.mark.parametrize("shape", [(), (1,), (3, 0), (7, 1001), (1 << 20,)], ids=str)
def test_a_mean_is_a_sum_that_is_divided_to_the_bit(shape: tuple[int, ...]) -> None:
    assert check_pass(SplitLoss(), extract_ir(Function(torch.mean), (torch.randn(shape),))) == 1


def test_a_mean_in_another_dtype_or_of_an_open_size_stays() -> None:
    batch = torch.export.Dim("batch")
    mean_of_any = extract_ir(Function(torch.mean), (torch.randn(4, 3),), dynamic_shapes=(({0: batch},),))
    wider = Function(lambda x: x.mean(dtype=torch.float64))

    assert check_pass(SplitLoss(), extract_ir(wider, (torch.randn(5),))) == 0
    assert check_pass(SplitLoss(), mean_of_any) == 0


@pytest.mark.smoke
def test_the_loss_of_each_element_stays() -> None:
    assert check_pass(SplitLoss(), graph_of(F.mse_loss, "none")) == 0


@each_row("loss", [*LOSSES.values(), lambda x, y: (x * y).mean()])
def test_a_step_makes_nothing_outside_of_its_plan(loss: Any) -> None:
    model = nn.Linear(7, 5)
    step = TrainStep(model, torch.optim.SGD(model.parameters(), lr=0.1), loss, capture="require")

    step(torch.randn(6, 7), torch.randn(6, 5))

    assert step.artifact.plan.made_bytes == 0
    assert "made" not in {item.kind for item in step.artifact.plan.buffers}

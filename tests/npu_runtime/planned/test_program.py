"""A planned program computes what the interpreter computes, in memory that stays where it is."""

from typing import Any

import pytest
import torch

from npu_ir import execute_ir, extract_ir
from npu_runtime.planned import PlannedProgram, plan
from tests.support.corpus.case import Holding


def forward(self: Any, x: torch.Tensor) -> torch.Tensor:
    hidden = self.first(x)
    return self.second(hidden.relu()) + hidden[:, :3]


@pytest.mark.smoke
def test_results_are_those_of_the_interpreter_and_stay_where_they_are() -> None:
    layers = {"first": torch.nn.Linear(8, 16), "second": torch.nn.Linear(16, 3)}
    model, x = Holding(forward, **layers), torch.randn(5, 8)
    graph = extract_ir(model, (x,))
    program = PlannedProgram(plan(graph), model.state_dict())

    first = program(x)

    assert torch.equal(first, execute_ir(graph, (x,), weights=model.state_dict()))
    assert program(torch.randn(5, 8)) is first is program.outputs[0]


class Results(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden, total = x.relu(), x.sum()
        return total, hidden, hidden.t(), x, total * 2


def test_results_that_are_not_borrowed_are_the_callers() -> None:
    x, y = torch.randn(2, 3), torch.randn(2, 3)
    program = PlannedProgram(plan(extract_ir(Results(), (x,))))
    fresh = {value.name for value in program.plan.fresh}

    first = program.step((x,), (), borrow=False)
    program.step((y,), (), borrow=False)
    program.step((y,), ())

    assert fresh == {"sum_1", "mul"}  # the others are views, or viewed: they are copied
    expected = Results()(x)
    for one, other in zip(first, expected, strict=True):
        assert torch.equal(one, other)
        assert one.stride() == other.stride()
    assert len({item.data_ptr() for item in (*first, *program.fixed)}) == 6
    assert all(torch.equal(*pair) for pair in zip(program.outputs, Results()(y), strict=True))


def test_the_operators_of_pytorch_stay_the_objects_that_they_are() -> None:
    model, x = torch.nn.Conv2d(2, 3, 3), torch.randn(1, 2, 8, 8)
    graph = extract_ir(model, (x,))
    aten = torch.ops.aten
    before = aten.conv2d.default, aten.convolution.default, aten.relu.default

    plan(graph)

    # FakeTensor tells them apart by identity.
    assert (aten.conv2d.default, aten.convolution.default, aten.relu.default) == before

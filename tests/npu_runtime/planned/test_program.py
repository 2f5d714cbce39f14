"""A planned program computes what the interpreter computes, in memory that stays where it is."""

from typing import Any

import pytest
import torch

from npu_ir import execute_ir, extract_ir
from npu_runtime.planned import PlannedProgram, plan
from tests.support.corpus.case import Function, Holding


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


def chained(x: torch.Tensor) -> torch.Tensor:
    return (x + 1).sin() * 2 + x


def test_inputs_that_nothing_is_bound_to_are_read_in_the_memory_of_the_caller() -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    program = PlannedProgram(plan(extract_ir(Function(chained), (x,))))
    program.load((y,))

    (taken,) = program.step((x,), (), borrow=False)
    (loaded,) = program.run()

    assert torch.equal(program.fixed[0], y)
    assert torch.equal(taken, chained(x))
    assert torch.equal(loaded, chained(y))


@pytest.mark.parametrize(
    "make",
    [
        pytest.param(lambda x, program: program.step((x,), ())[0], id="a borrowed result"),
        pytest.param(lambda x, program: program.step((x,), ())[0][:], id="a view of one"),
        pytest.param(lambda x, program: torch.nn.Parameter(x), id="a parameter"),
        pytest.param(lambda x, program: program.fixed[0].copy_(x), id="the fixed input"),
    ],
)
def test_an_input_in_any_memory_is_computed_with(make: Any) -> None:
    x = torch.randn(3, 4)
    program = PlannedProgram(plan(extract_ir(Function(chained), (x,))))
    given = make(x, program)
    expected = chained(given.detach().clone())

    (result,) = program.step((given,), (), borrow=False)

    assert torch.equal(result, expected)


def viewed(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    return x.view(12) + 1, y * 2


@pytest.mark.parametrize(
    ("function", "backend"),
    [
        pytest.param(viewed, "aten", id="a view"),
        pytest.param(lambda x, y: (x.relu() + y,), "host", id="a partition"),
    ],
)
def test_inputs_that_something_is_bound_to_are_copied(function: Any, backend: str) -> None:
    x, y = torch.randn(3, 4), torch.randn(3, 4)
    program = PlannedProgram(plan(extract_ir(Function(function), (x, y)), backend=backend))

    results = program.step((x, y), (), borrow=False)

    assert program.plan.read_in_place == ()
    assert all(map(torch.equal, program.fixed, (x, y)))
    assert all(map(torch.equal, results, function(x, y)))


def test_the_operators_of_pytorch_stay_the_objects_that_they_are() -> None:
    model, x = torch.nn.Conv2d(2, 3, 3), torch.randn(1, 2, 8, 8)
    graph = extract_ir(model, (x,))
    aten = torch.ops.aten
    before = aten.conv2d.default, aten.convolution.default, aten.relu.default

    plan(graph)

    # FakeTensor tells them apart by identity.
    assert (aten.conv2d.default, aten.convolution.default, aten.relu.default) == before

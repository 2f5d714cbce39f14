"""Results of an executor: structures, views of any kind, open sizes, branches, ownership."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn, zeros
from torch.utils._pytree import tree_leaves

from npu_ir import Graph, extract_ir, parse_ir
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same


def test_a_graph_without_nodes_and_inputs_runs() -> None:
    graph = Graph("empty")
    graph.set_outputs(())

    executor = IRExecutor(graph)

    assert executor() == ()
    assert executor.run().results == ()
    assert executor.instructions == ()
    assert executor.memory_plan().peak_bytes == 0


UNREAD = """
graph unread {
  input %x: f32[2, 0]
  aten.unbind.int(self=%x) {dim=1}
  %exp: f32[2, 0] = aten.exp.default(self=%x)
  %a: f32[0], %b: f32[0] = aten.unbind.int(self=%x) {dim=0}
  return %x
}
"""


@pytest.mark.smoke
def test_what_nothing_reads_is_computed_and_dropped() -> None:
    given = zeros(2, 0)

    assert IRExecutor(parse_ir(UNREAD), passes=None)(given) is given


LIFTED = torch.tensor([[1.0, 2.0], [3.0, 4.0]])


class Holder(nn.Module):
    """A parameter, a buffer, a mutated buffer and a constant; returns a function of them."""

    fixed: Tensor
    moving: Tensor

    def __init__(self, function: Callable[[Holder, Tensor], Any]) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.arange(4.0).view(2, 2))
        self.register_buffer("fixed", torch.arange(4.0).view(2, 2) + 10)
        self.register_buffer("moving", zeros(2, 2))
        self.constant = LIFTED.clone()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(self, x)


def advanced(model: Holder, x: Tensor) -> Tensor:
    model.moving += x
    return model.moving


def replaced(model: Holder, x: Tensor) -> Tensor:
    before = model.moving.clone()
    model.moving.copy_(x)
    return before.t()


RETURNS: list[Any] = [
    pytest.param(lambda m, x: m.constant, id="constant"),
    pytest.param(lambda m, x: (m.constant.t(), m.constant[0], m.constant), id="views-of-a-constant"),
    pytest.param(lambda m, x: m.constant.neg(), id="made-of-a-constant"),
    pytest.param(lambda m, x: (m.weight * 2, (m.weight * 2).t()), id="prologue"),
    pytest.param(lambda m, x: (m.fixed.exp()[0], x + m.fixed.exp()), id="view-of-the-prologue"),
    pytest.param(advanced, id="state"),
    pytest.param(lambda m, x: advanced(m, x).t(), id="view-of-the-state"),
    pytest.param(lambda m, x: (advanced(m, x), m.moving.view(-1), m.moving[0]), id="views-of-the-state"),
    pytest.param(replaced, id="old-state"),
    pytest.param(lambda m, x: (m.moving.t(), advanced(m, x) * 1)[0], id="old-and-new-state"),
    pytest.param(lambda m, x: (x * 2).relu().neg(), id="fresh"),
]


def write_to(tree: Any) -> None:
    for leaf in tree_leaves(tree):
        leaf.fill_(77)


@pytest.mark.parametrize("passes", [None, "default"])
@pytest.mark.parametrize("function", RETURNS)
def test_writing_to_results_changes_no_later_call(function: Any, passes: Any) -> None:
    model, untouched = Holder(function), Holder(function)
    graph = extract_ir(model, (ones(2, 2),))
    executor = IRExecutor(graph, model.state_dict(), passes=passes)
    model_before = {key: item.clone() for key, item in model.state_dict().items()}

    for step in range(3):
        x = randn(2, 2)
        given = x.clone()
        expected = untouched(x)
        actual = executor(given)
        assert_same(actual, expected, f"the result of call {step}")
        write_to(actual)
        assert torch.equal(given, x)
        write_to(executor.run((given,)).results)
        untouched(x)

    assert_same(dict(model.state_dict()), model_before, "the weights")
    assert_same(model.constant, LIFTED, "the constant")


def test_a_weight_that_is_returned_is_the_caller_s_as_in_eager() -> None:
    model = Holder(lambda m, x: (m.weight, m.fixed.t(), x[0]))
    executor = IRExecutor(extract_ir(model, (ones(2, 2),)), model.state_dict())
    x = randn(2, 2)

    weight, fixed, row = executor(x)

    assert weight.data_ptr() == model.weight.data_ptr()
    assert fixed.data_ptr() == model.fixed.data_ptr()
    assert row.data_ptr() == x.data_ptr()


def test_results_share_memory_with_each_other_as_in_eager() -> None:
    def function(x: Tensor) -> Any:
        made = x * 2
        return made, made.t(), made.view(-1)[1:], made.neg(), [*made.unbind(0)]

    x = randn(3, 3)
    executor = IRExecutor(extract_ir(Function(function), (x,)))

    results, expected = executor(x), function(x)

    write_to(results[0])
    write_to(expected[0])
    assert_same(results, expected, "the results")


def test_results_are_ordinary_tensors() -> None:
    model = Holder(lambda m, x: (x @ m.weight, advanced(m, x), m.constant.t(), (m.weight + 1).t(), x * x))
    graph = extract_ir(model, (ones(2, 2),))
    with torch.inference_mode():
        executor = IRExecutor(graph, model.state_dict())
    x = ones(2, 2, requires_grad=True)
    leaf = ones(2, 2, requires_grad=True)

    for args in ((x,), (ones(2, 2),)):
        results = executor(*args)
        assert not any(item.is_inference() or item.requires_grad or item.grad_fn for item in results)
        sum((leaf * item).sum() for item in results).backward()
        for item in results:
            item.add_(1)


def test_what_was_computed_in_inference_mode_can_be_used_outside() -> None:
    model = Holder(lambda m, x: (advanced(m, x).view(-1), m.constant))
    executor = IRExecutor(extract_ir(model, (ones(2, 2),)), model.state_dict())

    with torch.inference_mode():
        executor(ones(2, 2))
    state, constant = executor(ones(2, 2))

    assert state.tolist() == [2.0] * 4
    assert not constant.is_inference()
    state.add_(1)
    executor.state_dict()["moving"].add_(1)
    assert executor(ones(2, 2))[0].tolist() == [3.0] * 4


@pytest.fixture
def careless(register: Any) -> Tensor:
    """Registered executors that return what is not theirs to give: their input, and a tensor they keep."""
    table = torch.arange(6.0).view(2, 3) - 3
    register("acme.same.default", lambda inputs, attrs: [inputs[0]])
    register("acme.table.default", lambda inputs, attrs: [table])
    return table


@pytest.mark.parametrize("strides", ["", "@[1, 2]"], ids=["as-stated", "not-as-stated"])
def test_nothing_that_an_executor_keeps_is_overwritten(careless: Tensor, strides: str) -> None:
    graph = parse_ir(f"""
graph keeping {{
  input %x: f32[2, 3]
  %table: f32[2, 3]{strides} = acme.table.default(%x)
  %flat: f32[6] = aten.reshape.default(self=%table) {{shape=[6]}}
  %relu: f32[6] = aten.relu.default(self=%flat)
  %neg: f32[6] = aten.neg.default(self=%relu)
  return (%relu, %neg)
}}
""")
    before = careless.clone()

    result, negated = IRExecutor(graph, passes=None)(zeros(2, 3))

    assert torch.equal(careless, before)
    assert torch.equal(result, before.relu().view(-1))
    assert torch.equal(negated, -before.relu().view(-1))


SAME = """
graph same {
  input %x: f32[3]
  %exp: f32[3] = aten.exp.default(self=%x)
  %same: f32[3] = acme.same.default(%exp)
  %neg: f32[3] = aten.neg.default(self=%same)
  %direct: f32[3] = acme.same.default(%x)
  %last: f32[3] = aten.neg.default(self=%direct)
  %total: f32[3] = aten.add.Tensor(self=%exp, other=%neg)
  return (%total, %last)
}
"""


@pytest.mark.usefixtures("careless")
def test_an_input_that_an_executor_returns_is_not_overwritten() -> None:
    given = randn(3)
    before = given.clone()

    total, negated = IRExecutor(parse_ir(SAME), passes=None)(given)

    assert torch.equal(total, zeros(3))
    assert torch.equal(given, before)
    assert torch.equal(negated, -before)


def test_an_executor_is_shown_with_its_graph_and_its_backends() -> None:
    executor = IRExecutor(parse_ir(UNREAD), passes=None, backend="aten")

    assert repr(executor) == "<IRExecutor 'unread': 3 nodes on cpu by aten>"

"""Results of an executor: structures, views of any kind, open sizes, branches, ownership."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn, zeros
from torch.utils._pytree import tree_leaves

from npu_ir import ExecutionError, Graph, TensorType, extract_ir, register_executor
from npu_ir.ops import unregister_executor
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same

F32 = torch.float32
Point = collections.namedtuple("Point", ["x", "y"])


def executor_of(function: Callable[..., Any], *args: Any, **options: Any) -> IRExecutor:
    return IRExecutor(extract_ir(Function(function), args), passes=None, **options)


def test_results_nest_as_those_of_the_model() -> None:
    def function(tree: dict[str, Any], *, pair: Any, nothing: None, count: int) -> Any:
        first = {"sum": tree["a"] + pair[0], "others": [pair.y, (tree["b"],)]}
        return first, None, count, Point(tree["a"] * 2, "text"), [], {}

    args = ({"a": randn(2), "b": randn(3)},)
    kwargs = {"pair": Point(randn(2), randn(1)), "nothing": None, "count": 3}
    model = Function(function)

    executor = IRExecutor(extract_ir(model, args, kwargs))

    assert_same(executor(*args, **kwargs), model(*args, **kwargs), "the result")
    assert_same(
        executor(*args, **dict(reversed(kwargs.items()))), model(*args, **kwargs), "with keywords turned"
    )


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x, id="the-argument"),
        pytest.param(lambda x: (x, x), id="the-argument-twice"),
        pytest.param(lambda x: (), id="nothing"),
        pytest.param(lambda x: None, id="none"),
        pytest.param(lambda x: 3.5, id="a-number"),
        pytest.param(lambda x: (float("-inf"), "a'\n", True), id="plain-data"),
        pytest.param(lambda x: [x[0], x.shape[0], x.dtype is F32], id="a-view-and-numbers"),
        pytest.param(lambda x: x[:0], id="no-elements"),
        pytest.param(lambda x: torch.ones(2), id="a-constant"),
        pytest.param(lambda x: (x * 2 if x.dim() else x).sum().item(), id="an-element"),
    ],
)
def test_an_unusual_result_is_that_of_eager(function: Callable[..., Any]) -> None:
    x = randn(3)
    executor = executor_of(function, x)

    assert_same(executor(x), function(x), "the result")


def test_a_graph_without_nodes_and_inputs_runs() -> None:
    graph = Graph("empty")
    graph.set_outputs(())

    executor = IRExecutor(graph)

    assert executor() == ()
    assert executor.run().results == ()
    assert executor.instructions == ()
    assert executor.memory_plan().peak_bytes == 0


@pytest.mark.smoke
def test_what_nothing_reads_is_computed_and_dropped() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2, 2), F32))
    for _ in range(2):
        graph.insert("aten.exp.default", [x], types=x.type, operands=("self",))
    graph.insert("aten.unbind.int", [x], {"dim": 0}, types=[TensorType((2,), F32)] * 2, operands=("self",))
    graph.set_outputs(x)

    given = randn(2, 2)

    assert IRExecutor(graph, passes=None)(given) is given


def test_an_op_with_no_results_at_all_runs() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2, 0), F32))
    graph.insert("aten.unbind.int", [x], {"dim": 1}, types=[], operands=("self",))
    graph.insert("aten.exp.default", [x], types=x.type, operands=("self",))
    graph.set_outputs(x)

    assert IRExecutor(graph, passes=None)(zeros(2, 0)).shape == (2, 0)


def test_lists_of_tensors_go_in_and_out_of_ops() -> None:
    def function(x: Tensor, y: Tensor) -> Any:
        summed = torch._foreach_add([x, y], 1.0)
        parts = torch.split(summed[0], [1, 2])
        grid = torch.meshgrid(parts[0][:, 0], summed[1].chunk(3)[1][:, 0], indexing="ij")
        return [*parts, *grid, *torch.topk(x, 2), torch.cat([*summed, x]), *summed[1].unbind(1)]

    x, y = randn(3, 3), randn(3, 3)

    assert_same(executor_of(function, x, y)(x, y), function(x, y), "the results")


def test_an_op_that_leaves_out_results_runs() -> None:
    def function(gradient: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return torch.ops.aten.convolution_backward(
            gradient, x, weight, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, False, False]
        )[0]

    args = randn(1, 2, 4, 4), randn(1, 2, 4, 4), randn(2, 2, 1, 1)

    assert_same(executor_of(function, *args)(*args), function(*args), "the result")


def test_open_sizes_take_any_size() -> None:
    def function(x: Tensor) -> Any:
        return x.relu().view(-1)[: x.shape[0]], torch.cat([x, x]).sum(0), x.shape[0] * 2

    graph = extract_ir(Function(function), (randn(4, 3),), dynamic_shapes=(({0: torch.export.Dim.AUTO},),))
    executor = IRExecutor(graph)

    for rows in (2, 4, 9):
        x = randn(rows, 3)
        assert_same(executor(x), function(x), f"the result for {rows} rows")
    with pytest.raises(ExecutionError, match="%args_0"):
        executor(randn(4, 4))


def test_sizes_that_depend_on_data_are_those_of_the_data() -> None:
    def function(x: Tensor) -> Any:
        chosen = x[x > 0]
        return chosen * 2, (x > 0).nonzero(), chosen.exp().sum()

    x = torch.tensor([1.0, -1.0, 2.0])
    executor = executor_of(function, x)

    for given in (x, -x, zeros(3), ones(3)):
        assert_same(executor(given), function(given), "the result")


def test_branches_and_loops_are_those_of_eager() -> None:
    from torch._higher_order_ops import scan, while_loop

    def function(x: Tensor) -> Any:
        branch = torch.cond(x.sum() > 0, lambda a: a.sin() * 2, lambda a: a - 1, (x,))
        loop = while_loop(lambda i, a: i < 3, lambda i, a: (i + 1, a.tanh() + x), (torch.tensor(0), x * 1))
        return branch, loop[1], scan(lambda carry, row: (carry * 0.5 + row, carry * 1), x[0] * 0, x)

    x = randn(3, 2)
    executor = executor_of(function, x)

    for given in (x, -x, x * 3):
        assert_same(executor(given), function(given), "the result")


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


def test_views_of_one_constant_share_memory_as_in_eager() -> None:
    executor = IRExecutor(
        extract_ir(Holder(lambda m, x: (m.constant, m.constant.t())), (ones(2, 2),)),
        Holder(lambda m, x: x).state_dict(),
    )

    first, second = executor(ones(2, 2))
    first.fill_(5)

    assert second.tolist() == [[5.0, 5.0], [5.0, 5.0]]


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
def careless() -> Iterator[dict[str, Tensor]]:
    """Registered executors that return what is not theirs to give: their input, and a tensor they keep."""
    kept = {"table": torch.arange(6.0).view(2, 3) - 3}
    register_executor("acme.same.default")(lambda inputs, attrs: [inputs[0]])
    register_executor("acme.table.default")(lambda inputs, attrs: [kept["table"]])
    yield kept
    unregister_executor("acme.same.default")
    unregister_executor("acme.table.default")


@pytest.mark.parametrize("strides", [(3, 1), (1, 2)], ids=["as-stated", "not-as-stated"])
def test_nothing_that_an_executor_keeps_is_overwritten(careless: dict[str, Tensor], strides: Any) -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2, 3), F32))
    table = graph.insert("acme.table.default", [x], types=TensorType((2, 3), F32, strides)).outputs[0]
    flat = graph.insert(
        "aten.reshape.default", [table], {"shape": [6]}, types=TensorType((6,), F32), operands=("self",)
    ).outputs[0]
    relu = graph.insert("aten.relu.default", [flat], types=flat.type, operands=("self",)).outputs[0]
    graph.set_outputs(
        (relu, graph.insert("aten.neg.default", [relu], types=relu.type, operands=("self",)).outputs[0])
    )
    before = careless["table"].clone()
    executor = IRExecutor(graph, passes=None)

    result, negated = executor(zeros(2, 3))

    assert torch.equal(careless["table"], before)
    assert torch.equal(result, before.relu().view(-1))
    assert torch.equal(negated, -before.relu().view(-1))


def test_an_input_that_an_executor_returns_is_not_overwritten(careless: dict[str, Tensor]) -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((3,), F32))
    exp = graph.insert("aten.exp.default", [x], types=x.type, operands=("self",)).outputs[0]
    same = graph.insert("acme.same.default", [exp], types=x.type).outputs[0]
    relu = graph.insert("aten.neg.default", [same], types=x.type, operands=("self",)).outputs[0]
    direct = graph.insert("acme.same.default", [x], types=x.type).outputs[0]
    last = graph.insert("aten.neg.default", [direct], types=x.type, operands=("self",)).outputs[0]
    total = graph.insert("aten.add.Tensor", [exp, relu], types=x.type, operands=("self", "other")).outputs[0]
    graph.set_outputs((total, last))
    given = randn(3)
    before = given.clone()

    total_now, negated = IRExecutor(graph, passes=None)(given)

    assert torch.equal(total_now, zeros(3))
    assert torch.equal(given, before)
    assert torch.equal(negated, -before)

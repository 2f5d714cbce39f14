"""Results of an executor: structures, views of any kind, open sizes, branches."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, ones, randn, zeros

from npu_ir import ExecutionError, Graph, TensorType, extract_ir
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

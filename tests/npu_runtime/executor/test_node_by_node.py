"""Running node by node: intermediates, what is called behind each node, looking for NaN."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn, zeros

from npu_ir import ExecutionError, Interpreter, OpNode, extract_ir
from npu_runtime import IRExecutor
from npu_runtime.executor.node_by_node import Run
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same


def function(x: Tensor) -> Any:
    parts = x.exp().view(3, 2).unbind(1)
    return parts[0].relu() + 1, parts[1]


def test_every_value_of_a_run_can_be_had() -> None:
    x = randn(2, 3)
    graph = extract_ir(Function(function), (x,))
    executor = IRExecutor(graph, passes=None)
    expected: dict[str, Any] = {}
    Interpreter(graph).run_flat(
        (x,),
        observe=lambda node, outputs: expected.update(
            {value.name: item.clone() for value, item in zip(node.outputs, outputs, strict=True)}
        ),
    )

    run = executor.run((x,), return_intermediates=True)

    assert isinstance(run, Run)
    assert_same(dict(run.intermediates), expected, "the intermediates")
    assert_same(run.results, function(x), "the results")
    assert run.mutations == {}
    for names in (["exp", "relu"], []):
        chosen = executor.run((x,), return_intermediates=names).intermediates
        assert_same(dict(chosen), {name: expected[name] for name in names}, "the chosen ones")
    assert executor.run((x,)).intermediates == {}


@pytest.mark.parametrize("name", ["unheard_of", "args_0"])
def test_an_unknown_name_is_refused_before_anything_runs(name: str) -> None:
    executor = IRExecutor(extract_ir(Function(function), (ones(2, 3),)), passes=None)
    seen: list[Any] = []

    with pytest.raises(
        ExecutionError,
        match=rf"no node of the graph computes %{name}, or it is internal to a partition .*"
        r"\n  at: graph 'Function'",
    ):
        executor.run(
            (ones(2, 3),), return_intermediates=["exp", name], on_node=lambda *args: seen.append(args)
        )

    assert not seen


def test_each_node_is_seen_once_in_order_with_its_outputs() -> None:
    x = randn(2, 3)
    executor = IRExecutor(extract_ir(Function(function), (x,)), passes=None)
    seen: list[tuple[OpNode, list[Any]]] = []

    executor.run((x,), on_node=lambda node, outputs: seen.append((node, outputs)))
    nodes = [node for node, _ in seen]
    executor.run_flat((x,), observe=lambda node, outputs: seen.append((node, outputs)))

    assert nodes == list(executor.graph.body)
    assert [node for node, _ in seen] == nodes * 2
    for node, outputs in seen:
        assert [tuple(item.shape) for item in outputs] == [value.tensor_type.shape for value in node.outputs]


def test_a_nan_is_blamed_on_the_node_that_makes_it() -> None:
    class Model(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.relu().log() * 0).exp().sum()

    executor = IRExecutor(extract_ir(Model(), (ones(2),)), passes=None)

    with pytest.raises(
        ExecutionError,
        match=(
            r"aten.mul.Tensor made a NaN in %mul, of inputs that have none\n"
            r"  at: node 'mul', .*test_node_by_node.py:\d+\n  fix: its inputs: %log"
        ),
    ):
        executor.run((zeros(2),), check_nan=True)

    assert math.isnan(executor(zeros(2)).item())
    assert executor.run((ones(2),), check_nan=True).results.item() == 2.0


def test_a_nan_that_comes_in_is_nobody_s_fault() -> None:
    executor = IRExecutor(extract_ir(Function(lambda x: x.exp().sum()), (ones(2),)), passes=None)

    run = executor.run((torch.tensor([1.0, math.nan]),), check_nan=True)

    assert math.isnan(run.results.item())


def test_writing_to_intermediates_changes_no_later_call() -> None:
    model = Function(lambda x: (x + 1, torch.tensor([3.0, 4.0]).view(2, 1) * x))
    executor = IRExecutor(extract_ir(model, (ones(2),)), passes=None)

    for item in executor.run((ones(2),), return_intermediates=True).intermediates.values():
        item.fill_(50)

    assert_same(executor(ones(2)), model(ones(2)), "the result")

"""An op that fails at run time: an error that names it, and an executor that can be used again."""

from __future__ import annotations

import linecache
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, zeros

from npu_ir import ExecutionError, Graph, Interpreter, TensorType, extract_ir, register_executor
from npu_ir.ops import unregister_executor
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function

F32 = torch.float32
GOOD, BAD = torch.tensor([0, 1]), torch.tensor([0, 7])


class Table(nn.Module):
    """Looks rows up, in a submodule."""

    class Lookup(nn.Module):
        def forward(self, x: Tensor, index: Tensor) -> Tensor:
            return x[index]

    def __init__(self) -> None:
        super().__init__()
        self.lookup = Table.Lookup()

    def forward(self, x: Tensor, index: Tensor) -> Tensor:
        return self.lookup(x.exp(), index).relu()


def calls(executor: IRExecutor) -> list[Callable[..., Any]]:
    """Return the ways to call an executor."""
    return [
        executor,
        lambda *args: executor.run(args),
        lambda *args: executor.run_flat(args),
        lambda *args: executor.run_flat(args, observe=lambda node, outputs: None),
    ]


@pytest.mark.parametrize("way", range(4))
def test_a_failing_node_is_named(way: int) -> None:
    executor = IRExecutor(extract_ir(Table(), (ones(3), GOOD)), passes=None)

    with pytest.raises(
        ExecutionError,
        match=r"aten.index.Tensor failed: IndexError: index 7 is out of bounds for dimension 0 with size 3\n"
        r"  at: node 'index_1', lookup, .*test_failures.py:\d+\n  fix: .*f32\[3\], i64\[2\]",
    ) as caught:
        calls(executor)[way](ones(3), BAD)

    assert isinstance(caught.value.__cause__, IndexError)
    assert torch.equal(executor(zeros(3), GOOD), ones(2))


def test_the_traceback_shows_the_line_of_the_program() -> None:
    executors = [
        IRExecutor(extract_ir(Function(function), (ones(3), GOOD)), passes=None)
        for function in (lambda x, i: x[i].relu(), lambda x, i: x.exp()[i], lambda x, i: x.neg().exp()[i])
    ]

    for executor in executors:
        with pytest.raises(ExecutionError, match="index 7") as caught:
            executor(ones(3), BAD)
        text = "".join(traceback.format_exception(caught.value))
        (line,) = [
            line.strip() for line in executor.source.splitlines() if "op_aten_index" in line and " = " in line
        ]
        assert line in text
    linecache.clearcache()


def test_a_node_of_a_region_is_named() -> None:
    def function(x: Tensor, index: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x, i: x[i] * 2, lambda x, i: x[i], (x, index))

    graph = extract_ir(Function(function), (ones(3), GOOD))
    executor = IRExecutor(graph, passes=None)
    with pytest.raises(ExecutionError, match="index 7") as wanted:
        Interpreter(graph).run(ones(3), BAD)

    with pytest.raises(ExecutionError, match=r"node 'index.*', .* in a region of node 'cond'") as caught:
        executor(ones(3), BAD)

    assert caught.value.where == wanted.value.where
    assert torch.equal(executor(ones(3), GOOD), ones(2) * 2)


@pytest.fixture
def broken() -> Iterator[None]:
    def fail(inputs: list[Any], attrs: Any) -> list[Any]:
        raise ValueError("boom")

    register_executor("acme.broken.default")(fail)
    register_executor("acme.short.default")(lambda inputs, attrs: [inputs[0][:1]])
    yield
    unregister_executor("acme.broken.default")
    unregister_executor("acme.short.default")


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("way", range(4))
@pytest.mark.parametrize(
    ("op", "message"),
    [
        ("broken", "acme.broken.default failed: ValueError: boom\n  at: node 'it'"),
        (
            "short",
            r"acme.short.default returned f32\[1\] for %it, which is f32\[2\] in the graph\n  at: node 'it'",
        ),
        ("unheard_of", "there is no operator acme.unheard_of.default\n  at: node 'it'"),
    ],
)
def test_a_failing_executor_is_named(op: str, message: str, way: int) -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2,), F32))
    graph.set_outputs(graph.insert(f"acme.{op}.default", [x], types=x.type, name="it").outputs[0])
    graph.set_call((x,))
    executor = IRExecutor(graph, passes=None)

    with pytest.raises(ExecutionError, match=message) as caught:
        calls(executor)[way](ones(2))

    assert caught.value.__cause__ is not caught.value
    assert op != "broken" or "ValueError: boom" in "".join(traceback.format_exception(caught.value))


def test_a_custom_op_that_raises_is_named() -> None:
    @torch.library.custom_op("acme_failures::picky", mutates_args=())
    def picky(x: Tensor) -> Tensor:
        if x.sum() > 100:
            raise RuntimeError("too much")
        return x.clone()

    picky.register_fake(torch.empty_like)
    executor = IRExecutor(extract_ir(Function(lambda x: picky(x) + 1), (ones(2),)), passes=None)

    with pytest.raises(ExecutionError, match="acme_failures.picky.default failed: RuntimeError: too much"):
        executor(ones(2) * 100)

    assert executor(ones(2)).tolist() == [2.0, 2.0]


def test_a_failing_node_of_the_prologue_is_named_and_nothing_changes() -> None:
    class Inverse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.eye(2))

        def forward(self, x: Tensor) -> Tensor:
            return x @ torch.linalg.inv(self.weight)

    model, x = Inverse(), ones(2, 2)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())
    assert executor.graph.prologue

    with pytest.raises(ExecutionError, match="inv"):
        executor.load_state_dict({"weight": zeros(2, 2)})

    assert torch.equal(executor(x), x)


def test_an_error_of_the_caller_s_callback_stays_as_it_is() -> None:
    executor = IRExecutor(extract_ir(Function(torch.relu), (ones(2),)), passes=None)

    def stop(node: Any, outputs: Any) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        executor.run((ones(2),), on_node=stop)

    assert executor(ones(2)).tolist() == [1.0, 1.0]


def test_an_interrupt_stays_as_it_is() -> None:
    def interrupt(inputs: list[Any], attrs: Any) -> list[Any]:
        raise KeyboardInterrupt("now")

    register_executor("acme.interrupted.default")(interrupt)
    try:
        graph = Graph()
        x = graph.add_input("x", TensorType((2,), F32))
        graph.set_outputs(graph.insert("acme.interrupted.default", [x], types=x.type).outputs[0])
        executor = IRExecutor(graph, passes=None)
        with torch.enable_grad():
            with pytest.raises(KeyboardInterrupt, match="^now$"):
                executor(ones(2))
            assert torch.is_grad_enabled()
    finally:
        unregister_executor("acme.interrupted.default")

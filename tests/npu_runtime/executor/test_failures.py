"""An op that fails at run time: an error that names it, and an executor that can be used again."""

import linecache
import traceback
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, zeros

from npu_ir import ExecutionError, Graph, Interpreter, extract_ir, parse_ir
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function

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
def broken(register: Any) -> None:
    def fail(inputs: list[Any], attrs: Any) -> list[Any]:
        raise ValueError("boom")

    register("acme.broken.default", fail)
    register("acme.short.default", lambda inputs, attrs: [inputs[0][:1]])


def graph_of(op: str) -> Graph:
    return parse_ir(
        f"graph g {{\n  input %x: f32[2]\n  call (%x)\n  %it: f32[2] = acme.{op}.default(%x)\n"
        "  return %it\n}\n"
    )


@pytest.mark.usefixtures("broken")
@pytest.mark.parametrize("way", range(4))
@pytest.mark.parametrize(("op", "message"), [
    ("broken", "acme.broken.default failed: ValueError: boom\n  at: node 'it'"),
    ("short",
        r"acme.short.default returned f32\[1\] for %it, which is f32\[2\] in the graph\n  at: node 'it'"),
    ("unheard_of", "there is no operator acme.unheard_of.default\n  at: node 'it'"),
])  # fmt: skip
def test_a_failing_executor_is_named(op: str, message: str, way: int) -> None:
    executor = IRExecutor(graph_of(op), passes=None)

    with pytest.raises(ExecutionError, match=message) as caught:
        calls(executor)[way](ones(2))

    assert caught.value.__cause__ is not caught.value
    assert op != "broken" or "ValueError: boom" in "".join(traceback.format_exception(caught.value))


def test_a_failing_node_of_the_prologue_is_named_and_nothing_changes() -> None:
    model, x = nn.Linear(2, 2, bias=False), ones(2, 2)
    model.weight.data = torch.eye(2)
    inverse = Function(lambda x: x @ torch.linalg.inv(inverse.inner.weight))
    inverse.inner = model
    executor = IRExecutor(extract_ir(inverse, (x,)), inverse.state_dict())
    assert executor.graph.prologue

    with pytest.raises(ExecutionError, match="inv"):
        executor.load_state_dict({"inner.weight": zeros(2, 2)})

    assert torch.equal(executor(x), x)


def test_an_error_of_the_caller_s_callback_stays_as_it_is() -> None:
    executor = IRExecutor(extract_ir(Function(torch.relu), (ones(2),)), passes=None)

    def stop(node: Any, outputs: Any) -> None:
        raise KeyError("enough")

    with pytest.raises(KeyError, match="enough"):
        executor.run((ones(2),), on_node=stop)

    assert executor(ones(2)).tolist() == [1.0, 1.0]


def test_an_interrupt_stays_as_it_is(register: Any) -> None:
    def interrupt(inputs: list[Any], attrs: Any) -> list[Any]:
        raise KeyboardInterrupt("now")

    register("acme.interrupted.default", interrupt)
    executor = IRExecutor(graph_of("interrupted"), passes=None)

    with torch.enable_grad():
        with pytest.raises(KeyboardInterrupt, match="^now$"):
            executor(ones(2))
        assert torch.is_grad_enabled()

"""Large graphs compile in time that grows with their size; many calls leave nothing behind."""

from __future__ import annotations

import gc
import sys
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn, zeros

from npu_ir import ExecutionError, Graph, TensorType, Value, extract_ir, register_executor
from npu_ir.ops import unregister_executor
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function

F32 = torch.float32
Grow = Callable[[Graph, Value, int], Value]


def _sine(graph: Graph, value: Value, index: int) -> Value:
    return graph.insert("aten.sin.default", [value], types=value.type, operands=("self",)).outputs[0]


def _view(graph: Graph, value: Value, index: int) -> Value:
    shape = (1, 2) if index % 2 else (2, 1)
    types = TensorType(shape, F32)
    return graph.insert(
        "aten.view.default", [value], {"size": list(shape)}, types=types, operands=("self",)
    ).outputs[0]


def _registered(graph: Graph, value: Value, index: int) -> Value:
    return graph.insert("acme.next.default", [value], types=value.type).outputs[0]


def _placed(graph: Graph, value: Value, index: int) -> Value:
    attrs = {"device": torch.device("cpu")}
    return graph.insert(
        "aten._to_copy.default", [value], attrs, types=value.type, operands=("self",)
    ).outputs[0]


def chain(grow: Grow, length: int) -> Graph:
    graph = Graph()
    value = graph.add_input("x", TensorType((2, 1), F32))
    value = _sine(graph, value, 0)
    for index in range(1, length):
        value = grow(graph, value, index)
    graph.set_outputs(value)
    return graph


def compile_time(grow: Grow, length: int) -> float:
    """Return the time to compile and plan a chain, the best of two; garbage of others does not count."""
    graph = chain(grow, length)
    times = []
    for _ in range(2):
        gc.disable()
        try:
            start = time.process_time()
            IRExecutor(graph, passes=None).memory_plan()
            times.append(time.process_time() - start)
        finally:
            gc.enable()
    return min(times)


@pytest.fixture
def _next() -> Any:
    register_executor("acme.next.default")(lambda inputs, attrs: [inputs[0] + 1])
    yield
    unregister_executor("acme.next.default")


@pytest.mark.usefixtures("_next")
@pytest.mark.parametrize(
    "grow", [_sine, _view, _registered, _placed], ids=["ops", "views", "executors", "devices"]
)
def test_compile_time_grows_with_the_size(grow: Grow) -> None:
    compile_time(grow, 20)

    small, large = compile_time(grow, 100), compile_time(grow, 600)

    assert large < 6 * small * 2.5, f"6 times the nodes take {large / small:.1f} times as long"


@pytest.mark.exhaustive
def test_ten_thousand_nodes_compile_and_run() -> None:
    executor = IRExecutor(chain(_sine, 10_000), passes=None)

    x = zeros(2, 1)

    assert torch.equal(executor(x), x)
    assert len(executor.instructions) == 10_000
    assert executor.memory_plan().peak_bytes == 8


class Model(nn.Module):
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.register_buffer("count", zeros(3))

    def forward(self, x: Tensor) -> Any:
        self.count += 1
        return self.linear(x).relu() + self.count, self.count


def test_thousands_of_calls_leave_nothing_behind() -> None:
    model, x = Model(), randn(2, 3)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())

    def calls(count: int) -> None:
        for _ in range(count):
            executor(x)

    grown = _growth(lambda: calls(2_000), lambda: calls(200))

    assert grown.objects < 20
    assert grown.bytes < 20_000
    assert grown.tensors == 0


def test_failed_calls_runs_and_other_weights_leave_nothing_behind() -> None:
    model, x = Model(), randn(2, 3)
    executor = IRExecutor(extract_ir(model, (x,)), model.state_dict())
    failing = IRExecutor(extract_ir(Function(lambda x, i: x.exp()[i]), (x, torch.tensor([0]))))

    def calls(count: int) -> None:
        for _ in range(count):
            with pytest.raises(ExecutionError, match="index 9"):
                failing(x, torch.tensor([9]))
            with pytest.raises(ExecutionError, match=r"f32\[1\]"):
                executor(ones(1))
            executor.run((x,), return_intermediates=True)
            executor.load_state_dict(model.state_dict())
            executor.reset()

    grown = _growth(lambda: calls(100), lambda: calls(20))

    assert grown.objects < 50
    assert grown.tensors == 0


def test_an_executor_that_is_dropped_is_gone() -> None:
    model, x = Model(), randn(2, 3)
    graph = extract_ir(model, (x,))
    IRExecutor(graph, model.state_dict())(x)
    executor = IRExecutor(graph, model.state_dict())
    result, _ = executor(x)
    gone = weakref.ref(executor), weakref.ref(executor.graph), weakref.ref(result)

    del executor, result
    gc.collect()

    assert [item() for item in gone] == [None] * 3


class _Growth:
    def __init__(self, objects: int, size: int, tensors: int) -> None:
        self.objects, self.bytes, self.tensors = objects, size, tensors


def _growth(work: Callable[[], None], before: Callable[[], None]) -> _Growth:
    """Return what is there behind ``work`` that was not there before."""
    before()
    gc.collect()
    objects, tensors, blocks = len(gc.get_objects()), _tensors(), sys.getallocatedblocks()
    work()
    gc.collect()
    return _Growth(
        len(gc.get_objects()) - objects, 64 * (sys.getallocatedblocks() - blocks), _tensors() - tensors
    )


def _tensors() -> int:
    return sum(type(item) is torch.Tensor for item in gc.get_objects())

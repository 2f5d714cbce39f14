"""Large graphs compile in time that grows with their size; many calls leave nothing behind."""

import gc
import time
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, randn, zeros

from npu_ir import Graph, TensorType, extract_ir
from npu_runtime import IRExecutor

# Ops that return what they are given, whose results can be chained.
CHAINS: dict[str, tuple[str, dict[str, Any]]] = {
    "ops": ("aten.sin.default", {}),
    "views": ("aten.view.default", {"size": [2, 1]}),
    "executors": ("acme.next.default", {}),
    "devices": ("aten._to_copy.default", {"device": torch.device("cpu")}),
}


def chain(kind: str, length: int) -> Graph:
    op_type, attrs = CHAINS[kind]
    graph = Graph()
    value = graph.add_input("x", TensorType((2, 1), torch.float32))
    for index in range(length):
        called, given = (op_type, attrs) if index else ("aten.sin.default", {})
        value = graph.insert(called, [value], given, types=value.type, operands=("self",)).outputs[0]
    graph.set_outputs(value)
    return graph


def compile_time(kind: str, length: int) -> float:
    """Return the time to compile and plan a chain, the best of two; garbage of others does not count."""
    graph = chain(kind, length)
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


@pytest.mark.parametrize("kind", CHAINS)
def test_compile_time_grows_with_the_size(kind: str, register: Any) -> None:
    register("acme.next.default", lambda inputs, attrs: [inputs[0] + 1])
    compile_time(kind, 20)

    small, large = compile_time(kind, 100), compile_time(kind, 600)

    assert large < 6 * small * 2.5, f"6 times the nodes take {large / small:.1f} times as long"


@pytest.mark.exhaustive
def test_ten_thousand_nodes_compile_and_run() -> None:
    executor = IRExecutor(chain("ops", 10_000), passes=None)

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

    objects, tensors = _growth(lambda: executor(x), 2_000)

    assert objects < 20
    assert tensors == 0


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


def _growth(work: Callable[[], Any], count: int) -> tuple[int, int]:
    """Return how many objects, and tensors, there are more after many calls; the first ones may keep some."""
    seen = []
    for calls in (count // 10, count):
        for _ in range(calls):
            work()
        gc.collect()
        objects = gc.get_objects()
        seen.append((len(objects), sum(type(item) is torch.Tensor for item in objects)))
        del objects
    (objects_before, tensors_before), (objects_after, tensors_after) = seen
    return objects_after - objects_before, tensors_after - tensors_before

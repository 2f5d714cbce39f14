"""An executor in many threads at once."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn, zeros

from npu_ir import Graph, TensorType, extract_ir, register_executor
from npu_ir.ops import unregister_executor
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function

THREADS, CALLS = 8, 60


def all_at_once(work: Callable[[int], Any]) -> list[Any]:
    """Return what ``work`` returns in each of many threads that begin together."""
    start = threading.Barrier(THREADS)

    def begin(index: int) -> Any:
        start.wait(10)
        return work(index)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


@pytest.mark.parametrize("passes", [None, "default"])
def test_many_threads_get_the_right_answers(passes: Any) -> None:
    model = nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 4), nn.Softmax(-1)).eval()
    inputs = [randn(3, 6) for _ in range(THREADS)]
    executor = IRExecutor(extract_ir(model, (inputs[0],)), model.state_dict(), passes=passes)
    expected = [executor(x) for x in inputs]

    def work(index: int) -> bool:
        return all(torch.equal(executor(inputs[index]), expected[index]) for _ in range(CALLS))

    assert all(all_at_once(work))


def test_many_threads_may_run_node_by_node_and_fail() -> None:
    executor = IRExecutor(extract_ir(Function(lambda x, i: x.exp()[i].relu()), (ones(3), torch.tensor([0]))))
    expected = zeros(3).exp()[:1]

    def work(index: int) -> bool:
        right = True
        for _ in range(CALLS):
            if index % 2:
                with pytest.raises(Exception, match="index 7"):
                    executor(zeros(3), torch.tensor([7]))
            else:
                right &= torch.equal(executor.run((zeros(3), torch.tensor([1]))).results, expected)
        return right

    assert all(all_at_once(work))


class Counter(nn.Module):
    total: Tensor
    calls: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", zeros(2, dtype=torch.int64))
        self.register_buffer("calls", zeros((), dtype=torch.int64))

    def forward(self, x: Tensor) -> Any:
        self.calls += 1
        self.total += x
        return self.calls.clone(), self.total * 1


def test_calls_that_change_buffers_run_one_after_another() -> None:
    model = Counter()
    executor = IRExecutor(extract_ir(model, (torch.ones(2, dtype=torch.int64),)), model.state_dict())
    x = torch.ones(2, dtype=torch.int64)

    def work(index: int) -> list[int]:
        call = executor if index % 2 else lambda x: executor.run((x,)).results
        return [call(x)[0].item() for _ in range(CALLS)]

    counts = all_at_once(work)

    assert sorted(number for part in counts for number in part) == list(range(1, THREADS * CALLS + 1))
    assert all(part == sorted(part) for part in counts)
    assert executor.state_dict()["total"].tolist() == [THREADS * CALLS] * 2


def test_weights_are_taken_as_a_whole() -> None:
    class Pair(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Parameter(zeros(4)), nn.Parameter(zeros(4))

        def forward(self, x: Tensor) -> Tensor:
            return self.a * 2 - self.b * 2 + x

    executor = IRExecutor(extract_ir(Pair(), (zeros(4),)), Pair().state_dict())

    def work(index: int) -> bool:
        right = True
        for step in range(CALLS):
            if index < 2:
                number = torch.full((4,), float(step + index))
                executor.load_state_dict({"a": number, "b": number.clone()})
            else:
                call = executor if index % 2 else lambda x: executor.run((x,)).results
                right &= not call(zeros(4)).any().item()
        return right

    assert all(all_at_once(work))


@pytest.fixture
def seen_threads() -> Iterator[list[int]]:
    seen: list[int] = []

    def note(inputs: list[Any], attrs: Any) -> list[Any]:
        seen.append(torch.get_num_threads())
        if inputs[0].sum() < 0:
            raise ValueError("negative")
        return [inputs[0] + 0]

    register_executor("acme.threads.default")(note)
    yield seen
    unregister_executor("acme.threads.default")


def threads_graph() -> Graph:
    graph = Graph()
    x = graph.add_input("x", TensorType((2,), torch.float32))
    graph.set_outputs(graph.insert("acme.threads.default", [x], types=x.type).outputs[0])
    graph.set_call((x,))
    return graph


def test_the_number_of_threads_is_set_during_calls_only(seen_threads: list[int]) -> None:
    before = torch.get_num_threads()
    executor = IRExecutor(threads_graph(), passes=None, threads=before + 1)

    executor(ones(2))
    executor.run((ones(2),))
    with pytest.raises(Exception, match="negative"):
        executor(-ones(2))
    IRExecutor(threads_graph(), passes=None)(ones(2))

    assert seen_threads == [before + 1] * 3 + [before]
    assert torch.get_num_threads() == before

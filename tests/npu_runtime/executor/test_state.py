"""Mutated buffers advance with each call, one call at a time, from any thread."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn, zeros

from npu_ir import (
    ConversionError,
    ExecutionError,
    Graph,
    GraphError,
    TensorType,
    WeightError,
    extract_ir,
    register_executor,
)
from npu_ir.ops import unregister_executor
from npu_runtime import IRExecutor, to_exported_program
from npu_runtime.planned import plan
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same


class Counter(nn.Module):
    """Counts, adds up what it is given, and keeps a scratch buffer out of its state_dict."""

    count: Tensor
    total: Tensor
    last: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.full((2,), 2.0))
        self.register_buffer("count", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", zeros(2))
        self.register_buffer("last", zeros(2), persistent=False)

    def forward(self, x: Tensor, index: Tensor) -> Any:
        self.count += 1
        self.total += x * self.scale
        before = self.last.clone()
        self.last.copy_(x)
        return self.total[index], self.count * 1, before


FIRST = torch.tensor([0])
OUT_OF_RANGE = torch.tensor([7])


def counter() -> tuple[Counter, IRExecutor]:
    model = Counter()
    graph = extract_ir(model, (ones(2), FIRST))
    return model, IRExecutor(graph, model.state_dict())


class Cache(nn.Module):
    """Keeps the keys of all steps."""

    keys: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", zeros(5, 3))

    def forward(self, x: Tensor, place: Tensor) -> Tensor:
        self.keys.index_copy_(0, place, x)
        return (x @ self.keys.t()).softmax(-1) @ self.keys


def test_counters_advance_as_in_eager() -> None:
    model, executor = counter()

    for step in range(4):
        x = randn(2)
        assert_same(executor(x, FIRST), model(x, FIRST), f"the result of step {step}")
        assert_same(executor.state_dict(), dict(model.state_dict()), f"the state after step {step}")


def test_a_batch_norm_in_training_advances_as_in_eager() -> None:
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.BatchNorm2d(3), nn.Dropout(0.5)).train()
    executor = IRExecutor(extract_ir(model, (randn(4, 2, 3, 3),)), model.state_dict())

    for step in range(3):
        x = randn(4, 2, 3, 3)
        torch.manual_seed(step)
        actual = executor(x)
        torch.manual_seed(step)
        torch.testing.assert_close(actual, model(x).detach())
    for name, tensor in model.state_dict().items():
        torch.testing.assert_close(executor.state_dict()[name], tensor)


def test_a_cache_of_keys_advances_as_in_eager() -> None:
    model = Cache()
    executor = IRExecutor(extract_ir(model, (randn(1, 3), FIRST)), model.state_dict())

    for place in range(5):
        args = randn(1, 3), torch.tensor([place])
        assert_same(executor(*args), model(*args), f"the result at place {place}")


def test_the_weights_of_the_caller_never_change() -> None:
    model, executor = counter()
    state = {key: item.clone() for key, item in model.state_dict().items()}

    for _ in range(3):
        executor(ones(2), FIRST)

    assert_same(dict(model.state_dict()), state, "the state of the model")


def test_reset_goes_back_to_the_beginning() -> None:
    _, executor = counter()
    first = executor(ones(2), FIRST)
    executor(ones(2), FIRST)

    executor.reset()

    assert_same(executor(ones(2), FIRST), first, "the first result")


def test_the_state_of_one_executor_is_taken_by_another() -> None:
    _, executor = counter()
    _, other = counter()
    executor(ones(2), FIRST)
    executor(ones(2) * 3, FIRST)

    other.load_state_dict(executor.state_dict())

    results = executor(ones(2), FIRST)[:2], other(ones(2), FIRST)[:2]
    assert_same(results[1], results[0], "the result")
    other.reset()
    assert_same(other(ones(2), FIRST)[:2], results[0], "the result after reset")


def test_a_buffer_that_is_not_persistent_is_no_part_of_the_state_dict() -> None:
    _, executor = counter()

    assert executor.state_dict().keys() == {"scale", "count", "total"}


def test_writing_to_a_state_dict_does_not_change_the_state() -> None:
    model, executor = counter()
    executor(ones(2), FIRST)
    model(ones(2), FIRST)

    state = executor.state_dict()
    state["total"].fill_(100)
    state["count"].fill_(100)

    assert_same(executor(ones(2), FIRST), model(ones(2), FIRST), "the result")


def test_writing_to_a_loaded_state_dict_does_not_change_the_state() -> None:
    model, executor = counter()
    state = {key: item.clone() for key, item in model.state_dict().items()}
    executor.load_state_dict(state)

    state["total"].fill_(100)
    executor(ones(2), FIRST)
    model(ones(2), FIRST)
    executor.reset()
    state["count"].fill_(100)

    assert executor(ones(2), FIRST)[1].item() == 1


def test_a_failed_call_leaves_the_state() -> None:
    model, executor = counter()
    executor(ones(2), FIRST)
    model(ones(2), FIRST)

    with pytest.raises(ExecutionError, match="index 7 is out of bounds"):
        executor(ones(2), OUT_OF_RANGE)
    with pytest.raises(ExecutionError, match="index 7 is out of bounds"):
        executor.run((ones(2), OUT_OF_RANGE))
    with pytest.raises(ExecutionError, match="%x is"):
        executor(ones(3), FIRST)

    assert_same(executor(ones(2), FIRST), model(ones(2), FIRST), "the result")


def test_weights_that_do_not_fit_leave_the_state() -> None:
    model, executor = counter()
    executor(ones(2), FIRST)
    model(ones(2), FIRST)

    with pytest.raises(WeightError, match="misfit: total"):
        executor.load_state_dict({**model.state_dict(), "total": zeros(3)})

    assert_same(executor(ones(2), FIRST), model(ones(2), FIRST), "the result")


def test_a_run_node_by_node_advances_the_state_as_a_call_does() -> None:
    model, executor = counter()

    for call in (executor, lambda *args: executor.run(args).results, executor):
        x = randn(2)
        assert_same(call(x, FIRST), model(x, FIRST), "the result")


def test_what_is_updated_is_told_by_every_name() -> None:
    model, executor = counter()

    mutations = executor.run((ones(2), FIRST)).mutations

    model(ones(2), FIRST)
    assert_same(dict(mutations), {name: getattr(model, name) for name in mutations}, "what is updated")
    assert mutations.keys() == {"count", "total", "last"}


def test_writing_to_what_is_updated_does_not_change_the_state() -> None:
    model, executor = counter()

    for run in (
        lambda: executor.run((ones(2), FIRST)).mutations,
        lambda: executor.run_flat((ones(2), FIRST))[1],
    ):
        for content in run().values():
            content.fill_(100)
        model(ones(2), FIRST)

    assert_same(executor(ones(2), FIRST), model(ones(2), FIRST), "the result")


def test_a_changed_argument_is_told_and_the_caller_s_stays() -> None:
    class Writer(nn.Module):
        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            x.add_(1)
            y[0].mul_(2)
            return x * y

    given = ones(2), ones(2)
    expected = ones(2), ones(2)
    result = Writer()(*expected)
    executor = IRExecutor(extract_ir(Writer(), (ones(2), ones(2))))

    leaves, mutations = executor.run_flat(given)

    assert_same(leaves, [result], "the result")
    assert_same(given, (ones(2), ones(2)), "the arguments")
    assert_same(mutations, dict(zip(("x", "y"), expected, strict=True)), "what is updated")


def test_tied_buffers_are_told_by_both_names() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", zeros(2))
            self.register_buffer("b", self.a)

        def forward(self, x: Tensor) -> Any:
            self.a.add_(x)
            return self.b * 1

    model = Tied()
    executor = IRExecutor(extract_ir(model, (ones(2),)), model.state_dict())

    executor(ones(2))

    assert_same(executor(ones(2)), torch.full((2,), 2.0), "the result")
    assert executor.state_dict().keys() == {"a", "b"}
    assert torch.equal(executor.state_dict()["a"], executor.state_dict()["b"])


def test_inside_of_unchanged_calls_leave_no_trace() -> None:
    model, executor = counter()

    with executor.unchanged():
        executor(ones(2), FIRST)
    with pytest.raises(ExecutionError, match="index 7"), executor.unchanged():
        executor.run((ones(2), OUT_OF_RANGE))

    assert_same(executor(ones(2), FIRST), model(ones(2), FIRST), "the result")


def test_the_weights_of_an_executor_are_those_it_holds_now() -> None:
    model, executor = counter()
    executor(ones(2), FIRST)
    model(ones(2), FIRST)

    held = {value.argument.target: item for value, item in executor.weights().items() if value.argument}

    assert {name: item for name, item in held.items() if not torch.equal(item, getattr(model, name))} == {}
    held["total"].fill_(100)
    assert_same(executor(ones(2), FIRST), model(ones(2), FIRST), "the result")


def test_buffers_that_trade_places_do_so_as_in_eager() -> None:
    class Swap(nn.Module):
        a: Tensor
        b: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("a", zeros(2))
            self.register_buffer("b", ones(2))

        def forward(self, x: Tensor) -> Any:
            before = self.a.clone()
            self.a.copy_(self.b)
            self.b.copy_(before)
            return self.a + x, self.b - x

    model = Swap()
    executor = IRExecutor(extract_ir(model, (ones(2),)), model.state_dict())

    for step in range(3):
        assert_same(executor(ones(2)), model(ones(2)), f"the result of step {step}")


def test_buffers_that_come_from_one_tensor_advance_apart() -> None:
    model, executor = counter()
    shared = zeros(2)
    state = {**model.state_dict(), "total": shared, "scale": shared}

    executor.load_state_dict(state)
    executor(ones(2), FIRST)

    assert not shared.any()
    assert executor.state_dict()["count"].item() == 1


def test_a_buffer_that_takes_an_argument_keeps_its_content() -> None:
    graph = Graph()
    x = graph.add_input("x", TensorType((2,), torch.float32))
    a, b = graph.add_buffer("a", x.type), graph.add_buffer("b", x.type)
    total = graph.insert("aten.add.Tensor", [a, b], types=x.type, operands=("self", "other")).outputs[0]
    graph.set_outputs(total)
    graph.set_update(a, x)
    graph.set_update(b, total)
    executor = IRExecutor(graph, {"a": zeros(2), "b": ones(2)}, passes=None)

    given = ones(2)
    first = executor(given)
    given.fill_(9)
    first.fill_(100)
    second = executor(given)
    second.fill_(100)

    assert second is not first
    assert executor.state_dict()["a"].tolist() == [9.0, 9.0]
    assert executor.state_dict()["b"].tolist() == [2.0, 2.0]


class GrowingCache(nn.Module):
    """Appends what it is given to a buffer, which has another size from then on."""

    kept: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("kept", zeros(1, 2))

    def forward(self, x: Tensor) -> Tensor:
        self.kept = torch.cat([self.kept, x])
        return self.kept.sum(0)


def test_a_buffer_that_gets_another_size_is_replaced_once() -> None:
    model, x = GrowingCache(), randn(3, 2)
    graph = extract_ir(model, (x,))
    executor = IRExecutor(graph, model.state_dict())
    expected = model(x)

    for _ in range(2):
        assert_same(executor(x), expected, "the result")
        assert_same(dict(executor.state_dict()), dict(model.state_dict()), "the state")
        with pytest.raises(
            ExecutionError,
            match=r"(?s)buffer 'kept' is f32\[4, 2\] since the last call, and the graph was captured for "
            r"f32\[1, 2\].*capture the model as it is after a call, or .*reset\(\)",
        ):
            executor(x)
        executor.reset()
    after = IRExecutor(extract_ir(model, (x,)), model.state_dict())
    assert_same(after(x), model(x), "the result of the next call")


def test_inputs_that_overlap_are_taken_by_an_executor_only() -> None:
    def shifted(a: Tensor, b: Tensor) -> Tensor:
        a.add_(1)
        return a + b

    base = randn(6)
    graph = extract_ir(Function(shifted), (base[:4], base[2:]))
    executor, twin = IRExecutor(graph, updates="write"), base.clone()

    assert_same(executor(base[:4], base[2:]), shifted(twin[:4], twin[2:]), "the result")
    assert_same(base, twin, "the inputs")
    with pytest.raises(
        ExecutionError, match=r"for inputs that overlap in memory: %args_0, f32\[4\], and %args_1"
    ):
        executor(randn(4), randn(4))
    with pytest.raises(
        GraphError, match=r"%args_1 overlaps the input 'args_0' in memory: memory is planned for"
    ):
        plan(graph)
    with pytest.raises(
        ConversionError, match=r"%args_1 overlaps the input 'args_0' in memory: a program of PyTorch"
    ):
        to_exported_program(graph)


def test_fixed_memory_and_programs_of_pytorch_have_buffers_of_one_size() -> None:
    graph = extract_ir(GrowingCache(), (randn(3, 2),))

    with pytest.raises(
        GraphError, match=r"%kept is f32\[1, 2\], and f32\[4, 2\] when .*memory is planned for buffers"
    ):
        plan(graph)
    with pytest.raises(
        ConversionError, match=r"%kept is f32\[1, 2\], and f32\[4, 2\] when .*writes into its buffers"
    ):
        to_exported_program(graph, GrowingCache().state_dict())


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


class Totals(nn.Module):
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
    model = Totals()
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

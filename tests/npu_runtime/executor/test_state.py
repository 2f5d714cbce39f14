"""Mutated buffers advance with each call, one call at a time, from any thread."""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn, zeros

from npu_ir import ConversionError, ExecutionError, GraphError, WeightError, extract_ir, parse_ir
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
    return model, IRExecutor(graph, model.state_dict(), backend="aten")


def test_counters_advance_as_in_eager_also_node_by_node() -> None:
    model, executor = counter()

    for call in (executor, lambda *args: executor.run(args).results, executor):
        x = randn(2)
        assert_same(call(x, FIRST), model(x, FIRST), "the result")
        assert_same(executor.state_dict(), dict(model.state_dict()), "the state")


def test_reset_goes_back_to_the_weights_of_the_caller_which_never_change() -> None:
    model, executor = counter()
    state = {key: item.clone() for key, item in model.state_dict().items()}
    first = executor(ones(2), FIRST)
    executor(ones(2), FIRST)

    executor.reset()

    assert_same(dict(model.state_dict()), state, "the state of the model")
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


def test_writing_to_a_state_dict_does_not_change_the_state() -> None:
    model, executor = counter()
    loaded = {key: item.clone() for key, item in model.state_dict().items()}
    executor.load_state_dict(loaded)
    executor(ones(2), FIRST)
    model(ones(2), FIRST)

    for state in (loaded, executor.state_dict()):
        state["total"].fill_(100)
        state["count"].fill_(100)

    assert_same(executor(ones(2), FIRST), model(ones(2), FIRST), "the result")
    executor.reset()
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
    with pytest.raises(WeightError, match="misfit: total"):
        executor.load_state_dict({**model.state_dict(), "total": zeros(3)})

    assert_same(executor(ones(2), FIRST), model(ones(2), FIRST), "the result")


@pytest.mark.parametrize(
    "run",
    [
        lambda executor: executor.run((ones(2), FIRST)).mutations,
        lambda executor: executor.run_flat((ones(2), FIRST))[1],
    ],
    ids=["run", "run_flat"],
)
def test_what_is_updated_is_a_copy_of_the_state_by_name(run: Callable[[IRExecutor], Any]) -> None:
    model, executor = counter()

    mutations = run(executor)

    model(ones(2), FIRST)
    assert_same(
        dict(mutations), {name: getattr(model, name) for name in ("count", "total", "last")}, "the updates"
    )
    for content in mutations.values():
        content.fill_(100)
    assert_same(executor(ones(2), FIRST), model(ones(2), FIRST), "the result")


def test_tied_buffers_are_told_by_both_names() -> None:
    model = Counter()
    model.register_buffer("again", model.total)
    executor = IRExecutor(extract_ir(model, (ones(2), FIRST)), model.state_dict())

    executor(ones(2), FIRST)

    assert executor.state_dict().keys() == {"scale", "count", "total", "again"}
    assert executor.state_dict()["again"].tolist() == executor.state_dict()["total"].tolist() == [2.0, 2.0]


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


def test_buffers_that_come_from_one_tensor_advance_apart() -> None:
    model, executor = counter()
    shared = zeros(2)
    state = {**model.state_dict(), "total": shared, "scale": shared}

    executor.load_state_dict(state)
    executor(ones(2), FIRST)

    assert not shared.any()
    assert executor.state_dict()["count"].item() == 1


TAKING = """
graph taking {
  input %x: f32[2]
  buffer %a: f32[2]
  buffer %b: f32[2]
  %total: f32[2] = aten.add.Tensor(%a, %b)
  update %a = %x
  update %b = %total
  return %total
}
"""


def test_a_buffer_that_takes_an_argument_keeps_its_content() -> None:
    executor = IRExecutor(parse_ir(TAKING), {"a": zeros(2), "b": ones(2)}, passes=None)

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


def test_calls_that_change_buffers_run_one_after_another() -> None:
    _, executor = counter()

    def work(index: int) -> list[int]:
        call = executor if index % 2 else lambda *args: executor.run(args).results
        return [call(ones(2), FIRST)[1].item() for _ in range(CALLS)]

    counts = all_at_once(work)

    assert sorted(number for part in counts for number in part) == list(range(1, THREADS * CALLS + 1))
    assert all(part == sorted(part) for part in counts)
    assert executor.state_dict()["total"].tolist() == [THREADS * CALLS * 2] * 2


def test_the_number_of_threads_is_set_during_calls_only(register: Any) -> None:
    before, seen = torch.get_num_threads(), []

    def note(inputs: list[Any], attrs: Any) -> list[Any]:
        seen.append(torch.get_num_threads())
        if inputs[0].sum() < 0:
            raise ValueError("negative")
        return [inputs[0] + 0]

    register("acme.threads.default", note)
    graph = parse_ir(
        "graph g {\n  input %x: f32[2]\n  %y: f32[2] = acme.threads.default(%x)\n  return %y\n}\n"
    )
    executor = IRExecutor(graph, passes=None, threads=before + 1)

    executor(ones(2))
    executor.run((ones(2),))
    with pytest.raises(Exception, match="negative"):
        executor(-ones(2))
    IRExecutor(graph, passes=None)(ones(2))

    assert seen == [before + 1] * 3 + [before]
    assert torch.get_num_threads() == before


def test_resets_are_counted_for_all_executors_that_share_the_state() -> None:
    model, executor = counter()
    other = IRExecutor(extract_ir(model, (ones(2), FIRST)), model.state_dict(), share=executor)
    alone = IRExecutor(extract_ir(model, (ones(2), FIRST)), model.state_dict())

    executor.reset()
    other.reset()

    assert (executor.resets, other.resets, alone.resets) == (2, 2, 0)

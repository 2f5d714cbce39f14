"""State that is overwritten in part is written in place; a call that fails restores it."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn, zeros

from npu_ir import ExecutionError, extract_ir, parse_ir
from npu_runtime import IRExecutor, explain, profile
from npu_runtime.backends.registry import named_backends
from npu_runtime.executor.held_state import HeldState
from npu_runtime.lowering.lowered_graph import lower
from tests.support.caches import WRITES, Cached, Write, batch
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row


def cached(write: Write) -> tuple[Cached, IRExecutor]:
    model = Cached(write)
    graph = extract_ir(model, batch())
    return model, IRExecutor(graph, model.state_dict(), passes="default")


def memory(executor: IRExecutor) -> list[int]:
    return [item.data_ptr() for item in executor._engine._state.tensors]


@each_row("write", WRITES)
def test_results_and_state_are_those_of_eager_and_the_memory_stays(write: Write) -> None:
    model, executor = cached(write)
    before = memory(executor)

    for at in ((1, 0), (5, 2), (3, 3), (0, 4)):
        args = batch(at)
        assert_same(executor(*args), model(*args), "the result")
        assert_same(executor.state_dict(), dict(model.state_dict()), "the state")

    assert memory(executor) == before
    assert [item.name for item in executor.lowered.state.in_place.values()]
    assert "index_copy" not in {item.value for item in executor.memory_plan().live_ranges}


@each_row("write", WRITES)
def test_a_call_that_fails_restores_the_rows(write: Write) -> None:
    model, executor = cached(write)
    args = batch()
    executor(*args)
    model(*args)

    for _ in range(2):
        with pytest.raises(ExecutionError, match="index .*out of"):
            executor(*batch((2, 5), last=7))
        with pytest.raises(ExecutionError, match="index .*out of"):
            executor.run(batch((2, 5), last=7))
        assert_same(executor.state_dict(), dict(model.state_dict()), "the state")

    assert_same(executor(*args), model(*args), "the result")


def test_a_write_that_fails_restores_those_before_it() -> None:
    model, executor = cached(WRITES["index_copy-twice"])
    state = {name: item.clone() for name, item in model.state_dict().items()}
    x, _, last = batch()

    with pytest.raises(ExecutionError, match="out of"):
        executor(x, torch.tensor([2, 11]), last)

    assert_same(executor.state_dict(), state, "the state")


def test_what_callers_hold_is_not_overwritten() -> None:
    class Returning(nn.Module):
        cache: Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("cache", randn(6, 4))

        def forward(self, x: Tensor, at: Tensor) -> Any:
            self.cache.index_copy_(0, at, x)
            return self.cache, self.cache[1:3], x.relu()

    model = Returning()
    args = randn(2, 4), torch.tensor([1, 2])
    executor = IRExecutor(extract_ir(model, args), model.state_dict())
    kept = executor(*args)
    state, weights = executor.state_dict(), dict(executor.weights())
    expected = model(*args)
    held = [item.clone() for item in (*expected, model.cache, model.cache)]

    executor(randn(2, 4), torch.tensor([1, 2]))

    (weight,) = weights.values()
    for found, wanted in zip((*kept, state["cache"], weight), held, strict=True):
        assert_same(found, wanted, "what was returned")


def test_intermediate_values_are_those_at_their_time() -> None:
    model, executor = cached(WRITES["index_copy-twice"])
    args = batch()
    before = model.cache.clone()

    run = executor.run(args, return_intermediates=True)

    assert_same(run.intermediates["index_copy"], before.index_copy(1, args[1], args[0].relu()), "the first")
    model(*args)
    assert_same(executor.state_dict(), dict(model.state_dict()), "the state")


def test_state_that_was_bound_in_inference_mode_is_written_outside() -> None:
    model = Cached(WRITES["index_copy"])
    graph = extract_ir(model, batch())
    with torch.inference_mode():
        executor = IRExecutor(graph, model.state_dict(), passes="default")
        executor.reset()

    for _ in range(2):
        args = batch()
        assert_same(executor(*args), model(*args), "the result")
    with torch.inference_mode():
        found = executor(*args)
    assert_same(found.clone(), model(*args), "the result in inference mode")
    assert_same(executor.state_dict(), dict(model.state_dict()), "the state")


def test_a_profile_has_a_state_of_its_own() -> None:
    model, executor = cached(WRITES["index_copy"])
    before = executor.state_dict()
    args = batch()

    profile(executor, args, repeat=2)

    assert_same(executor.state_dict(), before, "the state")
    assert_same(executor(*args), model(*args), "the result")


def test_the_state_is_restored_after_a_trial_and_by_reset() -> None:
    model, executor = cached(WRITES["index_copy"])
    args = batch()
    first = executor(*args)
    state = executor.state_dict()

    with executor.unchanged():
        executor(*batch((4, 5)))

    assert_same(executor.state_dict(), state, "the state")
    executor.reset()
    assert_same(executor.state_dict(), dict(model.state_dict()), "the state at the start")
    assert_same(executor(*args), first, "the result")


GRAPH = """
graph late {{
  input %x: f32[2, 4]
  input %at: i64[2]
  buffer %cache: f32[6, 4]
  call (%x, %at)

  {body}

  update %cache = %new
  return {result}
}}
"""
NEW = "%new: f32[6, 4] = aten.index_copy.default(self=%cache, index=%at, source=%x) {dim=0}"
SUM = "%sum: f32[] = aten.sum.default(self=%cache)"
VIEW = "%view: f32[24] = aten.view.default(self=%cache) {size=[24]}"
SUM_OF_VIEW = "%sum: f32[] = aten.sum.default(self=%view)"
SLICE = "%slice: f32[2, 4] = aten.slice.Tensor(self=%cache) {dim=0, start=2, end=4}"
NEW_OF_SLICE = NEW.replace("%x", "%slice")


def written(*body: str, result: str) -> IRExecutor:
    graph = parse_ir(GRAPH.format(body="\n  ".join(body), result=result))
    return IRExecutor(graph, {"cache": randn(6, 4)}, passes=None)


@each_row(
    "body, result, reason",
    {
        "later": ((NEW, SUM), "%sum", "sum reads what new would overwrite"),
        "later, through a view": ((VIEW, NEW, SUM_OF_VIEW), "%sum", "sum reads what new would overwrite"),
        "returned": ((NEW,), "%cache", "the caller reads what new would overwrite"),
        "returned view": ((VIEW, NEW), "%view", "the caller reads what new would overwrite"),
        "the node itself": ((SLICE, NEW_OF_SLICE), "%new", "the node itself reads what new would overwrite"),
    },
)
def test_state_that_is_read_later_is_copied_and_the_explanation_says_why(
    body: tuple[str, ...], result: str, reason: str
) -> None:
    executor = written(*body, result=result)
    (at,) = memory(executor)
    before = executor.state_dict()["cache"]
    x, places = randn(2, 4), torch.tensor([1, 2])

    found = executor(x, places)

    assert re.search(rf"copied in each call +because\n%cache +{reason}\n", str(explain(executor)))
    assert explain(executor).to_dict()["state_copied"] == {"cache": reason}
    assert memory(executor) != [at]
    source = before[2:4] if "itself" in reason else x
    new = before.index_copy(0, places, source)
    expected = {"%sum": before.sum(), "%cache": before, "%view": before.view(24), "%new": new}
    assert_same(found, expected[result], "the result")
    assert_same(executor.state_dict()["cache"], new, "the state")


def test_state_that_is_read_before_is_written_in_place() -> None:
    executor = written(VIEW, SUM_OF_VIEW, NEW, result="%sum")
    before = memory(executor), executor.state_dict()["cache"]
    x, places = randn(2, 4), torch.tensor([1, 2])

    assert_same(executor(x, places), before[1].sum(), "the result")

    assert memory(executor) == before[0]
    assert_same(executor.state_dict()["cache"], before[1].index_copy(0, places, x), "the state")


def test_the_explanation_names_state_that_is_written_in_place() -> None:
    _, executor = cached(WRITES["index_copy"])

    found = explain(executor)

    assert "state written in place: cache" in str(found)
    assert found.to_dict()["state_in_place"] == ["cache"]


def test_a_graph_that_does_not_own_its_state_copies_it() -> None:
    graph = extract_ir(Cached(WRITES["index_copy"]), batch())

    assert not lower(graph, named_backends(())).state.in_place


class Indexed(nn.Module):
    """Writes rows at computed places, whose memory is used again, and then fails."""

    cache: Tensor

    def __init__(self, write: Write) -> None:
        super().__init__()
        self.write = write
        self.register_buffer("cache", zeros(6, 4))

    def forward(self, x: Tensor, at: Tensor, last: Tensor) -> Any:
        place = at + 1
        self.write(self.cache, place, x)
        return self.cache.sum(0), place * 2, torch.linalg.cholesky(last)


@each_row(
    "write",
    [
        lambda cache, place, rows: cache.index_copy_(0, place, rows),
        lambda cache, place, rows: cache.index_put_((place,), rows),
    ],
)
@each_row("at", [(0, 1), (1, 2)])
def test_the_places_of_rows_are_kept_until_the_call_has_succeeded(at: tuple[int, int], write: Write) -> None:
    args = ones(2, 4), torch.tensor(at)
    executor = IRExecutor(
        extract_ir(Indexed(write), (*args, torch.eye(2))), {"cache": zeros(6, 4)}, passes=None
    )

    with pytest.raises(ExecutionError, match="not positive-definite"):
        executor(*args, -torch.eye(2))

    assert_same(executor.state_dict()["cache"], zeros(6, 4), "the state")


class Counting(nn.Module):
    """Writes rows, and counts."""

    cache: Tensor
    count: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", zeros(6, 4))
        self.register_buffer("count", zeros(()))

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        self.cache.index_copy_(0, at, x)
        self.count += 1
        return self.cache.sum()


@each_row("is_shared", [False, True])
def test_an_interrupt_leaves_all_state_or_none_as_it_was(
    is_shared: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = ones(2, 4), torch.tensor([1, 2])
    graph = extract_ir(Counting(), args)
    executor = IRExecutor(graph, Counting().state_dict(), passes=None)
    other = IRExecutor(graph, Counting().state_dict(), passes=None, share=executor) if is_shared else executor
    advance = HeldState.set

    def interrupted(self: HeldState, *arguments: Any) -> None:
        advance(self, *arguments)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(HeldState, "set", interrupted)
        with pytest.raises(KeyboardInterrupt):
            other(*args)

    assert_same(executor.state_dict(), dict(Counting().state_dict()), "the state")
    assert other(*args) == 8
    assert executor.state_dict()["count"] == 1


def test_executors_that_share_state_see_what_the_other_writes() -> None:
    model, executor = cached(WRITES["index_copy"])
    graph = extract_ir(Cached(WRITES["slice"]), batch())
    other = IRExecutor(graph, model.state_dict(), passes="default", share=executor)
    second = Cached(WRITES["slice"])
    second.cache, second.table = model.cache, model.table

    for made, net in ((executor, model), (other, second), (executor, model)):
        args = batch()
        assert_same(made(*args), net(*args), "the result")

    for made in (executor, other):
        assert_same(made.state_dict(), dict(model.state_dict()), "the state")
    with pytest.raises(ExecutionError, match="other weights for one executor of several that share state"):
        other.load_state_dict(model.state_dict())
    other.reset()
    assert_same(executor.state_dict()["cache"], other.state_dict()["cache"], "the state after a reset")


class ReadingOnly(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("cache", zeros(2, 6, 4))

    def forward(self) -> Tensor:
        return self.cache.sum()  # type: ignore[operator, no-any-return]


def test_state_that_only_one_of_two_writes_to_is_not_shared() -> None:
    model, executor = cached(WRITES["index_copy"])
    reading = extract_ir(ReadingOnly(), ())

    with pytest.raises(ExecutionError, match="writes to 'cache', which graph 'ReadingOnly' only reads"):
        IRExecutor(reading, ReadingOnly().state_dict(), share=executor)
    alone = IRExecutor(reading, ReadingOnly().state_dict())
    with pytest.raises(ExecutionError, match="share executors of graphs that both write to it"):
        IRExecutor(executor.graph, model.state_dict(), passes=None, share=alone)


def test_state_of_another_type_is_not_shared() -> None:
    _, executor = cached(WRITES["index_copy"])
    longer = Cached(WRITES["index_copy"], rows=9)

    with pytest.raises(ExecutionError, match="the state 'cache' is f32.2, 9, 4. here"):
        IRExecutor(extract_ir(longer, batch()), longer.state_dict(), share=executor)


def test_weights_that_were_changed_are_prepared_anew() -> None:
    model = nn.Linear(4, 3)
    graph = extract_ir(model, (ones(2, 4),))
    executor = IRExecutor(graph, model.state_dict())
    with torch.no_grad():
        model.weight.mul_(2)

    other = IRExecutor(graph, model.state_dict(), share=executor)

    assert_same(other(ones(2, 4)), model(ones(2, 4)).detach(), "the result", tolerance=1e-6)

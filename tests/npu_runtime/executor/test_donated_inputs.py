"""Inputs whose memory a call writes to: donated ones, and those that the model writes to."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, from_numpy, nn, randn

from npu_ir import ExecutionError, extract_ir
from npu_runtime import IRExecutor, explain, profile
from tests.support.caches import WRITES, Write
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row

Batch = tuple[Tensor, Tensor, Tensor, Tensor]


class Functional(nn.Module):
    """Returns the next content of a cache; reads rows of a table at last, which may fail."""

    def __init__(self, write: Write = WRITES["index_copy"]) -> None:
        super().__init__()
        self.write = write
        self.register_buffer("table", randn(3, 4))

    def forward(self, cache: Tensor, x: Tensor, at: Tensor, last: Tensor) -> Any:
        new = cache.clone()
        self.write(new, at, x.relu())
        return new.sum(1) + self.table.index_select(0, last), new  # type: ignore[operator]


class Writing(Functional):
    """Writes to the cache that it is given."""

    def forward(self, cache: Tensor, x: Tensor, at: Tensor, last: Tensor) -> Any:
        self.write(cache, at, x.relu())
        return cache.sum(1) + self.table.index_select(0, last)  # type: ignore[operator]


def batch(at: tuple[int, int] = (1, 0), last: int = 1) -> Batch:
    return randn(2, 6, 4), randn(2, 2, 4), torch.tensor(at), torch.tensor([last])


def donating(model: nn.Module, **options: Any) -> IRExecutor:
    graph = extract_ir(model, batch())
    return IRExecutor(graph, model.state_dict(), passes="default", **options)


@each_row("write", WRITES)
def test_a_donated_cache_comes_back_in_its_own_memory(write: Write) -> None:
    model = Functional(write)
    executor = donating(model, donate=["cache"])
    cache, *_ = batch()
    expected = cache.clone()
    address = cache.data_ptr()

    for at in ((1, 0), (5, 2), (3, 3)):
        _, *args = batch(at)
        found, cache = executor(cache, *args)
        wanted, expected = model(expected, *args)
        assert_same((found, cache), (wanted, expected), "the results")

    assert cache.data_ptr() == address
    assert explain(executor).state_in_place == ("cache",)


@each_row("write", WRITES)
def test_an_input_that_the_model_writes_to_is_written_in_place(write: Write) -> None:
    model = Writing(write)
    executor = donating(model, updates="write")
    assert explain(executor).state_in_place == ("cache",)
    ours, *_ = batch()
    theirs = ours.clone()

    for at in ((1, 0), (5, 2), (3, 3)):
        _, *args = batch(at)
        assert_same(executor(ours, *args), model(theirs, *args), "the result")
        assert_same(ours, theirs, "the cache")


@each_row(
    "model, options",
    [
        (Functional, {"donate": ("cache",)}),
        (Writing, {"updates": "write"}),
        (Writing, {"donate": ("cache",)}),
    ],
)
def test_a_call_that_fails_leaves_them_as_they_were(model: type[nn.Module], options: dict[str, Any]) -> None:
    executor = donating(model(), **{"updates": "return", **options})
    cache, x, at, _ = batch()
    before = cache.clone()

    for _ in range(2):
        with pytest.raises(ExecutionError, match="index .*out of"):
            executor(cache, x, at, torch.tensor([7]))
        assert_same(cache, before, "the cache")


@each_row("model", [Functional, Writing])
def test_calls_that_write_to_no_argument_do_not(model: type[nn.Module]) -> None:
    options = {"donate": ("cache",)} if model is Functional else {"updates": "write"}
    executor = donating(model(), **options)
    cache, *args = batch()
    before = cache.clone()

    executor.run((cache, *args), return_intermediates=True)
    profile(executor, (cache, *args), repeat=2)
    if model is Writing:
        executor.run_flat((cache, *args))

    assert_same(cache, before, "the cache")


def test_run_flat_returns_the_memory_that_was_donated() -> None:
    model = Functional()
    executor = donating(model, donate=("cache",))
    cache, *args = batch()
    expected = model(cache.clone(), *args)

    found, _ = executor.run_flat((cache, *args))

    assert_same(tuple(found), expected, "the results")
    assert found[1].data_ptr() == cache.data_ptr()


def test_another_layout_than_the_captured_one_is_copied_and_right() -> None:
    model = Functional()
    executor = donating(model, donate=("cache",))
    cache, *args = batch()
    cache = cache.transpose(0, 2).contiguous().transpose(0, 2)

    expected = model(cache.clone(), *args)
    assert_same(executor(cache, *args), expected, "the results", tolerance=1e-6)


class Two(nn.Module):
    """Writes rows of two caches, of which it reads the second one first."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(randn(6, 4))

    def forward(self, first: Tensor, second: Tensor, x: Tensor, at: Tensor) -> Any:
        total = second.sum()
        return first.index_copy(0, at, x) + self.weight, second.index_copy(0, at, -x), total


def two() -> tuple[Two, tuple[Tensor, ...], IRExecutor]:
    model, args = Two(), (randn(6, 4), randn(6, 4), randn(2, 4), torch.tensor([1, 5]))
    executor = IRExecutor(extract_ir(model, args), model.state_dict(), donate=("first", "second"))
    return model, args, executor


def test_tensors_that_are_used_elsewhere_are_refused() -> None:
    model, (first, second, x, at), executor = two()
    both = randn(7, 4)
    refused = "the input %first is donated, but the tensor that is given "

    with pytest.raises(ExecutionError, match=refused + "shares memory with %second[\\s\\S]*fix: pass a copy"):
        executor(first, first, x, at)
    with pytest.raises(ExecutionError, match=refused + "shares memory with %second"):
        executor(both[:6], both[1:], x, at)
    with pytest.raises(ExecutionError, match=refused + "shares memory with %weight"):
        executor(model.weight.detach(), second, x, at)
    with pytest.raises(ExecutionError, match=refused + "requires gradients"):
        executor(first.requires_grad_(), second, x, at)


def test_after_calls_in_separate_memory_shared_memory_is_still_refused() -> None:
    model, (first, second, x, at), executor = two()
    first_of_all = first.clone()
    executor(first, second, x, at)
    executor(first, second, x.clone(), at)
    shared = "the input %{} is donated, but the tensor that is given shares memory with %{}"

    with pytest.raises(ExecutionError, match=shared.format("first", "x")):
        executor(first, second, first[2:4], at)
    with pytest.raises(ExecutionError, match=shared.format("second", "x")):
        executor(first, second, second[4:], at)
    with pytest.raises(ExecutionError, match=shared.format("first", "weight")):
        executor(model.weight.detach(), second, x, at)

    moved = first_of_all.clone()
    assert_same(
        executor(moved, second.clone(), x, at), model(first_of_all, second.clone(), x, at), "the results"
    )


def test_other_weights_may_share_memory_with_the_arguments_of_earlier_calls() -> None:
    _, (first, second, x, at), executor = two()
    executor(first, second, x, at)
    executor.load_state_dict({"weight": first})

    with pytest.raises(ExecutionError, match="%first is donated, but .* shares memory with %weight"):
        executor(first, second, x, at)


def test_an_argument_at_the_same_address_in_other_strides_is_looked_at_again() -> None:
    class Model(nn.Module):
        def forward(self, cache: Tensor, at: Tensor, x: Tensor, scale: Tensor) -> Any:
            return cache.index_copy(0, at, x), scale * 2

    memory, at, x = randn(64), torch.tensor([1, 3]), randn(2, 4)
    cache, expanded, whole = memory[4:36].view(8, 4), memory[:4].expand(4, 4), memory[:16].view(4, 4)
    graph = extract_ir(Model(), (randn(8, 4), at, x, randn(4).expand(4, 4)))
    executor = IRExecutor(graph, passes="default", donate=["cache"])
    executor(cache, at, x, expanded)

    with pytest.raises(ExecutionError, match="%cache is donated, but .* shares memory with %scale"):
        executor(cache, at, x, whole)


def test_memory_of_others_that_overlaps_is_refused() -> None:
    _, (_, second, _, at), executor = two()
    memory = np.arange(40, dtype=np.float32)

    with pytest.raises(ExecutionError, match="%first is donated, but .* shares memory with %x"):
        executor(from_numpy(memory[:24]).view(6, 4), second, from_numpy(memory[20:28]).view(2, 4), at)


def test_a_weight_that_only_the_prologue_reads_is_refused() -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)

        def forward(self, cache: Tensor, x: Tensor, at: Tensor) -> Any:
            return cache.index_copy(0, at, x), self.norm(self.conv(x))

    model, args = Model().eval(), (randn(4, 3, 3, 3), randn(2, 3, 3, 3), torch.tensor([0, 3]))
    executor = IRExecutor(extract_ir(model, args), model.state_dict(), passes="default", donate=("cache",))
    assert executor.graph.prologue

    with pytest.raises(ExecutionError, match="%cache is donated, but .* shares memory with %conv.weight"):
        executor(model.conv.weight.detach(), *args[1:])


def test_autograd_sees_that_a_tensor_was_overwritten() -> None:
    model = Functional()
    executor = donating(model, donate=("cache",))
    cache, *args = batch()
    weight = torch.ones(2, 6, 4, requires_grad=True)
    loss = (weight * cache).sum()

    executor(cache, *args)

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()  # type: ignore[no-untyped-call]


def test_a_mapping_says_which_result_is_in_the_memory() -> None:
    model = Functional()
    cache, *args = batch()
    expected = model(cache.clone(), *args)

    for result, is_in_place in ((1, True), (0, False)):
        executor = donating(model, donate={"cache": result})
        given = cache.clone()
        found = executor(given, *args)
        assert_same(found, expected, "the results", tolerance=1e-6)
        assert (found[1].data_ptr() == given.data_ptr()) is is_in_place
    with pytest.raises(ExecutionError, match="donate= has result 2 for 'cache', and there are 2"):
        donating(model, donate={"cache": 2})


def test_parts_of_one_storage_that_do_not_overlap_are_taken() -> None:
    model, (_, _, x, at), executor = two()
    both = randn(12, 4)
    expected = model(both[:6].clone(), both[6:].clone(), x, at)

    found = executor(both[:6], both[6:], x, at)

    assert_same(found, expected, "the results", tolerance=1e-6)
    assert found[1].data_ptr() == both[6:].data_ptr()


def test_an_input_that_is_read_later_is_copied_and_the_explanation_says_why() -> None:
    class Model(nn.Module):
        def forward(self, cache: Tensor, x: Tensor, at: Tensor) -> Any:
            new = cache.index_copy(0, at, x)
            return new, new - cache

    args = randn(6, 4), randn(2, 4), torch.tensor([0, 3])
    executor = IRExecutor(extract_ir(Model(), args), donate=("cache",))
    before = args[0].clone()

    found = executor(*args)

    assert explain(executor).state_copied == {"cache": "sub reads what index_copy would overwrite"}
    assert_same(found, Model()(*args), "the results")
    assert_same(args[0], before, "the cache")


def test_two_ways_to_go_on_from_one_cache_leave_it_alone() -> None:
    class Model(nn.Module):
        def forward(self, cache: Tensor, x: Tensor, at: Tensor) -> Any:
            return cache.index_copy(0, at, x), cache.index_copy(0, at, -x)

    args = randn(6, 4), randn(2, 4), torch.tensor([0, 3])
    executor = IRExecutor(extract_ir(Model(), args), donate=("cache",))

    assert_same(executor(*args), Model()(*args), "the results")


@each_row(
    "names, text",
    {
        "unknown": (
            ("keys",),
            "donate= names 'keys', which is not a tensor among the inputs[\\s\\S]*cache, x",
        ),
        "a weight": (("table",), "donate= names 'table'[\\s\\S]*fix: it can have cache, x, at, last"),
        "a string": ("cache", "donate='cache' is not a collection of names\\n  fix: donate=\\('cache',\\)"),
    },
)
def test_other_names_are_refused(names: Any, text: str) -> None:
    with pytest.raises(ExecutionError, match=text):
        donating(Functional(), donate=names)


def test_a_saved_executor_donates_the_same(tmp_path: Path) -> None:
    model = Functional()
    donating(model, donate=("cache",)).save(tmp_path / "file")
    executor = IRExecutor.load(tmp_path / "file")
    cache, *args = batch()
    expected = model(cache.clone(), *args)

    found = executor(cache, *args)

    assert_same(found, expected, "the results")
    assert found[1].data_ptr() == cache.data_ptr()


def test_a_cache_of_open_size_is_written_in_place() -> None:
    batches = torch.export.Dim("batch", min=1, max=8)
    model, (cache, x, at, last) = Functional(), batch()
    graph = extract_ir(model, (cache, x, at, last), dynamic_shapes=({0: batches}, {0: batches}, None, None))
    executor = IRExecutor(graph, model.state_dict(), donate=("cache",))

    for rows in (2, 5):
        cache, x = randn(rows, 6, 4), randn(rows, 2, 4)
        expected = model(cache.clone(), x, at, last)
        found = executor(cache, x, at, last)
        assert_same(found, expected, "the results", tolerance=1e-6)
        assert found[1].data_ptr() == cache.data_ptr()

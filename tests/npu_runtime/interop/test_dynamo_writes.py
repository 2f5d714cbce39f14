"""``torch.compile(model, backend="npu")`` of functions that overwrite parts of their inputs: caches."""

from typing import Any

import pytest
import torch
from torch import Tensor, randn

from npu_runtime import explain
from tests.npu_runtime.interop.compiled_graphs import (
    CompiledGraphs,
    assert_same_calls,
    compiled,
    compiled_graphs,
)
from tests.support.corpus.comparison import assert_same

__all__ = ["compiled_graphs"]


def write_rows(cache: Tensor, x: Tensor, at: Tensor) -> Any:
    cache.index_copy_(0, at, x)
    return cache[1:3], cache * 1, cache.sum()


def write_slices(cache: Tensor, x: Tensor, at: Tensor) -> Any:
    cache[1:3] = x
    cache[5] = x[0]
    return cache.clone()


@pytest.mark.parametrize("function", [write_rows, write_slices])
def test_inputs_that_are_overwritten_in_part_are_written_in_place(
    compiled_graphs: CompiledGraphs, function: Any
) -> None:
    calls = [(randn(6, 4), randn(2, 4), torch.tensor(at)) for at in ((1, 0), (5, 2))]

    assert_same_calls(function, *calls, fullgraph=True)

    (executor,) = compiled_graphs.executors
    assert len(explain(executor).state_in_place) == 1


def overwrite_what_was_returned(cache: Tensor, x: Tensor, at: Tensor) -> Any:
    cache.index_copy_(0, at, x)
    result = cache.clone()
    cache.copy_(x[:1].expand_as(cache) * 2)
    return result


def return_the_content_itself(cache: Tensor, x: Tensor, at: Tensor) -> Any:
    new = cache.index_copy(0, at, x)
    cache.copy_(new)
    return new


def return_another_content(cache: Tensor, x: Tensor, at: Tensor) -> Any:
    other = cache + 1
    new = cache.index_copy(0, at, x)
    cache.copy_(other)
    return new


@pytest.mark.parametrize(
    "function", [overwrite_what_was_returned, return_the_content_itself, return_another_content]
)
def test_results_are_not_in_the_memory_of_what_is_written_to(function: Any) -> None:
    cache, x, at = randn(6, 4), randn(2, 4), torch.tensor([1, 0])
    torch._dynamo.reset()
    own = cache.clone()

    with torch.no_grad():
        found = compiled(function)(own, x, at)
        expected = function(cache, x, at)

    assert_same((found, own), (expected, cache), "the result and the cache")
    own.zero_()
    assert_same(found, expected, "the result, when the cache changes")


def test_caches_are_exchanged() -> None:
    def exchange(left: Tensor, right: Tensor, x: Tensor, at: Tensor) -> None:
        new = left.index_copy(0, at, x), right.index_copy(0, at, x)
        left.copy_(new[1])
        right.copy_(new[0])

    args = randn(6, 4), randn(6, 4), randn(2, 4), torch.tensor([1, 0])
    own = [item.clone() for item in args]
    torch._dynamo.reset()

    with torch.no_grad():
        compiled(exchange)(*own)
        exchange(*args)

    assert_same(tuple(own), args, "the caches")


def test_interleaved_caches_in_one_storage_are_written_in_place(compiled_graphs: CompiledGraphs) -> None:
    def function(left: Tensor, right: Tensor, x: Tensor) -> Tensor:
        left[1] = x
        right[2] = -x
        return left + right

    ours, theirs = torch.ones(4, 6), torch.ones(4, 6)
    x = randn(3)
    with torch.no_grad():
        found = compiled(function)(ours[:, ::2], ours[:, 1::2], x)

    assert torch.equal(found, function(theirs[:, ::2], theirs[:, 1::2], x))
    assert torch.equal(ours, theirs)

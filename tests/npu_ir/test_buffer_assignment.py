"""Buffers that ``forward`` replaces, ``self.cache = new``, in the root module and in others."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn, ones, randn, zeros
from torch.export import Dim

from npu_ir import ConversionError, ExportError, execute_ir, extract_ir
from tests.npu_ir.corpus.comparison import assert_same

New = Callable[[Tensor, Tensor], Tensor]


class Cached(nn.Module):
    """Replaces its cache in each call, by a function of it and the input."""

    def __init__(self, new: New) -> None:
        super().__init__()
        self.register_buffer("cache", zeros(3))
        self.new = new

    def forward(self, x: Tensor) -> Tensor:
        self.cache = self.new(self.cache, x)
        return x + self.cache.sum()


class Outer(nn.Module):
    """Calls the module that has the cache, once or twice."""

    def __init__(self, new: New, calls: int = 1) -> None:
        super().__init__()
        self.inner = Cached(new)
        self.calls = calls

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.calls):
            x = self.inner(x)
        return x


def moved(cache: Tensor, x: Tensor) -> Tensor:
    return cache * 2 + x.mean()


@pytest.mark.parametrize(
    ("build", "key"),
    [
        pytest.param(lambda: Cached(moved), "cache", id="the root"),
        pytest.param(lambda: Outer(moved), "inner.cache", id="a submodule"),
        pytest.param(lambda: Outer(moved, calls=2), "inner.cache", id="a submodule called twice"),
        pytest.param(lambda: nn.Sequential(Outer(moved)), "0.inner.cache", id="a deeper one"),
    ],
)
def test_a_buffer_that_is_replaced_is_updated(build: Callable[[], nn.Module], key: str) -> None:
    x, model = randn(3), build()
    graph = extract_ir(build(), (ones(3),))

    result, updates = execute_ir(graph, (x,), weights=build().state_dict(), return_mutations=True)

    assert_same(result, model(x), "the result")
    assert_same(updates, {key: model.state_dict()[key]}, "the updates")


def test_two_calls_see_the_buffer_of_the_first() -> None:
    model, weights, x = Outer(moved), Outer(moved).state_dict(), randn(3)
    graph = extract_ir(Outer(moved), (ones(3),))

    for _ in range(3):
        result, weights = execute_ir(graph, (x,), weights=weights, return_mutations=True)
        assert_same(result, model(x), "the result")


@pytest.mark.parametrize(
    ("new", "found"),
    [
        pytest.param(lambda cache, x: ones(5), r"f32\[5\]", id="another size"),
        pytest.param(lambda cache, x: ones(3, 1), r"f32\[3, 1\]", id="another rank"),
        pytest.param(lambda cache, x: cache.double(), r"f64\[3\]", id="another dtype"),
    ],
)
@pytest.mark.parametrize(
    ("build", "name"), [(Cached, r"\S*cache"), (Outer, r"inner\.cache")], ids=["root", "submodule"]
)
def test_a_buffer_replaced_by_one_of_another_type_is_refused(
    build: Callable[[New], nn.Module], name: str, new: New, found: str
) -> None:
    model = build(new)

    with pytest.raises(
        ConversionError,
        match=rf"{name} is f32\[3\], and forward replaces it by a tensor that is {found}\n"
        r"[\s\S]*fix: give the buffer its final size and dtype from the start, and write into parts of it",
    ):
        extract_ir(model, (ones(3),))

    assert all(torch.equal(buffer, zeros(3)) for buffer in model.buffers())


@pytest.mark.parametrize("build", [Cached, Outer])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_model_is_left_as_it_was(build: Callable[[New], nn.Module], device: str) -> None:
    with torch.device(device):
        model = build(moved)
    before = {key: (id(tensor), tensor._version) for key, tensor in model.named_buffers()}

    extract_ir(model, (ones(3),))

    assert {key: (id(tensor), tensor._version) for key, tensor in model.named_buffers()} == before
    assert all(buffer.device.type == device for buffer in model.buffers())


def test_buffers_can_be_replaced_again_after_a_capture() -> None:
    model = Outer(lambda cache, x: ones(5))

    with pytest.raises(ConversionError, match="replaces it by"):
        extract_ir(model, (ones(3),))

    model(ones(3))
    assert torch.equal(model.inner.cache, ones(5))


def test_a_buffer_of_a_size_that_is_left_open_is_refused() -> None:
    model = Outer(lambda cache, x: x * 1)

    with pytest.raises(
        (ConversionError, ExportError), match=r"inner.cache is f32\[3\], and forward replaces it"
    ):
        extract_ir(model, (ones(4),), dynamic_shapes={"x": {0: Dim("n", min=4)}})

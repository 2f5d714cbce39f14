"""Buffers that ``forward`` replaces, ``self.cache = new``, in the root module and in others."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn, ones, randn, zeros
from torch.export import Dim

from npu_ir import (
    ConversionError,
    Graph,
    GraphError,
    ParseError,
    SerializationError,
    TensorType,
    WeightError,
    convert_exported_program,
    execute_ir,
    extract_ir,
    load_ir,
    parse_ir,
    save_ir,
    verify_ir,
)
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row

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


@each_row(
    "build, key",
    {
        "the root": (lambda: Cached(moved), "cache"),
        "a submodule": (lambda: Outer(moved), "inner.cache"),
        "a submodule called twice": (lambda: Outer(moved, calls=2), "inner.cache"),
        "a deeper one": (lambda: nn.Sequential(Outer(moved)), "0.inner.cache"),
    },
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


def replaced_twice(cache: Tensor, x: Tensor) -> Tensor:
    return torch.cat([cache, x])


OF_ANOTHER_TYPE = [
    pytest.param(lambda cache, x: ones(5), "f32[5]", id="another size"),
    pytest.param(lambda cache, x: ones(3, 1), "f32[3, 1]", id="another rank"),
    pytest.param(lambda cache, x: cache.double(), "f64[3]", id="another dtype"),
    pytest.param(replaced_twice, "f32[6]", id="appended to"),
    pytest.param(lambda cache, x: torch.cat([cache, x]).mul_(2), "f32[6]", id="changed in place"),
]


@pytest.mark.parametrize(("new", "found"), OF_ANOTHER_TYPE)
@pytest.mark.parametrize(
    ("build", "key"), [(Cached, "cache"), (Outer, "inner.cache")], ids=["root", "submodule"]
)
def test_a_buffer_replaced_by_one_of_another_type_is_an_update_of_that_type(
    build: Callable[[New], nn.Module], key: str, new: New, found: str, tmp_path: Path
) -> None:
    x, model, twin = randn(3), build(new), build(new)

    graph = extract_ir(model, (ones(3),))

    assert all(torch.equal(buffer, zeros(3)) for buffer in model.buffers())
    assert f"update %{key}: {found} = " in str(graph)
    assert graph.replacements == (graph.buffers[key],)
    save_ir(graph, tmp_path / "graph.json")
    for again in (
        graph,
        parse_ir(str(graph)),
        load_ir(tmp_path / "graph.json"),
        graph.clone(),
        copied(graph),
    ):
        assert again == graph
        result, updates = execute_ir(again, (x,), weights=model.state_dict(), return_mutations=True)
        assert_same(result, build(new)(x), "the result")
    twin(x)
    assert_same(updates, dict(twin.state_dict()), "the updates")
    assert verify_ir(graph, model, (x,)).ok


def copied(graph: Graph) -> Graph:
    return pickle.loads(pickle.dumps(graph))  # noqa: S301 - our own


def test_a_buffer_that_is_replaced_again_and_again_is_what_it_was_last() -> None:
    model = Outer(replaced_twice, calls=3)
    x, before = randn(3), model.state_dict()

    graph = extract_ir(model, (x,))

    result, updates = execute_ir(graph, (x,), weights=before, return_mutations=True)
    assert_same(result, model(x), "the result")
    assert_same(updates, dict(model.state_dict()), "the updates")


def test_a_model_whose_buffer_has_been_replaced_is_captured_as_it_is_then() -> None:
    class Positions(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("positions", zeros(1, 1), persistent=False)

        def forward(self, x: Tensor) -> Tensor:
            if self.positions.shape[1] != x.shape[1]:
                self.positions = torch.arange(x.shape[1]).float()[None]
            return x + self.positions

    model, x = Positions(), randn(2, 5)
    first = extract_ir(model, (x,))
    expected = model(x)

    second = extract_ir(model, (x,))

    assert first.replacements
    assert not second.updates
    assert torch.equal(execute_ir(first, (x,)), expected)
    assert torch.equal(execute_ir(second, (x,)), expected)
    with pytest.raises(WeightError, match=r"misfit: positions is f32\[1, 5\], the graph needs f32\[1, 1\]"):
        execute_ir(first, (x,), constants={"positions": model.positions})


def test_the_size_of_a_buffer_that_is_replaced_may_be_left_open() -> None:
    def doubled(cache: Tensor, x: Tensor) -> Tensor:
        return x * 2

    model = Outer(doubled)

    graph = extract_ir(model, (ones(4),), dynamic_shapes={"x": {0: Dim("n", min=4)}})

    assert "update %inner.cache: f32[n] = " in str(graph)
    for size in (4, 7):
        x = randn(size)
        result, updates = execute_ir(graph, (x,), weights=model.state_dict(), return_mutations=True)
        twin = Outer(doubled)
        assert_same(result, twin(x), "the result")
        assert_same(updates, dict(twin.state_dict()), "the updates")


@pytest.mark.parametrize(
    ("build", "name"), [(Cached, "cache"), (Outer, r"inner\.cache")], ids=["root", "submodule"]
)
def test_a_buffer_of_another_type_whose_views_are_written_to_is_refused(
    build: Callable[[New], nn.Module], name: str
) -> None:
    def written_to(cache: Tensor, x: Tensor) -> Tensor:
        new = torch.cat([cache, x])
        new[:2].add_(1)
        return new

    model = build(written_to)

    with pytest.raises(
        ConversionError,
        match=rf"{name} is f32\[3\], and forward replaces it by a tensor that is f32\[6\]; together with "
        r"writes through views[\s\S]*fix: give the buffer its final size and dtype from the start, "
        "and write into parts of it",
    ):
        extract_ir(model, (ones(3),))

    assert all(torch.equal(buffer, zeros(3)) for buffer in model.buffers())


def test_a_view_of_the_new_buffer_that_is_written_to_later_is_seen_or_refused() -> None:
    class Later(Cached):
        def forward(self, x: Tensor) -> Tensor:
            self.cache = torch.cat([self.cache, x])
            view = self.cache.view(-1)
            view.add_(1)
            return x

    with pytest.raises(ConversionError, match="forward replaces it by a tensor that is"):
        extract_ir(Later(moved), (ones(3),))


@each_row(
    "old, new, error",
    {
        "not stated": (": f32[5] =", " =", r"%ones is f32\[5\], it cannot stand for %cache"),
        "stated wrongly": (": f32[5] =", ": f32[4] =", r"%ones is f32\[5\], not f32\[4\]"),
    },
)
def test_a_text_must_state_the_type_that_a_buffer_gets(old: str, new: str, error: str) -> None:
    text = str(extract_ir(Cached(lambda cache, x: ones(5)), (ones(3),)))

    with pytest.raises((GraphError, ParseError), match=error):
        parse_ir(text.replace(f"update %cache{old}", f"update %cache{new}"))


def test_only_buffers_are_replaced() -> None:
    graph = Graph()
    x, other = (
        graph.add_input(name, TensorType((size,), torch.float32)) for name, size in (("x", 2), ("y", 3))
    )

    with pytest.raises(GraphError, match=r"%y is f32\[3\], it cannot stand for %x"):
        graph.set_update(x, other, replaces=True)


@pytest.mark.parametrize("build", [Cached, Outer])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_model_is_left_as_it_was(build: Callable[[New], nn.Module], device: str) -> None:
    with torch.device(device):
        model = build(moved)
    before = {key: (id(tensor), tensor._version) for key, tensor in model.named_buffers()}

    extract_ir(model, (ones(3),))

    assert {key: (id(tensor), tensor._version) for key, tensor in model.named_buffers()} == before
    assert all(buffer.device.type == device for buffer in model.buffers())


@each_row("build", [Cached, Outer])
def test_the_node_that_differs_is_found_where_a_buffer_is_replaced(build: Callable[[New], nn.Module]) -> None:
    model = build(lambda cache, x: torch.cat([cache, x]))
    graph = extract_ir(model, (ones(3),))
    node = next(node for node in graph.nodes if node.op_type == "aten.cat.default")
    wrong = graph.insert(
        "aten.neg.default", node.outputs, types=node.outputs[0].type, operands=["self"], after=node
    )
    for user in node.outputs[0].users:
        if user is not wrong:
            graph.set_input(user, 0, wrong.outputs[0])

    found = verify_ir(graph, model, (ones(3),))

    assert not found.ok


def test_a_program_that_casts_what_is_assigned_is_refused() -> None:
    program = torch.export.export(Cached(lambda cache, x: ones(5)), (ones(3),))

    with pytest.raises(
        ConversionError,
        match=r"cache is f32\[3\], and forward replaces it by .* f32\[5\]; an exported program cannot",
    ):
        convert_exported_program(program)


@each_row(
    "entry, problem",
    {
        "not stated": (["cache", "ones"], r"%ones is f32\[5\], it cannot stand for %cache"),
        "stated wrongly": (["cache", "ones", ["f32", [4]]], r"%ones is f32\[5\], not \['f32', \[4\]\]"),
    },
)
def test_a_file_must_state_the_type_that_a_buffer_gets(
    entry: list[Any], problem: str, tmp_path: Path
) -> None:
    path = tmp_path / "graph.json"
    save_ir(extract_ir(Cached(lambda cache, x: ones(5)), (ones(3),)), path)
    document = json.loads(path.read_text())
    document["updates"] = [entry]
    path.write_text(json.dumps(document))

    with pytest.raises(SerializationError, match=problem):
        load_ir(path)


def assigned_twice(cached: Cached, x: Tensor) -> None:
    cached.cache = torch.cat([cached.cache, x])
    cached.cache = cached.cache * 2


def of_the_same_type_first(cached: Cached, x: Tensor) -> None:
    cached.cache = cached.cache + 1
    cached.cache = torch.cat([cached.cache, x])


def changed_in_place_first(cached: Cached, x: Tensor) -> None:
    cached.cache.add_(1)
    cached.cache = torch.cat([cached.cache, x])


def without_gradients(cached: Cached, x: Tensor) -> None:
    with torch.no_grad():
        cached.cache = torch.cat([cached.cache, x])
        cached.cache = cached.cache * 2


def of_its_own_type_last(cached: Cached, x: Tensor) -> None:
    cache = cached.cache
    cached.cache = torch.cat([cached.cache, x])
    cached.cache = cache * 2


class Assigning(Cached):
    """Replaces its cache in several steps."""

    def __init__(self, step: Callable[[Cached, Tensor], None]) -> None:
        super().__init__(moved)
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        self.step(self, x)
        return x + self.cache.sum()


@pytest.mark.parametrize("is_root", [True, False], ids=["root", "submodule"])
@pytest.mark.parametrize(
    "step",
    [
        assigned_twice,
        of_the_same_type_first,
        changed_in_place_first,
        without_gradients,
        of_its_own_type_last,
    ],
    ids=lambda f: f.__name__,
)
def test_a_buffer_is_what_it_is_given_last(step: Callable[[Cached, Tensor], None], is_root: bool) -> None:
    def build() -> nn.Module:
        return Assigning(step) if is_root else nn.Sequential(Assigning(step))

    model, twin, x = build(), build(), randn(3)

    graph = extract_ir(model, (ones(3),))

    result, updates = execute_ir(graph, (x,), weights=model.state_dict(), return_mutations=True)
    assert_same(result, twin(x), "the result")
    assert_same(updates, dict(twin.state_dict()), "the updates")
    assert verify_ir(graph, model, (x,)).ok


def within_autocast(cached: Cached, x: Tensor) -> None:
    with torch.autocast("cpu"):
        cached.cache = torch.cat([cached.cache, x])


def test_a_replacement_in_a_region_of_its_own_is_refused() -> None:
    with pytest.raises(ConversionError, match="forward replaces it by a tensor that is .*in autocast"):
        extract_ir(nn.Sequential(Assigning(within_autocast)), (ones(3),))


def test_a_buffer_of_two_names_is_not_replaced_by_one_of_them() -> None:
    model = Cached(replaced_twice)
    model.register_buffer("other", model.cache)

    with pytest.raises(ConversionError, match="forward replaces the buffer 'cache', which is 'other', too"):
        extract_ir(model, (ones(3),))


class Stepping(Cached):
    """Does as a function says."""

    def __init__(self, step: Callable[[Cached, Tensor], Tensor]) -> None:
        super().__init__(torch.add)
        self.step = step

    def forward(self, x: Tensor) -> Tensor:
        return self.step(self, x)


def reads_the_old(module: Cached, x: Tensor) -> Tensor:
    old = module.cache
    module.cache = old + x
    return old * 2 + module.cache


def changes_the_new(module: Cached, x: Tensor) -> Tensor:
    new = module.cache + x
    module.cache = new
    new.mul_(2)
    return module.cache + 1


def changes_what_it_assigned(module: Cached, x: Tensor) -> Tensor:
    module.cache = x * 1
    module.cache.add_(1)
    return module.cache * 3


def returns_the_old(module: Cached, x: Tensor) -> Tensor:
    old = module.cache
    module.cache = old + x
    return old


def returns_a_view_of_the_old(module: Cached, x: Tensor) -> Tensor:
    old = module.cache[1:]
    module.cache = module.cache + x
    return old


def assigns_in_autocast(module: Cached, x: Tensor) -> Tensor:
    with torch.autocast("cpu"):
        module.cache = module.cache + x
    return module.cache


@pytest.mark.parametrize("is_root", [True, False], ids=["root", "submodule"])
@pytest.mark.parametrize(
    "step",
    [
        reads_the_old,
        changes_the_new,
        changes_what_it_assigned,
        returns_the_old,
        returns_a_view_of_the_old,
        assigns_in_autocast,
    ],
)
def test_old_and_new_are_two_tensors(step: Callable[[Cached, Tensor], Tensor], is_root: bool) -> None:
    model = Stepping(step) if is_root else nn.Sequential(Stepping(step))
    x = randn(3)

    graph = extract_ir(model, (x,))

    report = verify_ir(graph, model, (x,))
    assert report.ok, str(report)
    weights = model.state_dict()
    assert_same(execute_ir(graph, (x,), weights=weights), model(x), "the result")


def test_an_input_that_is_assigned_and_changed_is_updated_as_well() -> None:
    def step(module: Cached, x: Tensor) -> Tensor:
        module.cache = x
        module.cache.add_(1)
        return x * 3

    graph = extract_ir(nn.Sequential(Stepping(step)), (randn(3),))

    assert {target.name for target in graph.updates} == {"0.cache", "input"}

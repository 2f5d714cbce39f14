"""Buffers that ``forward`` replaces, ``self.cache = new``, in the root module and in others."""

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
    WeightError,
    convert_exported_program,
    execute_ir,
    extract_ir,
    load_ir,
    parse_ir,
    save_ir,
    verify_ir,
)
from tests.support.corpus.case import Holding
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row

Step = Callable[[Any, Tensor], Any]


def root(step: Step) -> nn.Module:
    """Return a module that does a step with itself: it has a buffer ``cache`` of three zeros."""
    return Holding(step, cache=zeros(3))


def submodule(step: Step) -> nn.Module:
    return nn.Sequential(root(step))


def called_three_times(step: Step) -> nn.Module:
    return Holding(lambda self, x: self.inner(self.inner(self.inner(x))), inner=root(step))


def assign(new: Callable[[Tensor, Tensor], Tensor]) -> Step:
    """Return a step that replaces the cache by a function of it and the input."""

    def step(module: Any, x: Tensor) -> Tensor:
        module.cache = new(module.cache, x)
        return x + module.cache.sum()

    return step


def appended(cache: Tensor, x: Tensor) -> Tensor:
    return torch.cat([cache, x])


def assigned_twice(module: Any, x: Tensor) -> Tensor:
    module.cache = appended(module.cache, x)
    module.cache = module.cache * 2
    return x


def of_the_same_type_first(module: Any, x: Tensor) -> Tensor:
    module.cache = module.cache + 1
    module.cache = appended(module.cache, x)
    return x


def changed_in_place_first(module: Any, x: Tensor) -> Tensor:
    module.cache.add_(1)
    module.cache = appended(module.cache, x)
    return module.cache


def without_gradients(module: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        module.cache = appended(module.cache, x)
        module.cache = module.cache * 2
    return x


def of_its_own_type_last(module: Any, x: Tensor) -> Tensor:
    cache = module.cache
    module.cache = appended(module.cache, x)
    module.cache = cache * 2
    return module.cache


def reads_the_old(module: Any, x: Tensor) -> Tensor:
    old = module.cache
    module.cache = old + x
    return old * 2 + module.cache


def changes_the_new(module: Any, x: Tensor) -> Tensor:
    new = module.cache + x
    module.cache = new
    new.mul_(2)
    return module.cache + 1


def changes_what_it_assigned(module: Any, x: Tensor) -> Tensor:
    module.cache = x * 1
    module.cache.add_(1)
    return module.cache * 3


def returns_the_old(module: Any, x: Tensor) -> Tensor:
    old = module.cache
    module.cache = old + x
    return old


def returns_a_view_of_the_old(module: Any, x: Tensor) -> Tensor:
    old = module.cache[1:]
    module.cache = module.cache + x
    return old


def assigns_in_autocast(module: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu"):
        module.cache = module.cache + x
    return module.cache


STEPS = [
    assign(lambda cache, x: cache * 2 + x.mean()),
    assigned_twice,
    of_the_same_type_first,
    changed_in_place_first,
    without_gradients,
    of_its_own_type_last,
    reads_the_old,
    changes_the_new,
    changes_what_it_assigned,
    returns_the_old,
    returns_a_view_of_the_old,
    assigns_in_autocast,
]


def check(graph: Graph, build: Callable[[], nn.Module], x: Tensor) -> dict[str, Tensor]:
    model, weights = build(), build().state_dict()
    result, updates = execute_ir(graph, (x,), weights=weights, return_mutations=True)
    assert_same(result, model(x), "the result")
    assert_same({**weights, **updates}, dict(model.state_dict()), "the state")
    return updates


@pytest.mark.parametrize("build", [root, submodule])
@each_row("step", STEPS)
def test_a_buffer_is_what_it_is_given_last(step: Step, build: Callable[[Step], nn.Module]) -> None:
    graph = extract_ir(build(step), (ones(3),))

    updates = check(graph, lambda: build(step), randn(3))

    assert updates.keys() == build(step).state_dict().keys()
    report = verify_ir(graph, build(step), (randn(3),))
    assert report.ok, str(report)


@each_row("new", [lambda cache, x: cache * 2 + x.mean(), appended])
def test_each_call_sees_the_buffer_of_the_one_before(new: Any) -> None:
    def build() -> nn.Module:
        return called_three_times(assign(new))

    check(extract_ir(build(), (ones(3),)), build, randn(3))


@pytest.mark.parametrize("build", [root, submodule])
@each_row("new, found", {
    "another size": (lambda cache, x: ones(5), "f32[5]"),
    "another rank": (lambda cache, x: ones(3, 1), "f32[3, 1]"),
    "another dtype": (lambda cache, x: cache.double(), "f64[3]"),
    "appended to": (appended, "f32[6]"),
    "changed in place": (lambda cache, x: appended(cache, x).mul_(2), "f32[6]"),
})  # fmt: skip
def test_a_buffer_replaced_by_one_of_another_type_is_an_update_of_that_type(
    new: Any, found: str, build: Callable[[Step], nn.Module], tmp_path: Path
) -> None:
    model = build(assign(new))
    (key,) = model.state_dict()

    graph = extract_ir(model, (ones(3),))

    assert all(torch.equal(buffer, zeros(3)) for buffer in model.buffers())
    assert f"update %{key}: {found} = " in str(graph)
    assert graph.replacements == (graph.buffers[key],)
    save_ir(graph, tmp_path / "graph.json")
    copies = graph.clone(), pickle.loads(pickle.dumps(graph))  # noqa: S301 - our own
    for again in (graph, parse_ir(str(graph)), load_ir(tmp_path / "graph.json"), *copies):
        assert again == graph
        check(again, lambda: build(assign(new)), randn(3))
    assert verify_ir(graph, model, (randn(3),)).ok


def test_a_model_whose_buffer_has_been_replaced_is_captured_as_it_is_then() -> None:
    def add_positions(module: Any, x: Tensor) -> Tensor:
        if module.cache.shape[0] != x.shape[1]:
            module.cache = torch.arange(x.shape[1]).float()
        return x + module.cache

    model, x = root(add_positions), randn(2, 5)
    before = model.state_dict()
    first = extract_ir(model, (x,))
    expected = model(x)

    second = extract_ir(model, (x,))

    assert first.replacements
    assert not second.updates
    assert torch.equal(execute_ir(first, (x,), weights=before), expected)
    assert torch.equal(execute_ir(second, (x,), weights=model.state_dict()), expected)
    with pytest.raises(WeightError, match=r"misfit: cache is f32\[5\], the graph needs f32\[3\]"):
        execute_ir(first, (x,), weights=model.state_dict())


def test_the_size_of_a_buffer_that_is_replaced_may_be_left_open() -> None:
    def build() -> nn.Module:
        return root(assign(lambda cache, x: x * 2))

    graph = extract_ir(build(), (ones(4),), dynamic_shapes={"args": ({0: Dim("n", min=4)},)})

    assert "update %cache: f32[n] = " in str(graph)
    for size in (4, 7):
        check(graph, build, randn(size))


def writes_a_part(module: Any, x: Tensor) -> Tensor:
    module.cache = appended(module.cache, x)
    module.cache[:2].add_(1)
    return x


def appends_in_autocast(module: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu"):
        module.cache = appended(module.cache, x)
    return x


@each_row("model, message", {
    "views of it are written": (
        root(writes_a_part),
        (
            r"cache is f32\[3\], and forward replaces it by a tensor that is f32\[6\]"
            r"[\s\S]*fix: give the buffer its final size and dtype from the start"
        ),
    ),
    "in a submodule": (submodule(writes_a_part), r"0\.cache is f32\[3\], and forward replaces it by"),
    "in a region of its own": (submodule(appends_in_autocast),
        "forward replaces it by a tensor that is .*in autocast"),
})  # fmt: skip
def test_a_buffer_replaced_by_one_of_another_type_may_be_too_much(model: nn.Module, message: str) -> None:
    with pytest.raises(ConversionError, match=message):
        extract_ir(model, (ones(3),))

    assert all(torch.equal(buffer, zeros(3)) for buffer in model.buffers())


def test_a_buffer_of_two_names_is_not_replaced_by_one_of_them() -> None:
    model = root(assign(appended))
    model.register_buffer("other", model.cache)

    with pytest.raises(ConversionError, match="forward replaces the buffer 'cache', which is 'other', too"):
        extract_ir(model, (ones(3),))


def test_a_program_that_casts_what_is_assigned_is_refused() -> None:
    program = torch.export.export(root(assign(lambda cache, x: ones(5))), (ones(3),))

    with pytest.raises(
        ConversionError,
        match=r"cache is f32\[3\], and forward replaces it by .* f32\[5\]; an exported program cannot",
    ):
        convert_exported_program(program)


@each_row("stated, entry, problem", {
    "not stated": ("", [], r"%ones is f32\[5\], it cannot stand for %cache"),
    "stated wrongly": (": f32[4]", [["f32", [4]]], r"%ones is f32\[5\], not "),
})  # fmt: skip
def test_text_and_files_must_state_the_type_that_a_buffer_gets(
    stated: str, entry: list[Any], problem: str, tmp_path: Path
) -> None:
    graph, path = extract_ir(root(assign(lambda cache, x: ones(5))), (ones(3),)), tmp_path / "graph.json"
    save_ir(graph, path)
    document = json.loads(path.read_text())
    document["updates"] = [["cache", "ones", *entry]]
    path.write_text(json.dumps(document))

    with pytest.raises((GraphError, ParseError), match=problem):
        parse_ir(str(graph).replace("update %cache: f32[5] =", f"update %cache{stated} ="))
    with pytest.raises(SerializationError, match=problem):
        load_ir(path)


@pytest.mark.parametrize("build", [root, submodule])
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_model_is_left_as_it_was(build: Callable[[Step], nn.Module], device: str) -> None:
    with torch.device(device):
        model = build(assign(torch.add))
    before = {key: (id(tensor), tensor._version) for key, tensor in model.named_buffers()}

    extract_ir(model, (ones(3),))

    assert {key: (id(tensor), tensor._version) for key, tensor in model.named_buffers()} == before
    assert all(buffer.device.type == device for buffer in model.buffers())


def test_an_input_that_is_assigned_and_changed_is_updated_as_well() -> None:
    def step(module: Any, x: Tensor) -> Tensor:
        module.cache = x
        module.cache.add_(1)
        return x * 3

    graph = extract_ir(submodule(step), (randn(3),))

    assert {target.name for target in graph.updates} == {"0.cache", "input"}

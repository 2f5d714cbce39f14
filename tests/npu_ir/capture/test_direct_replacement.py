"""Writes whose functional op takes their place: no second trace, and the updates of eager to the bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn, randn, tensor, zeros
from torch.export import Dim

from npu_ir import Graph, execute_ir, extract_ir
from npu_ir.capture import functionalize
from tests.support.corpus.comparison import assert_same
from tests.support.rows import each_row


class State(nn.Module):
    """Calls a function with itself: a module with layers, a cache and a counter."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        self.norm = nn.BatchNorm1d(3)
        self.plain_norm = nn.BatchNorm1d(3, affine=False)
        self.average = nn.BatchNorm1d(3, momentum=None)
        self.drop = nn.Dropout(0.5, inplace=True)
        self.scale = nn.Parameter(torch.ones(3))
        self.register_buffer("cache", zeros(1, 8, 3))
        self.register_buffer("count", zeros((), dtype=torch.long))
        self.register_buffer("other", self.count)

    def forward(self, *args: Any) -> Any:
        return self.function(self, *args)


def model(function: Callable[..., Any], *, training: bool = False) -> State:
    torch.manual_seed(1)
    return State(function).train(training)


@pytest.fixture
def no_second_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any) -> Any:
        raise AssertionError("the program was traced a second time")

    monkeypatch.setattr(functionalize, "retrace_program", refuse)


@pytest.fixture
def traces(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Gets an entry for each second trace."""
    made: list[str] = []
    trace = functionalize.retrace_program

    def counted(*args: Any) -> Any:
        made.append("traced")
        return trace(*args)

    monkeypatch.setattr(functionalize, "retrace_program", counted)
    return made


def check(
    function: Callable[..., Any],
    args: tuple[Tensor, ...],
    *,
    training: bool = False,
    dynamic_shapes: Any = None,
    calls: tuple[tuple[Tensor, ...], ...] = (),
) -> Graph:
    """Return the captured graph, which gives results and updates of eager, to the bit."""

    def copies(tensors: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(tensor.clone() for tensor in tensors)

    graph = extract_ir(model(function, training=training), copies(args), dynamic_shapes=dynamic_shapes)
    for given in (args, *calls):
        eager, inputs = model(function, training=training), copies(given)
        weights = {key: tensor.clone() for key, tensor in eager.state_dict().items()}
        torch.manual_seed(2)
        results, updates = execute_ir(graph, copies(given), weights=weights, return_mutations=True)
        torch.manual_seed(2)
        assert_same(results, eager(*inputs), "the results")
        for key, value in eager.state_dict().items():
            assert_same(updates.get(key, weights[key]), value, key)
        for value, before, after in zip(graph.inputs, given, inputs, strict=True):
            assert_same(updates.get(value.name, before), after, value.name)
    return graph


def updated(graph: Graph) -> set[str]:
    return {target.argument.target or target.name for target in graph.updates if target.argument is not None}


@pytest.mark.usefixtures("no_second_trace")
@each_row("layer", ["norm", "plain_norm"])
def test_batch_norm_in_training_mode_updates_its_statistics(layer: str) -> None:
    graph = check(lambda s, x: getattr(s, layer)(x), (randn(4, 3),), training=True)

    assert updated(graph) == {
        f"{layer}.{name}" for name in ("running_mean", "running_var", "num_batches_tracked")
    }
    assert "aten._native_batch_norm_legit_functional.default" in {node.op_type for node in graph.nodes}


@pytest.mark.usefixtures("no_second_trace")
def test_statistics_that_are_read_after_a_batch_norm_are_the_new_ones() -> None:
    check(
        lambda s, x: (s.norm(x), s.norm.running_mean + 1, s.norm.running_var * 2),
        (randn(4, 3),),
        training=True,
    )


@pytest.mark.usefixtures("no_second_trace")
def test_batch_norm_in_training_mode_takes_an_open_batch() -> None:
    shapes = {"args": ({0: Dim("b", min=2)},)}

    check(
        lambda s, x: s.norm(x),
        (randn(4, 3),),
        training=True,
        dynamic_shapes=shapes,
        calls=((randn(2, 3),), (randn(9, 3),)),
    )


@pytest.mark.usefixtures("no_second_trace")
def test_batch_norm_in_eval_mode_changes_nothing() -> None:
    graph = check(lambda s, x: s.norm(x), (randn(4, 3),))

    assert updated(graph) == set()
    assert [node.op_type for node in graph.nodes] == ["aten.batch_norm.default"]


@pytest.mark.usefixtures("no_second_trace")
def test_a_static_cache_is_updated_by_index_copy() -> None:
    def function(s: State, x: Tensor, at: Tensor) -> Any:
        s.cache.index_copy_(1, at, x)
        return s.cache.sum(1) + x.sum(1)

    graph = check(function, (randn(1, 2, 3), tensor([3, 4])))

    assert updated(graph) == {"cache"}
    assert "aten.index_copy.default" in {node.op_type for node in graph.nodes}


def add_to_input(s: State, x: Tensor) -> Tensor:
    x.mul_(2)
    return x + 1


def return_input(s: State, x: Tensor) -> Tensor:
    return x.add_(1)


def write_all(s: State, x: Tensor) -> Tensor:
    s.cache.copy_(x.sum() + s.cache)
    return s.cache * x.sum()


@pytest.mark.usefixtures("no_second_trace")
@each_row(
    "function, target",
    {
        "an input": (add_to_input, "args_0"),
        "an input that is returned": (return_input, "args_0"),
        "a whole buffer": (write_all, "cache"),
    },
)
def test_what_is_changed_in_place_is_an_update(function: Callable[..., Any], target: str) -> None:
    graph = check(function, (randn(4, 3),))

    assert updated(graph) == {target}


@pytest.mark.usefixtures("no_second_trace")
@each_row("training", [False, True])
def test_a_dropout_in_place_needs_no_second_trace(training: bool) -> None:
    graph = check(lambda s, x: s.drop(torch.relu_(x * 2)), (randn(4, 3),), training=training)

    assert [node.op_type for node in graph.nodes] == [
        "aten.mul.Tensor", "aten.relu.default", "aten.dropout.default",
    ]  # fmt: skip


def write_a_row(s: State, x: Tensor) -> Tensor:
    s.cache[0, 1] = x[0]
    return s.cache.sum() + x


def write_under_a_view(s: State, x: Tensor) -> Any:
    row = s.cache[0]
    s.cache.add_(1)
    return row * 2, x


def write_a_tied_buffer(s: State, x: Tensor) -> Tensor:
    s.count.add_(1)
    return x + s.other


def write_again(s: State, x: Tensor) -> Tensor:
    s.cache.zero_()
    s.cache.add_(1)
    return s.cache * x.sum()


def normalize_twice(s: State, x: Tensor) -> Tensor:
    return s.norm(s.norm(x) * 2 + 1)


def add_to_parameter(s: State, x: Tensor) -> Tensor:
    with torch.no_grad():
        s.scale.add_(1)
    return x * s.scale


def read_an_input_view(s: State, x: Tensor) -> Any:
    view = x.t()
    x.add_(1)
    return view + 1


@pytest.mark.parametrize(
    "function",
    [
        write_a_row,
        write_under_a_view,
        write_a_tied_buffer,
        write_again,
        normalize_twice,
        add_to_parameter,
        read_an_input_view,
    ],
)
def test_other_writes_are_traced_again_and_right(function: Callable[..., Any], traces: list[str]) -> None:
    check(function, (randn(4, 3),), training=True)

    assert traces == ["traced"]

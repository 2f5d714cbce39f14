"""Guarantees of execution beyond values: exact overloads, one binding, no leaks, no shared state."""

from __future__ import annotations

import gc
import threading
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn, randn

from npu_ir import (
    ExecutionError,
    Interpreter,
    extract_ir,
    list_registered_ops,
    parse_ir,
    register_executor,
    verify_ir,
)
from npu_ir.ops import execution, unregister_executor
from tests.support.corpus.case import Function
from tests.support.rows import each_row


@pytest.fixture
def zero_for_scalars() -> Iterator[None]:
    register_executor("aten.add.Scalar")(lambda inputs, attrs: [torch.zeros_like(inputs[0])])
    yield
    unregister_executor("aten.add.Scalar")


@pytest.mark.usefixtures("zero_for_scalars")
def test_an_executor_runs_no_other_overload_than_it_names() -> None:
    graph = extract_ir(Function(torch.add), (torch.ones(2), torch.ones(2)))

    assert Interpreter(graph).run(torch.ones(2), torch.ones(2)).tolist() == [2.0, 2.0]
    assert "aten.add.Scalar" in list_registered_ops()["execution"]


def test_an_unknown_overload_does_not_become_the_default_one() -> None:
    text = "graph g {\n  input %x: f32[2]\n\n  %y: f32[2] = aten.relu.unheard_of(self=%x)\n\n  return %y\n}\n"

    with pytest.raises(ExecutionError, match=r"there is no operator aten.relu.unheard_of"):
        Interpreter(parse_ir(text)).run(randn(2))


def test_the_schema_is_read_once_per_node(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    bind = execution.bind_node
    monkeypatch.setattr(execution, "bind_node", lambda *args: calls.append(args) or bind(*args))
    interpreter = Interpreter(extract_ir(Function(lambda x: (x + 1) * x), (randn(2),)))

    for _ in range(3):
        interpreter.run(randn(2))

    assert len(calls) == 2


def test_a_value_is_freed_after_its_last_use() -> None:
    interpreter = Interpreter(extract_ir(Function(lambda x: (x + 1).exp().sin().sum()), (randn(2),)))
    made: list[weakref.ref[torch.Tensor]] = []
    alive: list[int] = []

    def watch(_: Any, outputs: list[Any]) -> None:
        made.append(weakref.ref(outputs[0]))
        gc.collect()
        alive.append(sum(reference() is not None for reference in made))

    interpreter.run_flat((randn(2),), observe=watch)

    assert max(alive) <= 2


def test_threads_run_one_graph_at_the_same_time() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.GELU(), nn.Linear(4, 2)).eval()
    interpreter = Interpreter(extract_ir(model, (randn(3, 4),)), model.state_dict())
    inputs = [randn(3, 4) for _ in range(8)]
    results: dict[int, torch.Tensor] = {}

    def run(number: int) -> None:
        for _ in range(20):
            results[number] = interpreter.run(inputs[number])

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    with torch.no_grad():
        frozen = model.requires_grad_(False)
        assert all(torch.equal(results[number], frozen(x)) for number, x in enumerate(inputs))


def test_values_know_their_strides() -> None:
    graph = extract_ir(Function(lambda x: x.permute(0, 2, 1) * 1), (randn(2, 3, 4),))

    assert [str(value.type) for value in graph.values] == [
        "f32[2, 3, 4]",
        "f32[2, 4, 3]@[12, 1, 4]",
        "f32[2, 4, 3]@[12, 1, 4]",
    ]


def test_results_of_none_do_not_shift_the_others() -> None:
    def backward(x: Any, gradient: Any) -> Any:
        mask = [False, True, True]
        return torch.ops.aten.convolution_backward(
            gradient, x, torch.ones(1, 1, 2), [1], [1], [0], [1], False, [0], 1, mask
        )[1:]

    x, gradient = randn(1, 1, 4), randn(1, 1, 3)

    result = Interpreter(extract_ir(Function(backward), (x, gradient))).run(x, gradient)

    assert all(torch.equal(left, right) for left, right in zip(result, backward(x, gradient), strict=True))


class Replaceable(nn.Module):
    """A model that computes something else once its function is replaced."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


DIFFERENCES = [
    (lambda x: x + 1, lambda x: x + 2, torch.tensor([2**53])),
    (lambda x: x * 1.0, lambda x: x.double(), torch.ones(2)),
    (lambda x: x * 1, lambda x: x[:1], torch.ones(2)),
    (lambda x: {"a": x + 0}, lambda x: {"b": x + 0}, torch.ones(2)),
    (lambda x: x * 1, lambda x: x * float("nan"), torch.ones(2)),
]


@each_row("captured, changed, x", DIFFERENCES)
def test_verification_sees_every_difference(captured: Any, changed: Any, x: torch.Tensor) -> None:
    model = Replaceable(captured)
    graph = extract_ir(model, (x,))
    model.function = changed

    assert not verify_ir(graph, model, (x,)).ok


def test_verification_takes_nan_for_nan_and_leaves_the_mode_alone() -> None:
    model = nn.Sequential(nn.Dropout(0.0), Function(lambda x: x * float("nan")))
    graph = extract_ir(model, (randn(2),))

    report = verify_ir(graph, model, (randn(2),))

    assert report.ok
    assert model.training

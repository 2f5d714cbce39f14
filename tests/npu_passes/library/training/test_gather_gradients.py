"""The gradients of a tensor's parts are joined; they are not added up in tensors of zeros."""

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import execute_ir
from npu_passes.library import GatherGradients
from tests.support.corpus.case import Holding
from tests.support.passes.step_cases import Step, assert_equal, count, refusals, rewritten
from tests.support.rows import each_row

SELECT, SLICE = "aten.select_backward.default", "aten.slice_backward.default"


def step(function: Any, rows: int = 6) -> Step:
    """Return the step of a model that takes parts of a table of ``rows`` x 5."""
    model = Holding(lambda self, x: function(self.table.weight * x), table=nn.Embedding(rows, 5))
    return Step(model, lambda found, _: found, torch.randn(rows, 5), torch.zeros(()))


def all_rows(x: Tensor) -> Tensor:
    total = x[0].sin()
    for index in range(1, x.shape[0]):
        total = (total + x[index]).sin()
    return total.sum()


@each_row("function, op", [
    (all_rows, "aten.stack.default"),
    (lambda x: all_rows(x.t()), "aten.stack.default"),
    (lambda x: (x[1].sin() * x[4].exp()).sum(), "aten.cat.default"),
    (lambda x: (x[:2].sin() * x[4:].exp()).sum(), "aten.cat.default"),
    (lambda x: (x[-1] * x[:4].exp()).sum(), "aten.cat.default"),
    (lambda x: (x[:3].sin() * x[3:].exp()).sum() + x.cos().sum(), "aten.cat.default"),
])  # fmt: skip
def test_gradients_of_parts_are_joined(function: Any, op: str) -> None:
    item = step(function)

    graph = rewritten(item.graph, GatherGradients)

    assert count(graph, SELECT) == count(graph, SLICE) == 0
    assert count(graph, op) == 1
    assert_equal(execute_ir(graph, item.args), item.eager(*item.args))
    assert item.checked(GatherGradients) == 1


@each_row("function, reason", [
    (lambda x: (x[:4].sin() * x[2:].exp()).sum(), "overlap"),
    (lambda x: (x[0] * x[0].exp()).sum(), "overlap"),
    (lambda x: x[0].exp().sum() * x[:, 1].sin().sum(), "along several axes"),
    (lambda x: x[0].exp().sum() * x[1].sin().sum() + (x.cos() * x.sin()).sum(),
        "more than one gradient of the whole"),
])  # fmt: skip
def test_what_would_be_another_sum_stays(function: Any, reason: str) -> None:
    item = step(function)

    assert item.checked(GatherGradients) == 0
    assert any(reason in found for found in refusals(item.graph, GatherGradients))


@each_row("function", {
    "one-part": (lambda x: x[2].exp().sum()),
    "with-steps": (lambda x: (x[::2].exp() * x[1::2]).sum()),
    "no-parts": (lambda x: (x.exp() + x.sin()).sum()),
})  # fmt: skip
def test_other_sums_are_left_alone(function: Any) -> None:
    assert step(function).checked(GatherGradients) == 0


@pytest.mark.exhaustive
def test_the_time_grows_with_the_number_of_parts() -> None:
    seconds = []
    for rows in (50, 200):
        item = step(all_rows, rows)
        graph = item.graph.clone()
        started = time.perf_counter()
        GatherGradients().run(graph)
        seconds.append(time.perf_counter() - started)

    assert count(graph, "aten.stack.default") == 1
    assert seconds[1] < 12 * seconds[0]

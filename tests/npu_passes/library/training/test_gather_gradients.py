"""The gradients of a tensor's parts are joined; they are not added up in tensors of zeros."""

from __future__ import annotations

import time
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import execute_ir
from npu_passes.library import GatherGradients
from tests.support.passes.folding_cases import Call
from tests.support.passes.step_cases import Step, assert_equal, count, refusals, rewritten

SELECT, SLICE = "aten.select_backward.default", "aten.slice_backward.default"


def step(function: Any, rows: int = 6) -> Step:
    """Return the step of a model that takes parts of a table of ``rows`` x 5."""
    model = Call(lambda self, x: function(self.table.weight * x), table=nn.Embedding(rows, 5))
    return Step(model, lambda found, _: found, torch.randn(rows, 5), torch.zeros(()))


def all_rows(x: Tensor) -> Tensor:
    total = x[0].sin()
    for index in range(1, x.shape[0]):
        total = (total + x[index]).sin()
    return total.sum()


@pytest.mark.parametrize(
    ("function", "op"),
    [
        pytest.param(all_rows, "aten.stack.default", id="all-rows"),
        pytest.param(lambda x: all_rows(x.t()), "aten.stack.default", id="all-columns"),
        pytest.param(lambda x: (x[1].sin() * x[4].exp()).sum(), "aten.cat.default", id="some-rows"),
        pytest.param(lambda x: (x[:2].sin() * x[4:].exp()).sum(), "aten.cat.default", id="slices"),
        pytest.param(lambda x: (x[-1] * x[:4].exp()).sum(), "aten.cat.default", id="a-row-and-a-slice"),
        pytest.param(
            lambda x: (x[:3].sin() * x[3:].exp()).sum() + x.cos().sum(),
            "aten.cat.default",
            id="and-the-whole",
        ),
    ],
)
def test_gradients_of_parts_are_joined(function: Any, op: str) -> None:
    item = step(function)

    graph = rewritten(item.graph, GatherGradients)

    assert count(graph, SELECT) == count(graph, SLICE) == 0
    assert count(graph, op) == 1
    assert_equal(execute_ir(graph, item.args), item.eager(*item.args))
    assert item.checked(GatherGradients) == 1


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        pytest.param(lambda x: (x[:4].sin() * x[2:].exp()).sum(), "overlap", id="overlap"),
        pytest.param(lambda x: (x[0] * x[0].exp()).sum(), "overlap", id="the-same-row"),
        pytest.param(lambda x: x[0].exp().sum() * x[:, 1].sin().sum(), "along several axes", id="axes"),
        pytest.param(
            lambda x: x[0].exp().sum() * x[1].sin().sum() + (x.cos() * x.sin()).sum(),
            "more than one gradient of the whole",
            id="two-of-the-whole",
        ),
    ],
)
def test_what_would_be_another_sum_is_refused(function: Any, reason: str) -> None:
    item = step(function)

    assert item.checked(GatherGradients) == 0
    assert any(reason in found for found in refusals(item.graph, GatherGradients))


@pytest.mark.parametrize(
    "function",
    [
        pytest.param(lambda x: x[2].exp().sum(), id="one-part"),
        pytest.param(lambda x: (x[::2].exp() * x[1::2]).sum(), id="with-steps"),
        pytest.param(lambda x: (x.exp() + x.sin()).sum(), id="no-parts"),
    ],
)
def test_other_sums_are_left_alone(function: Any) -> None:
    assert step(function).checked(GatherGradients) == 0


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

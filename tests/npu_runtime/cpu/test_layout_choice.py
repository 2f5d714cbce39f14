"""Channels-last begins and ends where most is saved."""

import itertools
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from torch import Tensor, nn

from npu_ir import Graph, OpNode, Value
from npu_runtime.cpu.convolutions import CONVOLUTIONS, convolution_of
from npu_runtime.cpu.costs import copy_seconds, packing_pays, seconds_saved, winograd_tile
from npu_runtime.cpu.layouts import choose_channels_last, is_layout_sensitive
from tests.support.corpus.case import Holding
from tests.support.passes.cpu_cases import captured, image
from tests.support.tiers import examples

COPY = copy_seconds(captured(nn.ReLU(), image(8, 8)).inputs[0].tensor_type)


def relus(self: Any, x: Tensor) -> Any:
    """A chain of four, a sum of its ends, and a result in the middle."""
    one = x.relu()
    two = one.relu()
    three = two.relu()
    return three.relu() + one, two


def total(graph: Graph, saved: dict[OpNode, float], nodes: set[OpNode]) -> float:
    """Return what a choice costs, by the definition."""

    def is_paid(value: Value) -> bool:
        sides = {value.producer in nodes, *(user in nodes for user, _ in value.uses)}
        return is_layout_sensitive(value) and len(sides) == 2

    return sum(4e-6 for value in graph.values if is_paid(value)) - sum(saved[node] for node in nodes)


@pytest.fixture
def copies_of_four_microseconds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("npu_runtime.cpu.layouts.copy_seconds", lambda _: 4e-6)


@examples(20, suppress_health_check=list(HealthCheck), deadline=None)
@given(st.lists(st.integers(-4, 6), min_size=5, max_size=5))
@pytest.mark.usefixtures("copies_of_four_microseconds")
def test_no_choice_is_better_or_as_good_with_fewer_nodes(microseconds: list[int]) -> None:
    graph = captured(Holding(relus), image(8, 8))
    saved = {node: each * 1e-6 for node, each in zip(graph.nodes, microseconds, strict=True)}

    found = choose_channels_last(saved, ())

    every = [set(nodes) for count in range(6) for nodes in itertools.combinations(saved, count)]
    best = [nodes for nodes in every if total(graph, saved, nodes) <= total(graph, saved, found) + 1e-11]
    assert min(total(graph, saved, nodes) for nodes in every) + 1e-11 >= total(graph, saved, found)
    assert all(found <= nodes for nodes in best)


def test_copies_of_weights_cost_nothing() -> None:
    model = Holding(lambda self, x: (x * self.scale).mean((1, 2, 3)))
    model.scale = nn.Parameter(torch.randn(1, 8, 8, 8))
    graph = captured(model, image(8, 8))
    saved = dict.fromkeys(graph.nodes, 0.6 * COPY)

    with_weight = choose_channels_last(saved, set(graph.parameters.values()))

    assert with_weight == set(graph.nodes)
    assert choose_channels_last(saved, ()) == set()


@pytest.mark.parametrize(("conv", "size", "is_packed", "tile", "is_faster"), [
    pytest.param(nn.Conv2d(64, 64, 3, padding=1), 56, True, 4, True, id="64x56"),
    pytest.param(nn.Conv2d(256, 256, 3, padding=1), 14, True, 2, True, id="256x14"),
    pytest.param(nn.Conv2d(512, 512, 3, padding=1), 7, True, None, True, id="512x7"),
    pytest.param(nn.Conv2d(96, 96, 3, groups=96), 56, True, None, True, id="depthwise"),
    pytest.param(nn.Conv2d(3, 64, 7, 2, 3), 224, True, None, True, id="stem"),
    pytest.param(nn.Conv2d(32, 32, 3, padding=1), 8, False, None, True, id="32x8"),
    pytest.param(nn.Conv2d(64, 64, 3, padding=1), 4, False, None, True, id="64x4"),
    pytest.param(nn.Conv2d(200, 80, 1), 14, False, None, True, id="product"),
    pytest.param(nn.Conv2d(8, 8, 3, padding=1), 32, True, None, False, id="8x32"),
    pytest.param(nn.Conv2d(3, 8, 3, padding=1), 32, True, None, False, id="3x32"),
])  # fmt: skip
def test_kernels_and_layouts_are_chosen_as_measured(
    conv: nn.Conv2d, size: int, is_packed: bool, tile: int | None, is_faster: bool
) -> None:
    graph = captured(conv, image(conv.in_channels, size))
    item = convolution_of(next(graph.nodes_of(*CONVOLUTIONS)))

    assert (packing_pays(item), winograd_tile(item)) == (is_packed, tile)
    assert (seconds_saved(item) > 0) == is_faster

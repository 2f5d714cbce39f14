"""Minimum cuts, compared with all cuts."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from npu_runtime.cpu.minimum_cut import Network
from tests.support.tiers import examples

NODES = range(6)  # 0 is the source, 5 the sink
EDGES = st.lists(st.tuples(st.sampled_from(NODES), st.sampled_from(NODES), st.integers(0, 5)), max_size=14)


@examples(200)
@given(EDGES)
def test_the_side_of_the_source_is_the_smallest_of_all_minimum_cuts(
    edges: list[tuple[int, int, int]],
) -> None:
    network = Network()
    for edge in edges:
        network.add_edge(*edge)

    side = network.side_of_source(0, 5)

    sides = [{0, *inner} for count in range(5) for inner in itertools.combinations(range(1, 5), count)]
    costs = [sum(size for start, end, size in edges if start in one and end not in one) for one in sides]
    smallest = next(
        one
        for one, cost in sorted(zip(sides, costs, strict=True), key=lambda item: len(item[0]))
        if cost == min(costs)
    )
    assert side == smallest


def test_what_flows_along_a_shortest_path_is_given_back_for_two_longer_ones() -> None:
    network = Network()
    for path in ("sabt", "aeft", "scdb"):
        for start, end in itertools.pairwise(path):
            network.add_edge(start, end, 1)

    assert network.side_of_source("s", "t") == {"s"}


def test_an_edge_without_limit_is_in_no_cut() -> None:
    network = Network()
    network.add_edge("source", "a", 7)
    network.add_edge("a", "b")
    network.add_edge("b", "sink", 9)

    assert network.side_of_source("source", "sink") == {"source"}


def test_a_path_may_be_longer_than_the_stack_of_python() -> None:
    network = Network()
    for place in range(20_000):
        network.add_edge(place, place + 1, 3 if place == 15_000 else 4)

    assert network.side_of_source(0, 20_000) == set(range(15_001))

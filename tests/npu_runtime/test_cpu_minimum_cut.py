"""The cheapest cut of a network, compared with all cuts there are."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from npu_runtime.cpu.minimum_cut import UNLIMITED, Network

NODES = ("a", "b", "c", "d", "e")
EDGES = st.lists(
    st.tuples(st.sampled_from(("s", *NODES)), st.sampled_from((*NODES, "t")), st.integers(0, 9)), max_size=14
)


def cost(edges: list[tuple[str, str, int]], side: set[str]) -> int:
    return sum(price for start, end, price in edges if start in side and end not in side)


@given(EDGES)
def test_no_cut_is_cheaper(edges: list[tuple[str, str, int]]) -> None:
    network = Network("s", "t")
    for start, end, price in edges:
        network.add(start, end, price)

    side = {str(node) for node in network.source_side()}

    every = [
        {"s", *nodes} for count in range(len(NODES) + 1) for nodes in itertools.combinations(NODES, count)
    ]
    cheapest = min(cost(edges, other) for other in every)
    assert cost(edges, side) == cheapest
    assert all(side <= other for other in every if cost(edges, other) == cheapest)


def test_an_edge_without_limit_is_never_cut() -> None:
    network = Network("s", "t")
    for start, end, price in (("s", "a", 5), ("a", "b", UNLIMITED), ("b", "t", 7), ("a", "b", UNLIMITED)):
        network.add(start, end, price)

    assert network.source_side() == {"s"}


def test_long_paths_need_no_recursion() -> None:
    network = Network(0, 20_000)
    for node in range(20_000):
        network.add(node, node + 1, 2 if node != 777 else 1)

    assert network.source_side() == set(range(778))

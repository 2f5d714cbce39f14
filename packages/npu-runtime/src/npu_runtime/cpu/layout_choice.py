"""Choice of the nodes of a graph that work in channels-last, by a minimum cut."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping
from typing import Any

from npu_ir import OpNode, Value
from npu_passes.rewriting.weight_dependence import Weights
from npu_runtime.cpu.costs import copy_seconds
from npu_runtime.cpu.kernel_choice import is_channels_last
from npu_runtime.cpu.layout_agnostic import is_layout_sensitive

_LAST, _CONTIGUOUS = "channels-last", "contiguous"
_PICOSECONDS = 1e12  # costs are integers, so that sums are exact


def choose_channels_last(saved: Mapping[OpNode, float], weights: Weights | Container[Value]) -> set[OpNode]:
    """Return the nodes whose change to channels-last saves most, net of the copies at the borders.

    This is a minimum cut (project selection): the saving of a node is lost if it is on the side of
    contiguous memory, and one copy is paid for each image whose producer and readers are not all on one
    side.

    Args:
        saved: The nodes that can change, with the seconds that each saves; negative if it is slower.
        weights: Values that are copied when weights are bound, at no cost in calls.
    """
    if not any(seconds > 0 for seconds in saved.values()):
        return set()
    import networkx  # here: loading it takes 0.2 s, which graphs without convolutions do not need

    network = networkx.DiGraph()
    network.add_nodes_from([_LAST, _CONTIGUOUS])
    for node, seconds in saved.items():
        cost = round(abs(seconds) * _PICOSECONDS)
        if seconds > 0:
            network.add_edge(_LAST, node, capacity=cost)
        elif seconds < 0:
            network.add_edge(node, _CONTIGUOUS, capacity=cost)
    images = dict.fromkeys(value for node in saved for value in (*node.inputs, *node.outputs))
    for value in images:
        if is_layout_sensitive(value) and value not in weights:
            _add_image(network, value, saved)
    residual = networkx.algorithms.flow.boykov_kolmogorov(network, _LAST, _CONTIGUOUS)
    # The nodes that the source reaches are the smallest of all minimum cuts (Ford and Fulkerson, 1956).
    left = networkx.DiGraph(
        (start, end) for start, end, edge in residual.edges(data=True) if edge["flow"] < edge["capacity"]
    )
    side = networkx.descendants(left, _LAST) if _LAST in left else set()
    return {node for node in saved if node in side}


def _add_image(network: Any, value: Value, movable: Collection[OpNode]) -> None:
    """Add the cost of a copy of ``value``, paid if its producer and readers are on both sides."""
    # One copy serves all readers, so pairwise edges would count it several times. Two auxiliary nodes: the
    # edges without capacity, which is no limit, pull `some` to the source if any neighbour is there, and
    # `all` to the sink if any neighbour is there.
    some_last, all_last = ("some", value), ("all", value)
    network.add_edge(some_last, all_last, capacity=round(copy_seconds(value.tensor_type) * _PICOSECONDS))
    for side in _sides(value, movable):
        if side is not _CONTIGUOUS:
            network.add_edge(side, some_last)
        if side is not _LAST:
            network.add_edge(all_last, side)


def _sides(value: Value, movable: Collection[OpNode]) -> Iterator[OpNode | str]:
    """Yield the producer and readers of ``value``; for nodes that cannot change, their side."""
    for node in (value.producer, *(user for user, _ in value.uses)):
        if node is not None and node in movable:
            yield node
        else:
            yield _LAST if is_channels_last(value) else _CONTIGUOUS

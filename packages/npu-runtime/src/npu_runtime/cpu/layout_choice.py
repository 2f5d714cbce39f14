"""Choice of the nodes of a graph that work in channels-last, by a minimum cut."""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator, Mapping

from npu_ir import OpNode, Value
from npu_passes.rewriting.weight_dependence import Weights
from npu_runtime.cpu.costs import copy_seconds
from npu_runtime.cpu.kernel_choice import is_channels_last
from npu_runtime.cpu.layout_agnostic import is_layout_sensitive
from npu_runtime.cpu.minimum_cut import UNLIMITED, Network

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
    network = Network(_LAST, _CONTIGUOUS)
    for node, seconds in saved.items():
        cost = round(abs(seconds) * _PICOSECONDS)
        if seconds > 0:
            network.add(_LAST, node, cost)
        elif seconds < 0:
            network.add(node, _CONTIGUOUS, cost)
    images = dict.fromkeys(value for node in saved for value in (*node.inputs, *node.outputs))
    for value in images:
        if is_layout_sensitive(value) and value not in weights:
            _add_image(network, value, saved)
    side = network.source_side()
    return {node for node in saved if node in side}


def _add_image(network: Network, value: Value, movable: Collection[OpNode]) -> None:
    """Add the cost of a copy of ``value``, paid if its producer and readers are on both sides."""
    # One copy serves all readers, so pairwise edges would count it several times. Two auxiliary nodes: the
    # unlimited edges pull `some` to the source if any neighbour is there, and `all` to the sink if any
    # neighbour is there.
    some_last, all_last = ("some", value), ("all", value)
    network.add(some_last, all_last, round(copy_seconds(value.tensor_type) * _PICOSECONDS))
    for side in _sides(value, movable):
        if side is not _CONTIGUOUS:
            network.add(side, some_last, UNLIMITED)
        if side is not _LAST:
            network.add(all_last, side, UNLIMITED)


def _sides(value: Value, movable: Collection[OpNode]) -> Iterator[OpNode | str]:
    """Yield the producer and readers of ``value``; for nodes that cannot change, their side."""
    for node in (value.producer, *(user for user, _ in value.uses)):
        if node is not None and node in movable:
            yield node
        else:
            yield _LAST if is_channels_last(value) else _CONTIGUOUS

"""Which nodes of a graph are to work in channels-last."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from npu_ir import OpNode, Value
from npu_passes.weights import Weights
from npu_runtime.cpu.carriers import has_layout
from npu_runtime.cpu.choice import is_channels_last
from npu_runtime.cpu.costs import copy_seconds

# A choice is improved node by node, mostly in two sweeps over the graph.
_SWEEPS = 8


class LayoutChoice:
    """Nodes that work in channels-last, such that what they save is more than the copies cost where they begin and end.

    Args:
        saved: The nodes that can, in the order of the graph, with the seconds that each saves.
        weights: The weights of the graph, which are copied when they are bound.
    """

    def __init__(self, saved: Mapping[OpNode, float], weights: Weights) -> None:
        self._saved = saved
        self._weights = weights
        self._chosen = set(saved)
        for _ in range(_SWEEPS):
            before = set(self._chosen)
            self._improve(saved)
            self._improve(reversed(list(saved)))
            if before == self._chosen:
                break
        for group in list(self._groups()):
            if self._balance(group) <= 0:
                self._chosen.difference_update(group)

    def __contains__(self, node: OpNode) -> bool:
        return node in self._chosen

    def _improve(self, nodes: Iterable[OpNode]) -> None:
        """Take each node out, or back in, where that is better for it and its neighbours."""
        for node in nodes:
            before = self._cost_around(node)
            self._chosen ^= {node}
            if self._cost_around(node) >= before:
                self._chosen ^= {node}

    def _cost_around(self, node: OpNode) -> float:
        own = -self._saved[node] if node in self._chosen else 0.0
        return own + sum(self._copies(value) for value in _images_of(node))

    def _copies(self, value: Value) -> float:
        """Return the seconds that copies of ``value`` take: none where all who make and read it agree."""
        if value in self._weights:
            return 0.0
        here = value.producer in self._chosen or is_channels_last(value)
        for user, _ in value.uses:
            is_there = user in self._chosen or (user not in self._saved and is_channels_last(value))
            if is_there != here:
                return copy_seconds(value.tensor_type)
        return 0.0

    def _groups(self) -> Iterator[list[OpNode]]:
        """Yield the chosen nodes that hang together."""
        pending = {node: None for node in self._saved if node in self._chosen}
        while pending:
            group = [pending.popitem()[0]]
            for node in group:  # which grows
                for value in _images_of(node):
                    for near in filter(None, (value.producer, *value.users)):
                        if near in pending:
                            del pending[near]
                            group.append(near)
            yield group

    def _balance(self, group: Sequence[OpNode]) -> float:
        """Return the seconds that a group saves, copies included."""
        images = dict.fromkeys(value for node in group for value in _images_of(node))
        return sum(self._saved[node] for node in group) - sum(map(self._copies, images))


def _images_of(node: OpNode) -> list[Value]:
    return [value for value in dict.fromkeys((*node.inputs, *node.outputs)) if has_layout(value)]

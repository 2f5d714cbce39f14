"""Weights whose changes in place calls would not see, because what they read was made of them earlier."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from npu_ir import Graph, Value, WeightError
from npu_ir.core.storage import shares_storage_address


class WeightVersions:
    """Versions of the weights that calls read in another form, such as packed or on another device.

    PyTorch counts the changes in place of a tensor; those of an inference tensor it does not.

    Args:
        graph: The program.
        given: The tensor of every weight, as passed by the caller.
        values: The tensors that calls read: weights and prologue outputs.
    """

    def __init__(
        self, graph: Graph, given: Mapping[Value, torch.Tensor], values: Mapping[Value, Any]
    ) -> None:
        self._graph = graph
        apart = dict.fromkeys(_find_apart(graph, given, values))
        self._weights = {value: given[value] for value in apart if not given[value].is_inference()}
        self._tensors = list(self._weights.values())
        self._versions = [tensor._version for tensor in self._tensors]
        self._total = sum(self._versions)

    def require_unchanged(self) -> None:
        """Raise WeightError if one of the weights has been changed in place since."""
        if sum([tensor._version for tensor in self._tensors]) != self._total:  # versions only grow
            self._refuse()

    def _refuse(self) -> None:
        versions = zip(self._weights.items(), self._versions, strict=True)
        name = next(value.name for (value, tensor), version in versions if tensor._version != version)
        raise WeightError(
            f"the weight {name!r} was changed in place, and calls read what had been made of it: they would"
            " compute with the old one",
            where=f"graph {self._graph.name!r}",
            fix="bind the weights again: executor.load_state_dict(model.state_dict()); with passes=None,"
            " calls read the weights themselves",
        )


def _find_apart(
    graph: Graph, given: Mapping[Value, torch.Tensor], values: Mapping[Value, Any]
) -> Iterator[Value]:
    """Yield the weights that calls read other than in the memory of the caller."""
    sources: dict[Value, set[Value]] = {value: {value} for value in given}
    for node in graph.prologue:
        read = set().union(*(sources[value] for value in node.inputs))
        sources.update(dict.fromkeys(node.outputs, read))
    # Mutated state is the executor's own from the start.
    for value in values.keys() - graph.updates.keys():
        for weight in sources[value]:
            if not shares_storage_address(values[value], given[weight]):
                yield weight

"""Inputs in whose memory a call writes: those that are donated, and those that the model writes to."""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from npu_ir import ExecutionError, Graph, TensorType, Value
from npu_ir.core.storage import address_range, ranges_overlap, storage_span
from npu_ir.plugins.backend import copy_with_strides
from npu_runtime.executor.input_updates import find_write_problem


def resolve_donated(graph: Graph, donate: Collection[str] | Mapping[str, int]) -> dict[str, int | None]:
    """Return the option ``donate`` of an executor as a mapping; refuse what the graph does not have.

    Raises:
        ExecutionError: There is no such input, it is not a tensor, or there is no such result.
    """
    if isinstance(donate, str):
        raise ExecutionError(f"donate={donate!r} is not a collection of names", fix=f"donate=({donate!r},)")
    given = dict(donate) if isinstance(donate, Mapping) else dict.fromkeys(donate)
    known = [value.name for value in graph.inputs if isinstance(value.type, TensorType)]
    for name, index in given.items():
        if name not in known:
            raise ExecutionError(
                f"donate= names {name!r}, which is not a tensor among the inputs",
                where=f"graph {graph.name!r}",
                fix=f"it can have {', '.join(known) or 'none: the graph has no such input'}",
            )
        if index is not None and not 0 <= index < len(graph.results[1]):
            raise ExecutionError(
                f"donate= has result {index} for {name!r}, and there are {len(graph.results[1])}",
                where=f"graph {graph.name!r}",
            )
    return given


def find_donated(graph: Graph, donate: Mapping[str, int | None]) -> dict[Value, Any]:
    """Return the donated inputs, and the result that is to be in the memory of each; None if it is free."""
    inputs = {value.name: value for value in graph.inputs}
    results = graph.results[1]
    return {inputs[name]: None if index is None else results[index] for name, index in donate.items()}


class ReadMemory:
    """The memory of tensors that calls read besides their inputs.

    Args:
        tensors: The tensors.
    """

    def __init__(self, tensors: Mapping[Value, Any]) -> None:
        known = ((storage_span(tensor), value, tensor) for value, tensor in tensors.items())
        found = [(*span, value, tensor) for span, value, tensor in known if span is not None]
        self._items = sorted(found, key=lambda item: item[0])
        self._starts = [start for start, *_ in self._items]
        self._ends = list(itertools.accumulate((end for _, end, *_ in self._items), max))

    def find_sharing(self, item: Any) -> str | None:
        """Return the name of a tensor of which elements are in the memory of those of another one, if any."""
        span = storage_span(item)
        before = bisect.bisect_left(self._starts, span[1]) if span else 0
        if span is None or not before or self._ends[before - 1] <= span[0]:
            return None
        near = ((value, tensor) for _, end, value, tensor in self._items[:before] if end > span[0])
        return next((value.name for value, tensor in near if _have_common_elements(item, tensor)), None)


def _pairs_nearby(items: Sequence[Any]) -> dict[int, list[int]]:
    """Return for positions of tensors the positions of others whose storages overlap with theirs."""
    spans = {place: span for place, item in enumerate(items) if (span := storage_span(item)) is not None}
    found: dict[int, list[int]] = defaultdict(list)
    open_places: list[int] = []
    for place in sorted(spans, key=lambda place: spans[place][0]):
        open_places = [other for other in open_places if spans[other][1] > spans[place][0]]
        for other in open_places:
            found[place].append(other)
            found[other].append(place)
        open_places.append(place)
    return found


@dataclass(frozen=True, slots=True)
class OverwrittenInputs:
    """The inputs in whose memory instructions write, and the checks of what a call gives for them.

    Attributes:
        graph: The graph.
        places: The positions of these inputs, and whether each is donated.
        are_kept: Whether calls write to copies of all of them.
    """

    graph: Graph
    places: Mapping[int, bool]
    are_kept: bool = False

    @classmethod
    def of(cls, graph: Graph, written: Collection[Value], donated: Collection[Value]) -> OverwrittenInputs:
        """Return them, of all arguments in whose memory instructions write."""
        places = {index: value in donated for index, value in enumerate(graph.inputs) if value in written}
        return cls(graph, places)

    def kept(self) -> OverwrittenInputs:
        """Return the same for calls that write to no argument."""
        return replace(self, are_kept=True)

    def claim(self, inputs: Sequence[Any], weights: ReadMemory, *, writes: bool) -> Sequence[Any]:
        """Return the inputs of a call, with copies in place of those that must stay as they are.

        Args:
            inputs: All inputs, in the strides of their types.
            weights: What calls read besides.
            writes: Whether those that the model writes to may be written to, where nothing else is in their
                memory; donated ones may always.

        Raises:
            ExecutionError: A donated tensor shares memory with another argument or with a weight, or cannot
                be written to.
        """
        found = list(inputs)
        nearby = _pairs_nearby(inputs)
        for index, is_donated in self.places.items():
            if self.are_kept or not (is_donated or writes):
                found[index] = copy_with_strides(inputs[index])
                continue
            others = (
                place
                for place in nearby.get(index, ())
                if _have_common_elements(inputs[index], inputs[place])
            )
            names = (self.graph.inputs[place].name for place in others)
            other = next(names, None) or weights.find_sharing(inputs[index])
            if is_donated:
                self._require_own(index, inputs[index], other)
            elif other is not None:
                found[index] = copy_with_strides(inputs[index])
        return found

    def written(self, inputs: Sequence[Any]) -> list[torch.Tensor]:
        """Return those of the inputs that are written to, whose version is to be raised."""
        return [inputs[place] for place in self.places if not inputs[place].is_inference()]

    def copies(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs with copies in place of those that would be written to."""
        return [
            copy_with_strides(item) if place in self.places else item for place, item in enumerate(inputs)
        ]

    def _require_own(self, index: int, item: Any, other: str | None) -> None:
        value = self.graph.inputs[index]
        problem = find_write_problem(item)
        if other is not None:
            problem = f"shares memory with %{other}", "pass a copy of one of them (clone)"
        if problem is not None:
            raise ExecutionError(
                f"the input %{value.name} is donated, but the tensor that is given {problem[0]}",
                where=f"graph {self.graph.name!r}",
                fix=problem[1],
            )


def _have_common_elements(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether elements of two tensors are in the same memory.

    Those of other storages or sizes count as if there were no gaps between them.
    """
    if not ranges_overlap(address_range(left), address_range(right)):
        return False
    is_one_storage = storage_span(left) == storage_span(right) and left.itemsize == right.itemsize
    if left.is_contiguous() or right.is_contiguous() or not is_one_storage:
        return True
    is_left = torch.zeros(left.untyped_storage().nbytes() // left.itemsize, dtype=torch.bool)
    is_left.as_strided(left.shape, left.stride(), left.storage_offset()).fill_(True)
    return bool(is_left.as_strided(right.shape, right.stride(), right.storage_offset()).any())

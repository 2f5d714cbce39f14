"""Inputs in whose memory a call writes: those that are donated, and those that the model writes to."""

from __future__ import annotations

import bisect
import itertools
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from npu_ir import ExecutionError, Graph, TensorType, Value
from npu_ir.core.storage import (
    ByteRange,
    address_range,
    copy_with_strides,
    may_self_overlap,
    ranges_overlap,
    storage_span,
)
from npu_runtime.executor.input_updates import find_write_problem


def resolve_donated(graph: Graph, donate: Collection[str] | Mapping[str, int]) -> dict[str, int | None]:
    """Return the option ``donate`` of an executor as a mapping; refuse what the graph does not have.

    Raises:
        ExecutionError: There is no such input, it is not a tensor, or there is no such result.
    """
    if isinstance(donate, str):
        raise ExecutionError(f"donate={donate!r} is not a collection of names", fix=f"donate=({donate!r},)")
    if not isinstance(donate, Collection) or not all(isinstance(name, str) for name in donate):
        raise ExecutionError(
            f"donate={donate!r} is not a collection of names", fix="give names of inputs: donate=('cache',)"
        )
    given = dict(donate) if isinstance(donate, Mapping) else dict.fromkeys(donate)
    known = [value.name for value in graph.inputs if isinstance(value.type, TensorType)]
    for name, index in given.items():
        if name not in known:
            raise ExecutionError(
                f"donate= names {name!r}, which is not a tensor among the inputs",
                where=f"graph {graph.name!r}",
                fix=f"it can have {', '.join(known) or 'none: the graph has no such input'}",
            )
        if index is not None and (type(index) is not int or not 0 <= index < len(graph.results[1])):
            raise ExecutionError(
                f"donate= has result {index!r} for {name!r}, and there are {len(graph.results[1])}",
                where=f"graph {graph.name!r}",
                fix="results are numbered from 0 on, as run_flat returns them",
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
class _NothingShared:
    """The finding that nothing was in the memory of overwritten inputs in one call: it holds for most others.

    Attributes:
        weights: What that call read besides its inputs.
        memory: The memory of each input.
        places: The positions of the overwritten inputs.
        ranges: The addresses of each of these.
    """

    weights: ReadMemory
    memory: Sequence[Any]
    places: frozenset[int]
    ranges: Sequence[ByteRange]

    def holds(self, inputs: Sequence[Any], memory: Sequence[Any], weights: ReadMemory) -> bool:
        """Return whether it is certain for another call, in which only other inputs are elsewhere."""
        if weights is not self.weights:
            return False
        moved = [place for place, known in enumerate(self.memory) if memory[place] != known]
        return self.places.isdisjoint(moved) and not any(
            ranges_overlap(address_range(inputs[place]), written)
            for place in moved
            if memory[place] is not None
            for written in self.ranges
        )


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
    _are_fixed: Sequence[bool] = ()  # of each input: `_has_fixed_memory`
    # One at most; a call replaces it.
    _known: list[_NothingShared] = field(default_factory=list, compare=False)

    @classmethod
    def of(cls, graph: Graph, written: Collection[Value], donated: Collection[Value]) -> OverwrittenInputs:
        """Return them, of all arguments in whose memory instructions write."""
        places = {index: value in donated for index, value in enumerate(graph.inputs) if value in written}
        return cls(graph, places, _are_fixed=list(map(_has_fixed_memory, graph.inputs)))

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
        are_copied = self.are_kept or not (writes or any(self.places.values()))
        others = {} if are_copied else self._find_sharing(inputs, weights)
        for index, is_donated in self.places.items():
            if self.are_kept or not (is_donated or writes):
                found[index] = copy_with_strides(inputs[index])
            elif is_donated:
                self._require_own(index, inputs[index], others[index])
            elif others[index] is not None:
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

    def _find_sharing(self, inputs: Sequence[Any], weights: ReadMemory) -> Mapping[int, str | None]:
        """Return for each of these inputs the name of a tensor with elements in its memory, if any."""
        memory = list(map(_memory_of, inputs, self._are_fixed))
        if self._known and self._known[0].holds(inputs, memory, weights):
            return dict.fromkeys(self.places)
        nearby = _pairs_nearby(inputs)
        found = {}
        for index in self.places:
            item = inputs[index]
            others = (place for place in nearby.get(index, ()) if _have_common_elements(item, inputs[place]))
            names = (self.graph.inputs[place].name for place in others)
            found[index] = next(names, None) or weights.find_sharing(item)
        if not any(found.values()):
            ranges = [address_range(inputs[index]) for index in self.places]
            self._known[:] = [_NothingShared(weights, memory, frozenset(self.places), ranges)]
        return found

    def _require_own(self, index: int, item: Any, other: str | None) -> None:
        problem = find_write_problem(item)
        if other is not None:
            problem = f"shares memory with %{other}", "pass a copy of one of them (clone)"
        if problem is not None:
            name = self.graph.inputs[index].name
            raise ExecutionError(
                f"the input %{name} is donated, but the tensor that is given {problem[0]}",
                where=f"graph {self.graph.name!r}",
                fix=problem[1],
            )


def _has_fixed_memory(value: Value) -> bool:
    """Return whether an address tells where the elements of an input are.

    Of a type whose elements overlap, calls may give tensors with other strides.
    """
    kind = value.type
    if not isinstance(kind, TensorType) or kind.symbols:
        return False
    return not may_self_overlap(kind.static_shape, kind.static_strides)


def _memory_of(item: Any, is_fixed: bool) -> Any:
    """Return what tells the elements of an input from others; None for what has no strides."""
    if not isinstance(item, torch.Tensor) or item.layout is not torch.strided:
        return None
    return item.data_ptr() if is_fixed else (item.data_ptr(), item.shape, item.stride())


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

"""Inputs in whose memory a call writes: those that are donated, and those that the model writes to."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import torch

from npu_ir import ExecutionError, Graph, TensorType, Value
from npu_ir.core.storage import ranges_overlap, storage_address, storage_range
from npu_ir.plugins.backend import copy_with_strides
from npu_runtime.executor.input_updates import find_write_problem

# Tensors that a call reads besides its inputs, by the address of their storage.
ByAddress: TypeAlias = "Mapping[int, Sequence[tuple[Value, torch.Tensor]]]"


def find_donated(graph: Graph, names: Collection[str]) -> frozenset[Value]:
    """Return the inputs of a graph with these names.

    Raises:
        ExecutionError: There is no such input, or it is not a tensor.
    """
    if isinstance(names, str):
        raise ExecutionError(f"donate={names!r} is not a collection of names", fix=f"donate=({names!r},)")
    known = {value.name: value for value in graph.inputs if isinstance(value.type, TensorType)}
    for name in names:
        if name not in known:
            raise ExecutionError(
                f"donate= names {name!r}, which is not a tensor among the inputs",
                where=f"graph {graph.name!r}",
                fix=f"it can have {', '.join(known) or 'none: the graph has no such input'}",
            )
    return frozenset(known[name] for name in names)


def group_by_address(tensors: Mapping[Value, Any]) -> ByAddress:
    """Return tensors by the address of their storage; without those that have no memory."""
    grouped: dict[int, list[tuple[Value, torch.Tensor]]] = defaultdict(list)
    for value, tensor in tensors.items():
        address = storage_address(tensor)
        if address is not None:
            grouped[address].append((value, tensor))
    return grouped


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

    def claim(self, inputs: Sequence[Any], weights: ByAddress, *, writes: bool) -> Sequence[Any]:
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
        users = Counter(map(storage_address, inputs))
        for index, is_donated in self.places.items():
            if self.are_kept or not (is_donated or writes):
                found[index] = copy_with_strides(inputs[index])
                continue
            other = self._find_overlap(index, inputs, users, weights)
            if is_donated:
                self._require_own(index, inputs[index], other)
            elif other is not None:
                found[index] = copy_with_strides(inputs[index])
        return found

    def copies(self, inputs: Sequence[Any]) -> Sequence[Any]:
        """Return the inputs with copies in place of those that would be written to."""
        return [
            copy_with_strides(item) if place in self.places else item for place, item in enumerate(inputs)
        ]

    def _find_overlap(
        self, index: int, inputs: Sequence[Any], users: Mapping[int | None, int], weights: ByAddress
    ) -> str | None:
        """Return the name of what else is in the memory of an input; None if nothing is."""
        address = storage_address(inputs[index])
        others = [*weights.get(address, ())] if address is not None else []
        if address is not None and users[address] > 1:
            others += zip(self.graph.inputs, inputs, strict=True)
        own = self.graph.inputs[index]
        for value, other in others:
            if value is own or storage_address(other) != address:
                continue
            if _have_common_elements(inputs[index], other):
                return value.name
        return None

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
    """Return whether elements of two tensors of one storage are in the same memory.

    Those of other sizes count as if their ranges had no gaps.
    """
    if not ranges_overlap(storage_range(left), storage_range(right)):
        return False
    if left.is_contiguous() or right.is_contiguous() or left.itemsize != right.itemsize:
        return True
    is_left = torch.zeros(left.untyped_storage().nbytes() // left.itemsize, dtype=torch.bool)
    is_left.as_strided(left.shape, left.stride(), left.storage_offset()).fill_(True)
    return bool(is_left.as_strided(right.shape, right.stride(), right.storage_offset()).any())

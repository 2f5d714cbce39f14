"""Result ownership: which returned tensors are copied, and the next contents of mutated state."""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, TensorType, Value
from npu_ir.core.node import InputKind
from npu_ir.core.types import Type
from npu_runtime.codegen.compiler import mutated_state
from npu_runtime.lowering.alias_sets import AliasSets
from npu_runtime.probing.storage import with_stated_strides


@dataclass(frozen=True, slots=True)
class ResultPlan:
    """Copies that the values returned by a generated function need.

    Attributes:
        result_count: The number of results; the values after them are new contents of mutated state and
            inputs.
        may_share_constants: Whether results may share memory with tensors that later calls read.
        state: For each mutated buffer, parameter and optimizer state: the index of its new content, its
            type and strides, and whether to copy it.
        in_state: The indices of the results that may be in the memory of state that was written in place.
        keeps_state: Whether some state stays in the same memory.
    """

    result_count: int
    may_share_constants: bool
    state: tuple[tuple[int, Type, tuple[int, ...] | None, bool], ...]
    in_state: tuple[int, ...]
    keeps_state: bool

    def new_state(self, returned: Sequence[Any]) -> tuple[Any, ...]:
        """Return the state for the next call: tensors without other owners."""
        contents = []
        for index, type, strides, is_copied in self.state:
            content = returned[index]
            if strides is None or content.stride() != strides:
                content = with_stated_strides(content, type)
            contents.append(content.clone() if is_copied else content)
        return tuple(contents)

    def results_apart(self, returned: Sequence[Any]) -> Sequence[Any]:
        """Return what a call returns, with copies of the results that later calls would write to."""
        if not self.in_state:
            return returned
        return [item.clone() if index in self.in_state else item for index, item in enumerate(returned)]


def plan_results(graph: Graph, alias_sets: AliasSets, in_place: Set[Value] = frozenset()) -> ResultPlan:
    """Return the copies that the results of ``graph`` need.

    Args:
        graph: The program.
        alias_sets: The alias sets of its values.
        in_place: The values that are in the memory of arguments, which was written to.
    """
    returned = graph.returned
    count = len(graph.results[1])
    sets = [alias_sets.representative(item) if isinstance(item, Value) else None for item in returned]
    own = {alias_sets.representative(value) for value in _constant_values(graph)}
    outside = {alias_sets.representative(value) for value in graph.arguments} | own
    held = {alias_sets.representative(target) for target in mutated_state(graph)}
    written = held & {alias_sets.representative(value) for value in in_place}
    state = []
    for target in mutated_state(graph):
        index = count + list(graph.updates).index(target)
        is_shared = graph.updates[target] not in in_place and (
            sets[index] in outside or sets.count(sets[index]) > 1
        )
        type = graph.updates[target].type if graph.is_replaced(target) else target.type
        state.append((index, type, _static_strides(type), is_shared))
    in_state = tuple(index for index in range(count) if sets[index] is not None and sets[index] in written)
    return ResultPlan(count, any(item in own for item in sets), tuple(state), in_state, bool(written))


def copied_values(graph: Graph, alias_sets: AliasSets, in_place: Set[Value] = frozenset()) -> list[Value]:
    """Return the values that a call copies after its last instruction, or may copy; each once."""
    own = {alias_sets.representative(value) for value in _constant_values(graph)}
    plan = plan_results(graph, alias_sets, in_place)
    new = list(graph.updates.values())
    contents = [new[index - plan.result_count] for index, *_, is_copied in plan.state if is_copied]
    return [
        *dict.fromkeys(value for value in graph.outputs if alias_sets.representative(value) in own),
        *dict.fromkeys(graph.returned[index] for index in plan.in_state),
        *contents,
    ]


def _static_strides(type: Type) -> tuple[int, ...] | None:
    """Return the static strides of a type; None if they depend on the call or do not exist."""
    is_plain = isinstance(type, TensorType) and type.layout is torch.strided and not type.symbols
    return type.static_strides if isinstance(type, TensorType) and is_plain else None


def _constant_values(graph: Graph) -> Iterable[Value]:
    """Yield constants and prologue outputs: tensors that the caller does not own."""
    for value in graph.arguments:
        assert value.argument is not None
        if value.argument.kind is InputKind.CONSTANT or value.argument.data is not None:
            yield value
    for node in graph.prologue:
        yield from node.outputs

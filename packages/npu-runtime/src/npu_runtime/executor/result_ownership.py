"""What a call gives back: tensors that nobody writes to later, and the new contents of buffers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, TensorType, Value
from npu_ir.core.node import InputKind
from npu_ir.core.types import Type
from npu_runtime.codegen.compiler import state_of
from npu_runtime.lowering.alias_sets import Memory
from npu_runtime.probing.storage import laid_out


@dataclass(frozen=True, slots=True)
class ResultPlan:
    """Which of the values that a program returns have to be copied.

    Attributes:
        count: How many of them are results; the others are new contents of what the graph updates.
        may_be_own: Whether results may lie in memory that later calls read.
        state: For each buffer that calls change: where its new content is, its type and strides, and whether to copy it.
    """

    count: int
    may_be_own: bool
    state: tuple[tuple[int, Type, tuple[int, ...] | None, bool], ...]

    def new_state(self, returned: Sequence[Any]) -> tuple[Any, ...]:
        """Return what the buffers hold from now on; nobody else holds these tensors."""
        contents = []
        for index, type, strides, is_copied in self.state:
            content = returned[index]
            if strides is None or content.stride() != strides:
                content = laid_out(content, type)
            contents.append(content.clone() if is_copied else content)
        return tuple(contents)


def plan_results(graph: Graph, memory: Memory) -> ResultPlan:
    """Return what to copy of what the program of ``graph`` returns.

    Args:
        graph: The program.
        memory: Which of its values share memory.
    """
    returned = [*graph.results[1], *graph.updates.values()]
    count = len(graph.results[1])
    groups = [memory.group(item) if isinstance(item, Value) else None for item in returned]
    own = {memory.group(value) for value in _own_values(graph)}
    outside = {memory.group(value) for value in graph.arguments} | own
    state = []
    for target in state_of(graph):
        index = count + list(graph.updates).index(target)
        is_shared = groups[index] in outside or groups.count(groups[index]) > 1
        type = graph.updates[target].type if graph.is_replaced(target) else target.type
        state.append((index, type, _strides(type), is_shared))
    return ResultPlan(count, any(group in own for group in groups), tuple(state))


def copied_values(graph: Graph, memory: Memory) -> list[Value]:
    """Return the values of which a call makes a copy behind its last step, or may do so; each once.

    Args:
        graph: The program.
        memory: Which of its values share memory.
    """
    results = [item for item in graph.results[1] if isinstance(item, Value)]
    own = {memory.group(value) for value in _own_values(graph)}
    plan = plan_results(graph, memory)
    new = list(graph.updates.values())
    contents = [new[index - plan.count] for index, *_, is_copied in plan.state if is_copied]
    return [*dict.fromkeys(value for value in results if memory.group(value) in own), *contents]


def _strides(type: Type) -> tuple[int, ...] | None:
    """Return the strides that a tensor always has; None where that depends on the call."""
    is_plain = isinstance(type, TensorType) and type.layout is torch.strided and not type.symbols
    return type.steps if isinstance(type, TensorType) and is_plain else None


def _own_values(graph: Graph) -> Iterable[Value]:
    """Yield constants, and what the prologue makes: the caller has no other hold of them."""
    for value in graph.arguments:
        assert value.argument is not None
        if value.argument.kind is InputKind.CONSTANT or value.argument.data is not None:
            yield value
    for node in graph.prologue:
        yield from node.outputs

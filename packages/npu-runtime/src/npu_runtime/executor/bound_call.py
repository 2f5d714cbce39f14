"""Calls of a graph over fixed memory, which a backend can repeat without Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from npu_ir import Graph, TensorType, Value
from npu_ir.core.storage import shares_storage
from npu_ir.ops.effects import is_view
from npu_ir.plugins.backend import Backend
from npu_runtime.codegen.compiler import Compiled
from npu_runtime.lowering.instruction import Instruction, run_instruction

if TYPE_CHECKING:
    from npu_runtime.executor.engine import Engine

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, eq=False)
class BoundCall:
    """A call over fixed memory. Whoever runs it asks for the turn: `in_turn`.

    Attributes:
        backend: The backend that runs all of it.
        run: It computes the results of what is in the inputs, and advances state in its memory.
        results: The results of the graph, flat: fixed tensors.
        weights: What it reads besides; with others bound it must not run any more.
        owner: The engine that has made it.
    """

    backend: Backend
    run: Callable[[], None]
    results: tuple[Any, ...]
    weights: object
    owner: Engine

    @property
    def is_current(self) -> bool:
        """True if it reads the weights that the executor has now."""
        return self.owner.is_current(self)

    def in_turn(self, function: Callable[..., _T], *arguments: Any) -> _T:
        """Call a function that runs this call, once or again and again, while no other call runs.

        Raises:
            WeightError: A weight of which it reads another form was changed in place.
            ExecutionError: PyTorch traces or transforms this thread, or a call is in progress.
        """
        return self.owner.run_bound(function, *arguments)


def bind_call(
    graph: Graph,
    compiled: Compiled,
    values: Mapping[Value, Any],
    memory: Mapping[int, torch.Tensor],
    device: torch.device,
) -> tuple[Backend, Callable[[], None], tuple[Any, ...]] | None:
    """Return who runs a graph over fixed memory, how, and the results; None if it takes more than one call.

    Of ATen there may be views alone: these are made once.

    Args:
        graph: The program; its state is updated in place.
        compiled: The same, compiled.
        values: The tensors of its arguments, in the strides of their types.
        memory: Where results are to be, by number: tensors of their types.
        device: The device.
    """
    known, leaves = dict(values), graph.results[1]
    wanted = {leaves[index]: item for index, item in memory.items()}
    bound: tuple[Backend, Callable[[], None]] | None = None
    for instruction in compiled.instructions:
        if instruction.partition is None:
            made = _view(instruction, known, device)
        elif bound is None and not instruction.partition.overwritten:
            bound, made = _bind_partition(instruction, known, wanted, device)
        else:
            made = None
        if made is None:
            return None
        known.update(made)
    results = tuple(known[item] if isinstance(item, Value) else item for item in leaves)
    are_there = all(results[index] is item for index, item in memory.items())
    return (*bound, results) if bound is not None and are_there else None


def _view(
    instruction: Instruction, known: Mapping[Value, Any], device: torch.device
) -> dict[Value, Any] | None:
    """Return what an instruction returns, if it is in the memory of what it reads."""
    if instruction.needs_symbols or not all(map(is_view, instruction.nodes)):
        return None
    made = run_instruction(instruction, known, None, device)
    sources = [known[value] for value in instruction.inputs]
    are_views = all(any(shares_storage(item, source) for source in sources) for item in made)
    return dict(zip(instruction.outputs, made, strict=True)) if are_views else None


def _bind_partition(
    instruction: Instruction,
    known: Mapping[Value, Any],
    wanted: Mapping[Any, torch.Tensor],
    device: torch.device,
) -> tuple[tuple[Backend, Callable[[], None]], dict[Value, Any]]:
    """Return who runs a partition and how, and what it computes; state is where it is."""
    call = instruction.partition
    assert call is not None
    args, _ = instruction.binding.arguments([known[value] for value in instruction.inputs], device)
    inputs = call.joined(*args)
    count = len(call.outputs)
    outputs = {
        value: wanted[value] if value in wanted else _allocate(value.tensor_type, device)
        for value in instruction.outputs[:count]
    }
    state = dict(zip(instruction.outputs[count:], (inputs[number] for number in call.in_place), strict=True))
    return (call.backend, call.bind(inputs, list(outputs.values()))), {**outputs, **state}


def _allocate(type: TensorType, device: torch.device) -> torch.Tensor:
    return torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device=device)


def are_in_place(graph: Graph, compiled: Compiled, state: Sequence[Value]) -> bool:
    """Return whether all new contents of state are in the memory of the state."""
    return all(graph.updates[target] in compiled.in_place for target in state)

"""Binding of a planned program: its tensors and deferred callables, created once weights are given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from npu_ir import TensorType, Value, WeightError
from npu_ir.core.isolation import isolated_torch_state
from npu_ir.core.node import external_names
from npu_ir.graph.binding import bind_weights
from npu_ir.interpreter.prologue import Prologue
from npu_runtime.lowering.instruction import Instruction, run_instruction
from npu_runtime.planned.buffers import Alias, Allocation, BufferKind, Evaluate, dense_type
from npu_runtime.planned.plan import Plan
from npu_runtime.probing.storage import find_overlapping, has_stated_strides, with_stated_strides

# Returns an uninitialized tensor of a type on a device.
Allocator = Callable[[TensorType, torch.device], torch.Tensor]


class DeferredBinding:
    """Placeholder of a callable that ``bind`` returns once the tensors of lists of values are known."""

    def __init__(self, lists: Sequence[Sequence[Value]], bind: Callable[..., Callable[..., Any]]) -> None:
        self._lists = lists
        self._bind = bind

    def bind(self, tensors: Mapping[Value, Any]) -> Callable[..., Any]:
        """Return the callable bound to these tensors."""
        return self._bind(*[[tensors[value] for value in values] for values in self._lists])

    def __call__(self, *_args: Any, **_kwargs: Any) -> None:
        raise AssertionError("a program calls what was bound")


def allocate(type: TensorType, device: torch.device) -> torch.Tensor:
    """Return an uninitialized tensor of a type."""
    return torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device=device)


def bind_tensors(
    plan: Plan,
    weights: Mapping[str, torch.Tensor],
    constants: Mapping[str, torch.Tensor] | None,
    make: Allocator,
) -> dict[Value, Any]:
    """Return the tensor of every value with a fixed buffer, and the numbers that are the same in each run.

    Args:
        plan: The plan.
        weights: Parameters, buffers and optimizer state by name; mutated ones are written to in place.
        constants: As for `IRExecutor`.
        make: Allocates the arena and the inputs.

    Raises:
        WeightError: Weights are missing, unexpected, or of another type; or a mutated one cannot be written
            to in place.
    """
    graph = plan.graph
    given = bind_weights(graph, weights, constants)
    _require_own_memory(plan, weights, given)
    bound_weights = {
        value: tensor.detach() if value in graph.updates else _to_device(tensor, value, plan.device)
        for value, tensor in given.items()
    }
    tensors: dict[Value, Any] = dict(Prologue(graph, dict(bound_weights), plan.device).values_on(plan.device))
    tensors = {
        value: with_stated_strides(item, value.type) for value, item in tensors.items()
    } | bound_weights
    arena = make(TensorType((plan.arena_bytes,), torch.uint8), plan.device)
    with isolated_torch_state(plan.device):
        for action in plan.actions:
            if isinstance(action, Alias):
                tensors[action.value] = tensors[action.other]
            elif isinstance(action, Evaluate):
                tensors.update(_run_at_bind_time(action.instruction, tensors, plan))
            elif action.allocation.kind is BufferKind.INPUT:
                tensors[action.value] = make(dense_type(action.value.tensor_type), plan.device)
            elif action.allocation.kind is BufferKind.ARENA:
                tensors[action.value] = _arena_tensor(arena, action.allocation)
    return tensors


def _to_device(tensor: torch.Tensor, value: Value, device: torch.device) -> torch.Tensor:
    moved: torch.Tensor = with_stated_strides(
        tensor.detach().resolve_conj().resolve_neg().to(device), value.type
    )
    return moved


def _require_own_memory(
    plan: Plan, weights: Mapping[str, torch.Tensor], given: Mapping[Value, torch.Tensor]
) -> None:
    """Refuse mutated weights that cannot be written to in place."""
    graph = plan.graph
    changed: dict[str, torch.Tensor] = {}
    for value in graph.updates:
        if value not in given or value.argument is None:
            continue
        tensor = next((weights[name] for name in external_names(value) if name in weights), given[value])
        problem = _mutation_problem(tensor, value, plan.device)
        if problem:
            raise WeightError(
                f"the program changes {value.argument.target!r} in its own memory, but it {problem}",
                where=f"graph {graph.name!r}",
                fix="move or lay out the model before it is captured and bound",
            )
        changed[external_names(value)[0]] = tensor
    named = {value.argument.target: item for value, item in given.items() if value.argument is not None}
    pair = find_overlapping({**named, **changed}, changed)
    if pair is not None:
        raise WeightError(
            f"{pair[0]!r} and {pair[1]!r} share memory, and the program changes {pair[0]!r}",
            where=f"graph {graph.name!r}",
            fix="give each its own memory (clone), or tie them before the graph is captured",
        )


def _mutation_problem(tensor: torch.Tensor, value: Value, device: torch.device) -> str:
    if tensor.device != device:
        return f"is on {tensor.device}, and the program on {device}"
    if tensor.is_conj() or tensor.is_neg():
        return "is conjugated or negated lazily"
    if not has_stated_strides(tensor, value.type):
        return f"has the strides {tuple(tensor.stride())}, and the graph states {value.type}"
    return ""


def _run_at_bind_time(instruction: Instruction, tensors: Mapping[Value, Any], plan: Plan) -> dict[Value, Any]:
    """Run an instruction at bind time; inputs without a tensor are read for their types only."""
    known = {
        value: tensors[value] if value in tensors else allocate(value.tensor_type, plan.device)
        for value in instruction.inputs
    }
    return dict(zip(instruction.outputs, run_instruction(instruction, known, None, plan.device), strict=True))


def _arena_tensor(arena: torch.Tensor, allocation: Allocation) -> torch.Tensor:
    """Return the tensor of an allocation in the arena, as a storage of its own."""
    type = allocation.owner.tensor_type
    count = allocation.bytes
    if not count:
        return allocate(type, arena.device)
    # Through DLPack, the storage starts at this offset: a slice would start at the arena, and as_strided,
    # which fused views are, takes offsets from the start of the storage.
    part: torch.Tensor = torch.utils.dlpack.from_dlpack(arena[allocation.offset : allocation.offset + count])
    return part.view(type.dtype).as_strided(type.static_shape, type.static_strides)

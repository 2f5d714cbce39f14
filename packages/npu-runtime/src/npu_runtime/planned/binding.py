"""The tensors of a planned program: made once, each for good."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from npu_ir import TensorType, Value, WeightError
from npu_ir.core.isolation import no_outside_influence
from npu_ir.graph.binding import bind_weights
from npu_ir.interpreter.prologue import Prologue
from npu_runtime.lowering.instruction import Step, run_step
from npu_runtime.planned.buffers import Kind, Once, Piece, Same, bytes_of, dense_type
from npu_runtime.planned.plan import Plan
from npu_runtime.probing.storage import is_laid_out, laid_out, overlapping

# Returns memory of a type on a device.
Allocate = Callable[[TensorType, torch.device], torch.Tensor]


def allocate(type: TensorType, device: torch.device) -> torch.Tensor:
    """Return a tensor of a type, with any content."""
    return torch.empty_strided(type.sizes, type.steps, dtype=type.dtype, device=device)


def bind_tensors(
    plan: Plan,
    weights: Mapping[str, torch.Tensor],
    constants: Mapping[str, torch.Tensor] | None,
    make: Allocate,
) -> dict[Value, Any]:
    """Return the tensor of every value that has a fixed place, and the numbers that are the same in each run.

    Args:
        plan: What is to be run.
        weights: Parameters, buffers and optimizer state by name: what the program changes is changed in them.
        constants: As for `IRExecutor`.
        make: Allocates the arena, and the inputs.

    Raises:
        WeightError: Weights are missing, unexpected, or of another type; or one that is changed cannot be changed in
            its own memory.
    """
    graph = plan.graph
    given = bind_weights(graph, weights, constants)
    _require_own_memory(plan, weights, given)
    placed = {
        value: tensor.detach() if value in graph.updates else _placed(tensor, value, plan.device)
        for value, tensor in given.items()
    }
    tensors: dict[Value, Any] = dict(Prologue(graph, dict(placed), plan.device).values_on(plan.device))
    tensors = {value: laid_out(item, value.type) for value, item in tensors.items()} | placed
    arena = make(TensorType((plan.arena_bytes,), torch.uint8), plan.device)
    with no_outside_influence(plan.device):
        for action in plan.actions:
            if isinstance(action, Same):
                tensors[action.value] = tensors[action.other]
            elif isinstance(action, Once):
                tensors.update(_outputs(action.step, tensors, plan))
            elif action.piece.kind is Kind.INPUT:
                tensors[action.value] = make(dense_type(action.value.tensor_type), plan.device)
            elif action.piece.kind is Kind.ARENA:
                tensors[action.value] = _in_arena(arena, action.piece)
    return tensors


def _placed(tensor: torch.Tensor, value: Value, device: torch.device) -> torch.Tensor:
    moved: torch.Tensor = laid_out(tensor.detach().resolve_conj().resolve_neg().to(device), value.type)
    return moved


def _require_own_memory(
    plan: Plan, weights: Mapping[str, torch.Tensor], given: Mapping[Value, torch.Tensor]
) -> None:
    """Refuse weights that are to be changed but cannot be where they are."""
    graph = plan.graph
    changed: dict[str, torch.Tensor] = {}
    for value in graph.updates:
        if value not in given or value.argument is None:
            continue
        names = (value.argument.target, *value.argument.aliases)
        tensor = next((weights[name] for name in names if name in weights), given[value])
        problem = _problem(tensor, value, plan.device)
        if problem:
            raise WeightError(
                f"the program changes {value.argument.target!r} in its own memory, but it {problem}",
                where=f"graph {graph.name!r}",
                fix="move or lay out the model before it is captured and bound",
            )
        changed[names[0]] = tensor
    named = {value.argument.target: item for value, item in given.items() if value.argument is not None}
    found = overlapping({**named, **changed}, changed)
    if found is not None:
        raise WeightError(
            f"{found[0]!r} and {found[1]!r} share memory, and the program changes {found[0]!r}",
            where=f"graph {graph.name!r}",
            fix="give each its own memory (clone), or tie them before the graph is captured",
        )


def _problem(tensor: torch.Tensor, value: Value, device: torch.device) -> str:
    if tensor.device != device:
        return f"is on {tensor.device}, and the program on {device}"
    if not is_laid_out(tensor, value.type):
        return f"has the strides {tuple(tensor.stride())}, and the graph states {value.type}"
    return "is conjugated or negated lazily" if tensor.is_conj() or tensor.is_neg() else ""


def _outputs(step: Step, tensors: Mapping[Value, Any], plan: Plan) -> dict[Value, Any]:
    """Return what a step makes of tensors; of those that are not there, it reads only the type."""
    known = {
        value: tensors[value] if value in tensors else allocate(value.tensor_type, plan.device)
        for value in step.inputs
    }
    return dict(zip(step.outputs, run_step(step, known, None, plan.device), strict=True))


def _in_arena(arena: torch.Tensor, piece: Piece) -> torch.Tensor:
    """Return the tensor of a piece: its storage is its own, as views with absolute offsets need it."""
    type = piece.owner.tensor_type
    count = bytes_of(piece.owner)
    if not count:
        return allocate(type, arena.device)
    part: torch.Tensor = torch.utils.dlpack.from_dlpack(arena[piece.offset : piece.offset + count])
    return part.view(type.dtype).as_strided(type.sizes, type.steps)

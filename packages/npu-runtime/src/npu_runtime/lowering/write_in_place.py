"""Instructions that write into the memory of state, and the log that undoes what they have written."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

import torch

from npu_ir import Value
from npu_ir.ops.effects import aten_name
from npu_runtime.backends.partition import ATEN
from npu_runtime.lowering.instruction import Instruction
from npu_runtime.lowering.partition_call import UndoLog
from npu_runtime.lowering.state_updates import StateUpdates

# Writes into its first argument; what undoes that is in the log before.
_Write: TypeAlias = "Callable[..., None]"
_Entries: TypeAlias = "list[Callable[[], object]]"


def write_in_place(
    instructions: Sequence[Instruction], updates: StateUpdates, log: UndoLog
) -> tuple[list[Instruction], set[Value]]:
    """Return the instructions, of which those that update state do so in its memory, where they can.

    Also returns the outputs that are in that memory.
    """
    written: set[Value] = set()
    rewritten = []
    for instruction in instructions:
        found = _written_by(instruction, updates, written)
        replaced = _with_log(instruction, log) if found else None
        rewritten.append(replaced or instruction)
        written.update(found if replaced is not None else ())
    return rewritten, written


def _written_by(instruction: Instruction, updates: StateUpdates, written: set[Value]) -> set[Value]:
    """Return the outputs that may be in the memory of state: an update behind one that is not, is not."""
    if (call := instruction.partition) is not None:
        # Its other outputs are computed in memory of their own.
        behind = instruction.outputs[len(instruction.outputs) - len(call.in_place) :]
        return updates.in_place.keys() & set(behind)
    sources = {value: updates.in_place[value] for value in instruction.outputs if value in updates.in_place}
    return {value for value, item in sources.items() if item.argument is not None or item in written}


def _with_log(instruction: Instruction, log: UndoLog) -> Instruction | None:
    """Return an instruction that writes in place; None if there is none."""
    if instruction.partition is not None:
        if not instruction.partition.in_place:
            return None
        call = replace(instruction.partition, log=log)
        return replace(instruction, function=call, partition=call)
    write = _WRITES.get(aten_name(instruction.node))
    if write is None or instruction.backend != ATEN or instruction.traits is None:
        return None

    def call_logged(state: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        write(log.entries, state, *args, **kwargs)
        return state

    return replace(
        instruction,
        kernel=f"in_place.{aten_name(instruction.node)}",
        function=call_logged,
        overwrites=instruction.inputs[0],
        traits=replace(instruction.traits, in_place=None, shares=(frozenset({0}),), is_certain=True),
    )


def _write_part(log: _Entries, part: torch.Tensor, source: torch.Tensor) -> None:
    log.append(functools.partial(part.copy_, part.clone()))
    part.copy_(source)


def _index_copy(
    log: _Entries, state: torch.Tensor, dim: int, index: torch.Tensor, source: torch.Tensor
) -> None:
    # A copy of the index: its memory may be used again before the call ends.
    log.append(functools.partial(state.index_copy_, dim, index.clone(), state.index_select(dim, index)))
    state.index_copy_(dim, index, source)


def _index_put(
    log: _Entries,
    state: torch.Tensor,
    indices: Sequence[torch.Tensor | None],
    values: torch.Tensor,
    accumulate: bool = False,
) -> None:
    before = torch.ops.aten.index.Tensor(state, indices)
    kept = [None if index is None else index.clone() for index in indices]
    log.append(functools.partial(torch.ops.aten.index_put_.default, state, kept, before))
    torch.ops.aten.index_put_.default(state, indices, values, accumulate)


def _slice_scatter(
    log: _Entries,
    state: torch.Tensor,
    src: torch.Tensor,
    dim: int = 0,
    start: int | None = None,
    end: int | None = None,
    step: int = 1,
) -> None:
    _write_part(log, torch.ops.aten.slice.Tensor(state, dim, start, end, step), src)


def _select_scatter(log: _Entries, state: torch.Tensor, src: torch.Tensor, dim: int, index: int) -> None:
    _write_part(log, state.select(dim, index), src)


_WRITES: Mapping[str, _Write] = {
    "index_copy": _index_copy,
    "index_put": _index_put,
    "slice_scatter": _slice_scatter,
    "select_scatter": _select_scatter,
}

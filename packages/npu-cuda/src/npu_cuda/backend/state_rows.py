"""Rows of state that ops write in place: saved before, and restored if the call fails.

The op that overwrites them saves them, too, if its kernel can: as its second result. If not, the op that does
comes right before it. Saved rows and the indices have memory of their own in a program, which no other op
uses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from npu_cuda import _C
from npu_cuda.backend.index_rules import save_rows
from npu_cuda.backend.op_builder import op_info
from npu_cuda.backend.selection import kind_of, select_kernel
from npu_cuda.backend.tensor_views import ALIGNMENT
from npu_ir import Graph, OpNode, Value
from npu_ir.graph.partition import in_place_of
from npu_ir.plugins.backend import BackendOp, Operand


def can_overwrite(node: OpNode, ops: Sequence[BackendOp] | str, device: str) -> bool:
    """Return whether the ops of a node can write into the memory of its first input."""
    if isinstance(ops, str) or ops[-1].inputs[:1] != node.inputs[:1] or ops[-1].outputs != node.outputs:
        return False
    if any(node.inputs[0] in op.inputs for op in ops[:-1]) or node.inputs[0] in ops[-1].inputs[1:]:
        return False
    saving = save_rows(node, ops[-1])
    return saving is not None and bool(select_kernel(saving, device, 0)[0])


def add_saving_ops(
    in_place: Mapping[Value, Value], ops: Sequence[BackendOp], device: str
) -> Iterator[BackendOp]:
    """Yield the ops of a graph, and those that save what is overwritten in place."""
    for op in ops:
        if not _overwrites(in_place, op):
            yield op
            continue
        saving = save_rows(op.nodes[0], op)
        assert saving is not None  # it was asked for the node
        both = replace(op, outputs=(*op.outputs, *saving.outputs))
        # A kernel for unaligned memory is required, as for every op.
        if _takes_outputs(op, len(both.outputs)) and _is_of_package(
            op.kind, select_kernel(both, device, 0)[0]
        ):
            yield replace(both, kernel=select_kernel(both, device, ALIGNMENT)[0])
            continue
        yield replace(saving, kernel=select_kernel(saving, device, ALIGNMENT)[0])
        yield op


def _takes_outputs(op: BackendOp, count: int) -> bool:
    info = op_info(op.kind)
    return bool(info["outputs"] <= count <= info["max_outputs"])


def _is_of_package(kind: str, kernel: str) -> bool:
    """Return whether a kernel is one of this package: another may take the call, and not know the result."""
    return any(item["id"] == kernel and item["origin"] == "npu-cuda" for item in _C.kernels(kind_of(kind)))


def _overwrites(in_place: Mapping[Value, Value], op: BackendOp) -> bool:
    (node, *others) = op.nodes
    return not others and op.outputs[:1] == node.outputs and op.outputs[0] in in_place


@dataclass(frozen=True, slots=True)
class RowUpdate:
    """An op that writes into the memory of state.

    Attributes:
        index: Its number among the ops that have kernels.
        op: The op.
        state: The number of the input that it writes to.
        saved: What it or the op before it has saved.
        indices: The tensors that name the rows.
    """

    index: int
    op: BackendOp
    state: int
    saved: Operand
    indices: tuple[Operand, ...]

    def restore(self, state: Any, find: Callable[[Operand], Any]) -> None:
        """Write the saved rows back into the state; ``find`` returns the tensor of an operand."""
        inputs = [state, *map(find, (self.saved, *self.indices))]
        _C.op_call(kind_of(self.op.kind), inputs, [state], self.op.schema_id, self.op.attrs)


def find_row_updates(graph: Graph, ops: Sequence[BackendOp]) -> tuple[RowUpdate, ...]:
    """Return the updates in place among the ops with kernels, in order."""
    in_place = in_place_of(graph)
    owners: dict[Any, Value] = {}
    for value, source in in_place.items():
        owners[value] = owners.get(source, source)
    return tuple(
        RowUpdate(
            index,
            op,
            graph.inputs.index(owners[op.outputs[0]]),
            op.outputs[1] if len(op.outputs) > 1 else ops[index - 1].outputs[0],
            op.inputs[2:],
        )
        for index, op in enumerate(ops)
        if _overwrites(in_place, op)
    )


def memory_to_keep(updates: Sequence[RowUpdate]) -> list[Operand]:
    """Return the tensors that a restoration reads, besides the state."""
    return [operand for update in updates for operand in (update.saved, *update.indices)]

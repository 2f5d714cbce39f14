"""Rules of views: ops that only give another shape, other strides and an offset to memory.

A view is the op `VIEW` of a lowered graph. It has no kernel: in a program its outputs are slots over the
memory of its input.
"""

from __future__ import annotations

import struct

import torch

from npu_cuda.backend.pointwise_rules import Pack
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir import OpNode, TensorType
from npu_ir.core.storage import shares_storage
from npu_ir.errors import ExecutionError
from npu_ir.ops.execution import execute_node
from npu_ir.plugins.backend import BackendOp, Operand, Temporary

VIEW = "View"
_META = torch.device("meta")

# Ops whose outputs are views of their one tensor, in each call or for some strides.
_VIEW_OPS = (
    "aten.alias.default",
    "aten.chunk.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.diagonal.default",
    "aten.expand.default",
    "aten.flatten.using_ints",
    "aten.movedim.int",
    "aten.movedim.intlist",
    "aten.narrow.default",
    "aten.permute.default",
    "aten.reshape.default",
    "aten.select.int",
    "aten.slice.Tensor",
    "aten.split.Tensor",
    "aten.split.sizes",
    "aten.split_with_sizes.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.swapaxes.default",
    "aten.t.default",
    "aten.transpose.int",
    "aten.unbind.int",
    "aten.unflatten.int",
    "aten.unsqueeze.default",
    "aten.view.default",
)
# Those that copy a tensor, in the order of its elements, whose strides do not allow the view.
_COPYING_OPS = ("aten.flatten.using_ints", "aten.reshape.default")


def view_offsets(op: BackendOp) -> tuple[int, ...]:
    """Return where each output of a `VIEW` starts, in elements from the start of its input."""
    return struct.unpack(f"<{len(op.outputs)}q", op.attrs)


def lower_view(node: OpNode, pack: Pack) -> list[BackendOp] | str:  # noqa: ARG001 - it has no kernel
    if len(node.inputs) != 1:
        return f"a view is of one tensor, not of {len(node.inputs)}"
    (value,) = node.inputs
    type = tensor_type(value)
    source = torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device=_META)
    try:
        results = execute_node(node, [source], _META)
    except ExecutionError as error:
        return error.message
    if [TensorType.of(result) for result in results] != [output.type for output in node.outputs]:
        return f"the strides of {node.op_type} of {type} are not those of its type"
    if all(shares_storage(result, source) for result in results):
        return [_view(node, value, [result.storage_offset() for result in results])]
    if node.op_type not in _COPYING_OPS:
        return f"{node.op_type} of {type} is a copy"
    in_order = Temporary(f"{node.name}.copy", TensorType(type.shape, type.dtype))
    return [BackendOp("Copy", (value,), (in_order,), (node,)), _view(node, in_order, [0])]


def _view(node: OpNode, source: Operand, offsets: list[int]) -> BackendOp:
    return BackendOp(VIEW, (source,), node.outputs, (node,), attrs=struct.pack(f"<{len(offsets)}q", *offsets))


VIEW_RULES = dict.fromkeys(_VIEW_OPS, (lower_view,))

"""Rules of views: ops that only give another shape, other strides and an offset to memory.

A view is the op `VIEW` of a lowered graph. It has no kernel: in a program its outputs are slots over the
memory of its input.
"""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch

from npu_cuda.backend.op_builder import Lowered
from npu_cuda.backend.tensor_views import tensor_type
from npu_ir import OpNode, TensorType, Value
from npu_ir.core.storage import shares_storage
from npu_ir.errors import ExecutionError, NpuError
from npu_ir.ops.execution import binding_of, execute_node, run_op
from npu_ir.ops.inference import TypedCall
from npu_ir.ops.schema import find_op
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.backend import BackendOp, Operand, Temporary

VIEW = "View"
_META = torch.device("meta")

# Ops whose outputs are views of their one tensor, in each call or for some strides.
_VIEW_OPS = (
    "aten._unsafe_view.default",
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
# Those that copy what another op views.
_COPIED_VIEWS: Mapping[str, str] = {
    **{
        f"aten.{name}_copy.{overload}": f"aten.{name}.{overload}"
        for name, overload in (
            ("alias", "default"), ("detach", "default"), ("diagonal", "default"), ("expand", "default"),
            ("narrow", "default"), ("permute", "default"), ("select", "int"), ("split", "Tensor"),
            ("split_with_sizes", "default"), ("squeeze", "default"), ("squeeze", "dim"), ("squeeze", "dims"),
            ("t", "default"), ("transpose", "int"), ("unbind", "int"), ("unsqueeze", "default"),
        )
    },
    "aten.view_copy.default": "aten.reshape.default",  # it takes any strides
}  # fmt: skip


def view_offsets(op: BackendOp) -> tuple[int, ...]:
    """Return where each output of a `VIEW` starts, in elements from the start of its input."""
    return struct.unpack(f"<{len(op.outputs)}q", op.attrs)


def view_of(node: OpNode, source: Operand, outputs: Sequence[Operand], offsets: Sequence[int]) -> BackendOp:
    """Return the op of views of a tensor that start at these elements of it."""
    attrs = struct.pack(f"<{len(offsets)}q", *offsets)
    return BackendOp(VIEW, (source,), tuple(outputs), (node,), attrs=attrs)


def lower_view(node: OpNode) -> Lowered:
    if len(node.inputs) != 1:
        return f"a view is of one tensor, not of {len(node.inputs)}"
    (value,) = node.inputs
    type = tensor_type(value)
    views = _views_by(node, type)
    if isinstance(views, str):
        return views
    if len(views.types) != len(node.outputs) or not all(map(_has_layout, views.types, node.outputs)):
        return f"the strides of {node.op_type} of {type} are not those of its type"
    if views.offsets is not None:
        return [view_of(node, value, node.outputs, views.offsets)]
    if node.op_type not in _COPYING_OPS:
        return f"{node.op_type} of {type} is a copy"
    in_order = Temporary(f"{node.name}.copy", TensorType(type.shape, type.dtype))
    return [BackendOp("Copy", (value,), (in_order,), (node,)), view_of(node, in_order, node.outputs, [0])]


@dataclass(frozen=True, slots=True)
class _Views:
    """The results of an op on one tensor: types, and where each starts in it; no offsets where it copies."""

    types: tuple[TensorType, ...]
    offsets: tuple[int, ...] | None


def _views_by(node: OpNode, type: TensorType) -> _Views | str:
    """Return what a node returns of a tensor of a type, or why it fails."""
    op = find_op(node.op_type)
    is_replaced = node.op_type in plugin_manager.registry().table("execution")
    if op is not None and not is_replaced:
        views = _views_of(TypedCall.of(node.op_type, op, node.inputs, node.attrs, node.operands, {}))
        if views is not None:
            return views
    source = _on_meta(type)
    try:
        return _views_in(source, execute_node(node, [source], _META))
    except ExecutionError as error:
        return error.message


@functools.lru_cache(maxsize=4096)  # the layers of a model repeat the same views
def _views_of(call: TypedCall) -> _Views | None:
    """Return what a call of PyTorch's op returns of its one tensor; None if it fails."""
    (type,) = call.types
    assert isinstance(type, TensorType)
    source = _on_meta(type)
    try:
        return _views_in(source, run_op(call.op, call.binding, [source], _META))
    except (NpuError, RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
        return None  # so does the node, with an error that names it


def _views_in(source: torch.Tensor, results: Sequence[torch.Tensor]) -> _Views:
    are_views = all(shares_storage(result, source) for result in results)
    offsets = tuple([int(result.storage_offset()) for result in results]) if are_views else None
    return _Views(tuple(map(TensorType.of, results)), offsets)


def _on_meta(type: TensorType) -> torch.Tensor:
    return torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device=_META)


def _has_layout(found: TensorType, output: Value) -> bool:
    """Return whether a type is that of an output, but for strides of axes of one element."""
    stated = tensor_type(output)
    if found == stated:
        return True
    pairs = zip(found.static_shape, found.static_strides, stated.static_strides, strict=True)
    is_alike = (found.dtype, found.shape) == (stated.dtype, stated.shape)
    return is_alike and all(size == 1 or own == other for size, own, other in pairs)


def _lower_copied_view(node: OpNode) -> Lowered:
    """Return a view, and a copy of each of its parts."""
    copying, viewing = find_op(node.op_type), find_op(_COPIED_VIEWS[node.op_type])
    if copying is None or viewing is None or len(node.inputs) != 1:
        return f"this PyTorch has no {_COPIED_VIEWS[node.op_type]}"
    (value,) = node.inputs
    type = tensor_type(value)
    source = _on_meta(type)
    parts = run_op(viewing, binding_of(node, copying), [source], _META)
    if not all(shares_storage(part, source) for part in parts):
        return f"{node.op_type} of {type} does not copy a view"
    views = tuple(
        Temporary(f"{output.name}.view", TensorType.of(part))
        for output, part in zip(node.outputs, parts, strict=True)
    )
    view = view_of(node, value, views, [part.storage_offset() for part in parts])
    copies = (
        BackendOp("Copy", (part,), (output,), (node,))
        for part, output in zip(views, node.outputs, strict=True)
    )
    return [view, *copies]


VIEW_RULES = {
    **dict.fromkeys(_VIEW_OPS, (lower_view,)),
    **dict.fromkeys(_COPIED_VIEWS, (_lower_copied_view,)),
}

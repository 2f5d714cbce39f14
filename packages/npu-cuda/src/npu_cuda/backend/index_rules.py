"""Rules of nodes that move elements by index, sort them, or fill new tensors."""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from npu_cuda.backend.contiguous_ops import (
    axis_of,
    expanded,
    fill_single,
    integer_of,
    make_contiguous_op,
    positive,
    shapes_of,
)
from npu_cuda.backend.op_builder import Lowered, Rule, make_op
from npu_cuda.backend.pointwise_rules import refused_number
from npu_cuda.backend.tensor_views import tensor_type
from npu_cuda.backend.view_rules import view_of
from npu_ir import OpNode, TensorType
from npu_ir.plugins.backend import BackendOp, Operand, Temporary

# Modes of AxisMap: what is read outside of the input.
_NOTHING, _FILL, _WRAP, _REFLECT, _CLAMP = range(5)


# ---- by index tensors ----


def _lower_embedding(node: OpNode) -> Lowered:
    return make_contiguous_op(node, "IndexSelect", node.inputs, axis=0)


def _lower_embedding_backward(node: OpNode) -> Lowered:
    if node.attrs.get("scale_grad_by_freq"):
        return "EmbeddingBwd does not scale gradients by the frequency of an index"
    return make_contiguous_op(
        node, "EmbeddingBwd", node.inputs, padding_index=integer_of(node, "padding_idx")
    )


def _lower_along_axis(node: OpNode, kind: str) -> Lowered:
    return make_contiguous_op(node, kind, node.inputs, axis=axis_of(node))


def _lower_scatter_add(node: OpNode) -> Lowered:
    return make_contiguous_op(node, "Scatter", node.inputs, axis=axis_of(node), accumulate=1)


def _lower_scatter_value(node: OpNode) -> Lowered:
    if node.attrs.get("reduce") is not None:
        return f"Scatter takes no reduce={node.attrs['reduce']!r}"
    made = fill_single(node, "value", node.attrs["value"])
    if isinstance(made, str):
        return made
    value, fill = made
    return make_contiguous_op(node, "Scatter", (*node.inputs, value), (fill,), axis=axis_of(node))


def _lower_index_write(node: OpNode, accumulate: int) -> Lowered:
    if node.attrs.get("alpha", 1) != 1:
        return f"IndexPut takes no alpha={node.attrs['alpha']!r}"
    target, index, values = node.inputs
    inputs = (target, values, index)
    return make_contiguous_op(node, "IndexPut", inputs, axis=axis_of(node), accumulate=accumulate)


def _first_indexed_axis(node: OpNode, count: int) -> int | str:
    """Return the axis of the first of ``count`` index tensors; their axes have to be neighbours."""
    masks: Any = node.attrs.get("_tensor_list_none_masks")
    absent = masks[0] if masks else [False] * count
    axes = [axis for axis, is_absent in enumerate(absent) if not is_absent]
    if count and axes == list(range(axes[0], axes[0] + count)):
        return axes[0]
    return f"an index takes neighbouring axes, not {axes}"


def _joined_indices(node: OpNode, ops: list[BackendOp], indices: Sequence[Operand]) -> list[Operand]:
    """Return index tensors in the shape to which they broadcast; copies are added to ``ops``."""
    shapes = (tensor_type(index).static_shape for index in indices)
    shape = tuple(torch.broadcast_shapes(*shapes))  # type: ignore[no-untyped-call]
    return [expanded(node, ops, index, shape) for index in indices]


def _lower_index(node: OpNode) -> Lowered:
    source, *indices = node.inputs
    axis = _first_indexed_axis(node, len(indices))
    if isinstance(axis, str):
        return axis
    ops: list[BackendOp] = []
    tensors = _joined_indices(node, ops, indices)
    return make_contiguous_op(node, "IndexSelect", (source, *tensors), ops, axis=axis, wrap=1)


def _lower_index_put(node: OpNode) -> Lowered:
    target, *indices, values = node.inputs
    axis = _first_indexed_axis(node, len(indices))
    if isinstance(axis, str):
        return axis
    ops: list[BackendOp] = []
    tensors = _joined_indices(node, ops, indices)
    shape = tensor_type(target).static_shape
    selected = (*shape[:axis], *tensor_type(tensors[0]).static_shape, *shape[axis + len(indices) :])
    items = expanded(node, ops, values, selected)
    accumulate = int(bool(node.attrs.get("accumulate")))
    return make_contiguous_op(
        node, "IndexPut", (target, items, *tensors), ops, axis=axis, wrap=1, accumulate=accumulate
    )


def save_rows(node: OpNode, op: BackendOp) -> BackendOp | None:
    """Return the op that reads what the op of a node overwrites in its first input; None if there is none."""
    state, source = map(tensor_type, op.inputs[:2])
    if node.attrs.get("accumulate") or state.dtype != source.dtype:
        return None
    saved = Temporary(f"{node.name}.before", TensorType(source.shape, source.dtype))
    if node.op_type == "aten.slice_scatter.default":
        shape, axis = shapes_of(node)[0], positive(axis_of(node), len(shapes_of(node)[0]))
        places = _slice(node, shape[axis])
        fields = {f"start{axis}": places.start, f"step{axis}": places.step}
        return make_op(node, "AxisMap", op.inputs[:1], (saved,), mode=_NOTHING, **fields)
    if node.op_type not in ("aten.index_copy.default", "aten.index_put.default"):
        return None
    is_put = node.op_type == "aten.index_put.default"
    first = _first_indexed_axis(node, len(op.inputs) - 2) if is_put else axis_of(node)
    if isinstance(first, str):
        return None
    rows = (op.inputs[0], *op.inputs[2:])
    return make_op(node, "IndexSelect", rows, (saved,), axis=first, wrap=int(is_put))


# ---- parts of tensors: copies, which take any strides ----


def _lower_cat(node: OpNode) -> Lowered:
    # PyTorch skips vectors without elements, whatever the shape of the others.
    inputs = [value for value in node.inputs if tensor_type(value).static_shape != (0,)] or node.inputs
    return [make_op(node, "Cat", inputs, node.outputs, axis=axis_of(node))]


def _slice(node: OpNode, size: int) -> range:
    """Return the places that a slice names, which is clamped as in Python."""
    start, end = node.attrs.get("start"), node.attrs.get("end")
    return range(size)[start : end : node.attrs.get("step", 1)]


def _lower_slice_scatter(node: OpNode) -> Lowered:
    shape, axis = shapes_of(node)[0], axis_of(node)
    places = _slice(node, shape[axis])
    fields = {"start": places.start, "step": places.step}
    return [make_op(node, "SliceScatter", node.inputs, node.outputs, axis=axis, **fields)]


def _lower_select_scatter(node: OpNode) -> Lowered:
    axis, index = axis_of(node), integer_of(node, "index")
    start = positive(index, shapes_of(node)[0][axis])
    return [make_op(node, "SliceScatter", node.inputs, node.outputs, axis=axis, start=start)]


# ---- by coordinates ----


def _mapped(
    node: OpNode,
    mode: int,
    starts: Mapping[int, int],
    steps: Mapping[int, int] | None = None,
    *,
    filled_by: tuple[Operand, BackendOp] | None = None,
) -> list[BackendOp]:
    fields = {f"start{axis}": start for axis, start in starts.items()}
    fields.update({f"step{axis}": step for axis, step in (steps or {}).items()})
    fill, before = ((filled_by[0],), (filled_by[1],)) if filled_by else ((), ())
    return make_contiguous_op(node, "AxisMap", (*node.inputs, *fill), before, mode=mode, **fields)


def _lower_slice_copy(node: OpNode) -> Lowered:
    (shape,) = shapes_of(node)
    axis = positive(axis_of(node), len(shape))
    places = _slice(node, shape[axis])
    return _mapped(node, _NOTHING, {axis: places.start}, {axis: places.step})


def _lower_flip(node: OpNode) -> Lowered:
    (shape,) = shapes_of(node)
    dims: Any = node.attrs["dims"]
    axes = [positive(axis, len(shape)) for axis in dims]
    return _mapped(node, _NOTHING, {axis: shape[axis] - 1 for axis in axes}, dict.fromkeys(axes, -1))


def _lower_roll(node: OpNode) -> Lowered:
    (shape,) = shapes_of(node)
    shifts: Any = node.attrs["shifts"]
    dims: Any = node.attrs.get("dims") or ([0] if len(shape) == 1 else [])
    if len(dims) != len(shifts):
        return f"AxisMap rolls axes, not all elements of {node.inputs[0].type}"
    starts = dict.fromkeys(range(len(shape)), 0)
    for axis, shift in zip(dims, shifts, strict=True):
        starts[positive(axis, len(shape))] -= shift
    return _mapped(node, _WRAP, starts)


def _lower_repeat(node: OpNode) -> Lowered:
    return _mapped(node, _WRAP, {})


def _pads(node: OpNode, name: str) -> dict[int, int]:
    """Return the first coordinate that each axis reads; the last axis comes first in the argument."""
    pads: Any = node.attrs[name]
    rank = len(shapes_of(node)[0])
    return {rank - 1 - i: -before for i, before in enumerate(pads[::2])}


def _lower_constant_pad(node: OpNode) -> Lowered:
    value = node.attrs.get("value")
    made = fill_single(node, "value", 0 if value is None else value)
    if isinstance(made, str):
        return made
    return _mapped(node, _FILL, _pads(node, "pad"), filled_by=made)


def _lower_pad(node: OpNode) -> Lowered:
    mode = node.attrs.get("mode", "constant")
    if mode == "constant":
        return _lower_constant_pad(node)
    if mode not in _PAD_MODES:
        return f"AxisMap does not pad by {mode!r}"
    return _mapped(node, _PAD_MODES[str(mode)], _pads(node, "pad"))


def _lower_padding(node: OpNode, mode: int) -> Lowered:
    return _mapped(node, mode, _pads(node, "padding"))


def _lower_repeat_elements(node: OpNode) -> Lowered:
    """Return the ops of ``repeat_interleave``: a copy that broadcasts along a new axis."""
    (source,), (output,) = node.inputs, node.outputs
    if tensor_type(output).strides is not None:
        return f"repeated elements are contiguous, not {output.type}"
    ops: list[BackendOp] = []
    operand: Operand = source
    shape, strides = tensor_type(source).static_shape, tensor_type(source).static_strides
    if node.attrs.get("dim") is None:
        operand = expanded(node, ops, source, shape)
        shape, strides = (math.prod(shape),), (1,)
    dtype, axis = tensor_type(source).dtype, positive(axis_of(node), len(shape)) + 1
    first, last = shape[:axis], shape[axis:]
    type = TensorType((*first, 1, *last), dtype, (*strides[:axis], 1, *strides[axis:]))
    single = Temporary(f"{node.name}.single", type)
    whole = Temporary(f"{node.name}.whole", TensorType((*first, integer_of(node, "repeats"), *last), dtype))
    copy = BackendOp("Copy", (single,), (whole,), (node,))
    return [*ops, view_of(node, operand, (single,), [0]), copy, view_of(node, whole, (output,), [0])]


def _lower_triangle(node: OpNode, upper: int) -> Lowered:
    diagonal = integer_of(node, "diagonal", 0)
    return make_contiguous_op(node, "Triangle", node.inputs, diagonal=diagonal, upper=upper)


# ---- sorting ----


def _lower_sort(node: OpNode) -> Lowered:
    descending = int(bool(node.attrs.get("descending")))
    return make_contiguous_op(node, "Sort", node.inputs, axis=axis_of(node, -1), descending=descending)


def _lower_top(node: OpNode) -> Lowered:
    largest, in_order = (int(node.attrs.get(name) is not False) for name in ("largest", "sorted"))
    axis = axis_of(node, -1)
    return make_contiguous_op(node, "TopK", node.inputs, axis=axis, largest=largest, sorted=in_order)


# ---- new tensors ----


def _lower_one_hot(node: OpNode) -> Lowered:
    if integer_of(node, "num_classes", -1) < 0:
        return "OneHot takes a number of classes, not one that depends on the elements"
    return make_contiguous_op(node, "OneHot", node.inputs)


def _lower_arange(node: OpNode) -> Lowered:
    bounds: dict[str, Any] = {"start": node.attrs.get("start", 0), "step": node.attrs.get("step", 1)}
    for name, value in bounds.items():
        if (reason := refused_number(node, "Arange", name, value)) is not None:
            return reason
    return make_contiguous_op(node, "Arange", (), start=float(bounds["start"]), step=float(bounds["step"]))


def _lower_full(node: OpNode, value: float | None = None) -> Lowered:
    number: Any = node.attrs["fill_value"] if value is None else value
    if (reason := refused_number(node, "Fill", "fill_value", number)) is not None:
        return reason
    return [make_op(node, "Fill", (), node.outputs, value=float(number))]


_ALONG_AXIS: Mapping[str, Rule] = {
    "index_select.default": functools.partial(_lower_along_axis, kind="IndexSelect"),
    "gather.default": functools.partial(_lower_along_axis, kind="Gather"),
    "scatter.src": functools.partial(_lower_along_axis, kind="Scatter"),
    "scatter_add.default": _lower_scatter_add,
}
_FILLED: Mapping[str, Rule] = {
    f"{prefix}{name}.default": functools.partial(_lower_full, value=value)
    for prefix in ("", "new_")
    for name, value in (("full", None), ("zeros", 0), ("ones", 1))
}
_PAD_MODES = {"reflect": _REFLECT, "replicate": _CLAMP}
_PADDED: Mapping[str, Rule] = {
    f"{name}_pad{rank}d.default": functools.partial(_lower_padding, mode=mode)
    for name, mode in (("reflection", _REFLECT), ("replication", _CLAMP))
    for rank in (1, 2, 3)
}
_SINGLE: Mapping[str, Rule] = {
    **_ALONG_AXIS,
    **_FILLED,
    **_PADDED,
    "embedding.default": _lower_embedding,
    "embedding_dense_backward.default": _lower_embedding_backward,
    "scatter.value": _lower_scatter_value,
    "index.Tensor": _lower_index,
    "index_put.default": _lower_index_put,
    "index_copy.default": functools.partial(_lower_index_write, accumulate=0),
    "index_add.default": functools.partial(_lower_index_write, accumulate=1),
    "cat.default": _lower_cat,
    "stack.default": _lower_cat,
    "slice_copy.Tensor": _lower_slice_copy,
    "slice_scatter.default": _lower_slice_scatter,
    "select_scatter.default": _lower_select_scatter,
    "constant_pad_nd.default": _lower_constant_pad,
    "pad.default": _lower_pad,
    "flip.default": _lower_flip,
    "roll.default": _lower_roll,
    "repeat.default": _lower_repeat,
    "repeat_interleave.self_int": _lower_repeat_elements,
    "tril.default": functools.partial(_lower_triangle, upper=0),
    "triu.default": functools.partial(_lower_triangle, upper=1),
    "sort.default": _lower_sort,
    "sort.stable": _lower_sort,
    "topk.default": _lower_top,
    "one_hot.default": _lower_one_hot,
    **{f"arange.{overload}": _lower_arange for overload in ("default", "start", "start_step")},
}

INDEX_RULES: Mapping[str, tuple[Rule, ...]] = {f"aten.{name}": (rule,) for name, rule in _SINGLE.items()}

"""Canonical form of a call: one op for each set of synonyms, and one spelling of its arguments."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Expr, OpNode, TensorType, Value
from npu_ir.core.literals import Literal, same_literal
from npu_ir.ops.schema import find_op
from npu_passes.rewriting.arguments import arguments_of, defaults_of
from npu_passes.rewriting.axes import PERMUTING, permutation

_RESHAPE = "aten.reshape.default"
_PERMUTE = "aten.permute.default"
_EXPAND = "aten.expand.default"
_EXPANDING = ("aten.expand_as.default", "aten.broadcast_to.default")
# By op that changes only the shape: the argument with the new shape, if it has one.
_RESHAPING: Mapping[str, str | None] = {
    _RESHAPE: "shape",
    "aten.view.default": "size",
    "aten._unsafe_view.default": "size",
    "aten.flatten.using_ints": None,
    "aten.unflatten.int": None,
    "aten.view_as.default": None,
    "aten.reshape_as.default": None,
}
# Only these ops accept a number in place of a tensor (``should_allow_numbers_as_tensors``, torch 2.13); their
# results are bitwise equal.
_OF_TENSORS: Mapping[str, str] = {
    "aten.add.Scalar": "aten.add.Tensor",
    "aten.sub.Scalar": "aten.sub.Tensor",
    "aten.mul.Scalar": "aten.mul.Tensor",
    "aten.div.Scalar": "aten.div.Tensor",
    "aten.div.Scalar_mode": "aten.div.Tensor_mode",
    "aten.floor_divide.Scalar": "aten.floor_divide.default",
    "aten.true_divide.Scalar": "aten.div.Tensor",
    "aten.true_divide.Tensor": "aten.div.Tensor",
}


@dataclass(frozen=True, slots=True)
class Call:
    """Call of an op, with its arguments by name."""

    rule: str
    op_type: str
    arguments: Mapping[str, Any]


def canonical_call(node: OpNode) -> Call | None:
    """Return the call to replace ``node`` by; None if its op is canonical."""
    op_type = node.op_type
    if op_type in _OF_TENSORS:
        return Call("overload", _OF_TENSORS[op_type], arguments_of(node))
    if not (node.inputs and _is_strided(node.inputs[0])):
        return None
    if op_type in _RESHAPING:
        return _reshape(node)
    if op_type in _EXPANDING:
        return _expand(node)
    if op_type in PERMUTING and op_type != _PERMUTE and not op_type.split(".")[1].endswith("_copy"):
        axes = permutation(node)
        assert axes is not None
        return Call("permute", _PERMUTE, {"self": node.inputs[0], "dims": list(axes)})
    return None


def _is_strided(value: Value) -> bool:
    return isinstance(value.type, TensorType) and value.type.layout is torch.strided


def _reshape(node: OpNode) -> Call | None:
    shape = _literal_shape(node.outputs[0])
    if shape is None:
        argument = _RESHAPING[node.op_type]
        if argument is None or node.op_type == _RESHAPE:
            return None
        shape = arguments_of(node)[argument]
    if node.op_type == _RESHAPE and len(node.inputs) == 1 and node.attrs["shape"] == shape:
        return None
    return Call("reshape", _RESHAPE, {"self": node.inputs[0], "shape": shape})


def _expand(node: OpNode) -> Call | None:
    old_shape, new_shape = node.inputs[0].tensor_type.shape, node.outputs[0].tensor_type.shape
    old_shape = (1,) * (len(new_shape) - len(old_shape)) + old_shape
    # -1 keeps the size of an axis.
    plain = [size if isinstance(size, int) else -1 for size in new_shape]
    if any(size == -1 and old != new for size, old, new in zip(plain, old_shape, new_shape, strict=True)):
        return None
    return Call("expand", _EXPAND, {"self": node.inputs[0], "size": plain})


def _literal_shape(made: Value) -> list[int] | None:
    """Return a shape as literals, with -1 for a dynamic size; None if that is ambiguous."""
    assert isinstance(made.type, TensorType)
    shape = [-1 if isinstance(size, Expr) else size for size in made.type.shape]
    return None if shape.count(-1) > 1 or (-1 in shape and math.prod(shape) == 0) else shape


# ATen ops with arguments that are axes of their first input.
_AXES_OF_INPUT = frozenset(
    """
    _log_softmax _softmax all amax amin aminmax any argmax argmin argsort chunk count_nonzero cummax
    cummin cumprod cumsum diagonal flatten flip gather glu index_add index_copy index_fill index_reduce
    index_select kthvalue linalg_vector_norm log_softmax logcumsumexp logsumexp max mean median min mode
    narrow nanmean nansum norm permute prod scatter scatter_add scatter_reduce select select_scatter size
    slice slice_scatter softmax sort split split_with_sizes squeeze std std_mean sum sym_size sym_stride
    tensor_split topk transpose unbind unflatten unfold var var_mean
    """.split()  # noqa: SIM905 - a name to a line would fill a page
)
_AXES_OF_OUTPUT = frozenset(("cat", "concat", "concatenate", "stack", "unsqueeze"))
_AXIS_ARGUMENTS = frozenset(("dim", "dim0", "dim1", "dim2", "dimension", "dims", "end_dim", "start_dim"))
_TYPED = frozenset(f"aten.{name}.Tensor" for name in ("add", "sub", "mul", "div"))
_LARGEST_EXACT = 1 << 53  # float64 represents every integer up to this one


def canonical_attrs(node: OpNode) -> dict[str, Literal] | None:
    """Return the canonical attributes of a node; None if it has them, or its arguments are unknown."""
    op = find_op(node.op_type) if node.attrs and node.operands is not None else None
    if op is None:
        return None
    given = node.attrs
    attrs = {name: _canonical(node, name, item) for name, item in given.items()}
    for name, item in defaults_of(op).items():
        if name in attrs and same_literal(attrs[name], _canonical(node, name, item)):
            del attrs[name]
    same = attrs.keys() == given.keys() and all(
        item is given[name] or same_literal(item, given[name]) for name, item in attrs.items()
    )
    return None if same else attrs


def _canonical(node: OpNode, name: str, item: Literal) -> Literal:
    if name in _AXIS_ARGUMENTS:
        rank = _rank_of_axes(node)
        return item if rank is None else _nonnegative_axis(item, rank)
    if name == "other" and node.op_type in _TYPED and type(item) is int and abs(item) <= _LARGEST_EXACT:
        type_ = node.inputs[0].type
        return float(item) if isinstance(type_, TensorType) and type_.dtype.is_floating_point else item
    return item


def _rank_of_axes(node: OpNode) -> int | None:
    """Return the rank that the axis arguments of a node refer to; None if it has none."""
    namespace, name, _ = (*node.op_type.split("."), "", "")[:3]
    is_of_input = name in _AXES_OF_INPUT
    if namespace != "aten" or not node.inputs or not (is_of_input or name in _AXES_OF_OUTPUT):
        return None
    type = (node.inputs if is_of_input else node.outputs)[0].type
    return type.rank if isinstance(type, TensorType) else None


def _nonnegative_axis(item: Literal, rank: int) -> Literal:
    """Return an axis, or a list of axes, with negative ones made non-negative."""
    if isinstance(item, list):
        return [_nonnegative_axis(axis, rank) for axis in item]
    return item + rank if type(item) is int and -rank <= item < 0 else item

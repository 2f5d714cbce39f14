"""Canonical arguments of a call."""

from __future__ import annotations

from npu_ir import OpNode, TensorType
from npu_ir.core.literals import Literal, same_literal
from npu_ir.ops.schema import find_op
from npu_passes.rewriting.arguments import defaults_of

# ATen ops with arguments that are axes of their first input.
_AXES_OF_INPUT = frozenset(
    (
        "_log_softmax",
        "_softmax",
        "all",
        "amax",
        "amin",
        "aminmax",
        "any",
        "argmax",
        "argmin",
        "argsort",
        "chunk",
        "count_nonzero",
        "cummax",
        "cummin",
        "cumprod",
        "cumsum",
        "diagonal",
        "flatten",
        "flip",
        "gather",
        "glu",
        "index_add",
        "index_copy",
        "index_fill",
        "index_reduce",
        "index_select",
        "kthvalue",
        "linalg_vector_norm",
        "log_softmax",
        "logcumsumexp",
        "logsumexp",
        "max",
        "mean",
        "median",
        "min",
        "mode",
        "narrow",
        "nanmean",
        "nansum",
        "norm",
        "permute",
        "prod",
        "scatter",
        "scatter_add",
        "scatter_reduce",
        "select",
        "select_scatter",
        "size",
        "slice",
        "slice_scatter",
        "softmax",
        "sort",
        "split",
        "split_with_sizes",
        "squeeze",
        "std",
        "std_mean",
        "sum",
        "sym_size",
        "sym_stride",
        "tensor_split",
        "topk",
        "transpose",
        "unbind",
        "unflatten",
        "unfold",
        "var",
        "var_mean",
    )
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
    attrs = {name: _canonical(node, name, item) for name, item in node.attrs.items()}
    for name, item in defaults_of(op).items():
        if name in attrs and same_literal(attrs[name], _canonical(node, name, item)):
            del attrs[name]
    same = attrs.keys() == node.attrs.keys() and all(
        same_literal(attrs[name], node.attrs[name]) for name in attrs
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
    if namespace != "aten" or not node.inputs or name not in _AXES_OF_INPUT | _AXES_OF_OUTPUT:
        return None
    type = (node.inputs if name in _AXES_OF_INPUT else node.outputs)[0].type
    return type.rank if isinstance(type, TensorType) else None


def _nonnegative_axis(item: Literal, rank: int) -> Literal:
    """Return an axis, or a list of axes, with negative ones made non-negative."""
    if isinstance(item, list):
        return [_nonnegative_axis(axis, rank) for axis in item]
    return item + rank if type(item) is int and -rank <= item < 0 else item

"""Rules of reductions: the axes of a node become a mask of bits, whatever form its argument has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from npu_cuda.backend.op_builder import Lowered, Rule, make_op
from npu_ir import OpNode, TensorType
from npu_ir.plugins.backend import BackendOp, Temporary


@dataclass(frozen=True, slots=True)
class ReductionRule:
    """The native op of a node that reduces axes.

    Attributes:
        kind: Its name in the registry.
        numbers: Returns the fields of its attributes but for the axes.
        none_is_all: An empty list of axes stands for all.
    """

    kind: str
    numbers: Callable[[OpNode], Mapping[str, float]] = lambda _: {}
    none_is_all: bool = True

    def __call__(self, node: OpNode) -> Lowered:
        axes = _axes_of(node, none_is_all=self.none_is_all)
        if isinstance(axes, str):
            return f"{self.kind} {axes}"
        reason = _narrowed(node)
        if reason is not None:
            return reason
        (x,), (y,) = node.inputs, node.outputs
        return [make_op(node, self.kind, (x,), (y,), axes=axes, **self.numbers(node))]


def _axes_of(node: OpNode, *, none_is_all: bool = True) -> int | str:
    """Return the mask of the reduced axes, 0 for all, or why there is none."""
    dim = node.attrs.get("dim")
    x = node.inputs[0].type
    assert isinstance(x, TensorType)
    if dim is None:
        return 0
    axes = [dim] if isinstance(dim, int) else dim
    assert isinstance(axes, Sequence)
    if not axes:
        return 0 if none_is_all else "reduces one axis or more"
    rank = max(x.rank, 1)
    if not all(-rank <= axis < rank for axis in axes):
        return f"takes axes of {x}, not {dim!r}"
    return sum(1 << axis % rank for axis in {axis % rank for axis in axes}) if x.rank else 0


def _narrowed(node: OpNode) -> str | None:
    """Return why PyTorch would round the input before it is reduced."""
    (x, y) = (value.type for value in (node.inputs[0], node.outputs[0]))
    assert isinstance(x, TensorType)
    assert isinstance(y, TensorType)
    is_narrow = (
        x.dtype.is_floating_point and y.dtype.is_floating_point and y.dtype.itemsize < x.dtype.itemsize
    )
    swaps = {x.dtype, y.dtype} == {torch.float16, torch.bfloat16}
    if node.attrs.get("dtype") is None or not (is_narrow or swaps):
        return None
    return f"{x.dtype} is rounded to {y.dtype} before it is reduced"


def _correction(node: OpNode) -> Mapping[str, float]:
    """Return what is subtracted from the count of elements: 1, unless it is given."""
    value: Any = node.attrs.get("correction", node.attrs.get("unbiased"))
    return {"correction": 1.0 if value is None else float(value)}


_NORMS = {0.0: "NormZero", 1.0: "NormOne", 2.0: "NormTwo", math.inf: "NormMax", -math.inf: "NormMin"}


def _lower_norm(node: OpNode) -> Lowered:
    order: Any = node.attrs.get("ord", 2)
    if float(order) in _NORMS:
        return ReductionRule(_NORMS[float(order)])(node)
    return ReductionRule("NormPower", lambda _: {"power": float(order)})(node)


def _lower_extremes(value_kind: str, place_kind: str) -> Rule:
    """Return the rule of the extremes along an axis and their places."""

    def lower(node: OpNode) -> Lowered:
        (x,), (values, places) = node.inputs, node.outputs
        axes = _axes_of(node)
        if isinstance(axes, str):
            return f"{value_kind} {axes}"
        return [
            make_op(node, value_kind, (x,), (values,), axes=axes),
            make_op(node, place_kind, (x,), (places,), axes=axes),
        ]

    return lower


def _lower_cumsum(node: OpNode) -> Lowered:
    axis: Any = node.attrs["dim"]
    (x,), (y,) = node.inputs, node.outputs
    return _narrowed(node) or [make_op(node, "Cumsum", (x,), (y,), axis=axis)]


def lower_adaptive_average(node: OpNode) -> Lowered:
    """Return the mean over the last axes: an average pooling to one element."""
    sizes: Any = node.attrs["output_size"]
    sizes = [sizes] if isinstance(sizes, int) else sizes
    if set(sizes) != {1}:
        return f"an adaptive average is that of all elements, not output_size={node.attrs['output_size']!r}"
    (x,), (y,) = node.inputs, node.outputs
    rank = x.tensor_type.rank
    axes = sum(1 << axis for axis in range(rank - len(sizes), rank))
    return [make_op(node, "Mean", (x,), (y,), axes=axes)]


def lower_mse_loss(node: OpNode) -> Lowered:
    """Return the squared errors of two tensors, and their mean or sum."""
    reduction: Any = node.attrs.get("reduction", 1)
    kind = {1: "Mean", 2: "Sum"}.get(reduction)
    if kind is None:
        return f"a loss is a mean or a sum, not reduction={reduction!r}"
    if node.inputs[0].type != node.inputs[1].type:
        return "a loss is that of two tensors of one type"
    errors = Temporary(f"{node.name}.errors", node.inputs[0].tensor_type)
    squares = BackendOp("SquaredError", node.inputs, (errors,), (node,))
    return [squares, make_op(node, kind, (errors,), (node.outputs[0],), axes=0)]


_OVER_ANY_AXES = {
    "sum.default": "Sum", "sum.dim_IntList": "Sum", "mean.default": "Mean", "mean.dim": "Mean",
    "amax.default": "Amax", "amin.default": "Amin", "max.default": "Amax", "min.default": "Amin",
    "prod.default": "Prod", "prod.dim_int": "Prod", "any.default": "Any", "any.dim": "Any",
    "all.default": "All", "all.dim": "All", "argmax.default": "Argmax", "argmin.default": "Argmin",
}  # fmt: skip
_OVER_SOME_AXES = {"any.dims": "Any", "all.dims": "All", "logsumexp.default": "LogSumExp"}

REDUCTION_RULES: Mapping[str, tuple[Rule, ...]] = {
    **{f"aten.{name}": (ReductionRule(kind),) for name, kind in _OVER_ANY_AXES.items()},
    **{f"aten.{name}": (ReductionRule(kind, none_is_all=False),) for name, kind in _OVER_SOME_AXES.items()},
    **{
        f"aten.{name}.{overload}": (ReductionRule(kind, _correction),)
        for name, kind in (("var", "Var"), ("std", "Std"))
        for overload in ("default", "dim", "correction")
    },
    "aten.linalg_vector_norm.default": (_lower_norm,),
    "aten.max.dim": (_lower_extremes("Amax", "Argmax"),),
    "aten.min.dim": (_lower_extremes("Amin", "Argmin"),),
    "aten.cumsum.default": (_lower_cumsum,),
}

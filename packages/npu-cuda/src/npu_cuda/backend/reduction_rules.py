"""Rules of reductions: the axes of a node become a mask of bits, whatever form its argument has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch

from npu_cuda import _C
from npu_cuda.backend.pointwise_rules import Pack
from npu_ir import OpNode, TensorType
from npu_ir.plugins.backend import BackendOp, Operand, Temporary

_OF_THE_AXES = {"self", "dim", "keepdim", "dtype"}


@dataclass(frozen=True, slots=True)
class ReductionRule:
    """The native op of a node that reduces axes.

    Attributes:
        kind: Its name in the registry.
        numbers: Returns the fields of its attributes but for the axes, or why it does not compute the node.
        arguments: The arguments of the node that ``numbers`` looks at.
        none_is_all: An empty list of axes stands for all.
    """

    kind: str
    numbers: Callable[[OpNode], Mapping[str, float] | str] = lambda _: {}
    arguments: frozenset[str] = frozenset()
    none_is_all: bool = True

    def __call__(self, node: OpNode, pack: Pack) -> list[BackendOp] | str:
        if len(node.inputs) != 1 or len(node.outputs) != 1:
            return f"{self.kind} takes one tensor"
        (x,), numbers = node.inputs, self.numbers(node)
        if isinstance(numbers, str):
            return numbers
        axes = _axes_of(node, none_is_all=self.none_is_all)
        if isinstance(axes, str):
            return f"{self.kind} {axes}"
        reason = _further_arguments(node, self.kind, self.arguments) or _narrowed(node)
        if reason is not None:
            return reason
        return [_reduction(self.kind, x, node.outputs[0], node, pack, axes=axes, **numbers)]


def _reduction(kind: str, x: Operand, y: Operand, node: OpNode, pack: Pack, /, **attrs: float) -> BackendOp:
    schema = next(info["schema"] for info in _C.ops() if info["name"] == kind)
    schema_id, packed = pack(schema, **attrs)
    return BackendOp(kind, (x,), (y,), (node,), schema_id=schema_id, attrs=packed)


def _axes_of(node: OpNode, *, none_is_all: bool = True) -> int | str:
    """Return the mask of the reduced axes, 0 for all, or why there is none."""
    dim = node.attrs.get("dim")
    x = node.inputs[0].type
    assert isinstance(x, TensorType)
    if dim is None:
        return 0
    axes = [dim] if isinstance(dim, int) else dim
    if not isinstance(axes, Sequence) or not all(type(axis) is int for axis in axes):
        return f"takes axes as integers, not {dim!r}"
    if not axes:
        return 0 if none_is_all else "reduces one axis or more"
    rank = max(x.rank, 1)
    if not all(-rank <= axis < rank for axis in axes):
        return f"takes axes of {x}, not {dim!r}"
    return sum(1 << axis % rank for axis in {axis % rank for axis in axes}) if x.rank else 0


def _further_arguments(node: OpNode, kind: str, known: frozenset[str]) -> str | None:
    for name, value in node.attrs.items():
        if name not in _OF_THE_AXES and name not in known and value is not None:
            return f"{kind} takes no {name}={value!r}"
    return None


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


def _correction(node: OpNode) -> Mapping[str, float] | str:
    """Return what is subtracted from the count of elements: 1, unless it is given."""
    value = node.attrs.get("correction", node.attrs.get("unbiased", True))
    if value is None:
        return {"correction": 1.0}
    if not isinstance(value, (int, float)):
        return f"a correction is a real number, not {value!r}"
    return {"correction": float(value)}


_NORMS = {0.0: "NormZero", 1.0: "NormOne", 2.0: "NormTwo", math.inf: "NormMax", -math.inf: "NormMin"}


def _lower_norm(node: OpNode, pack: Pack) -> list[BackendOp] | str:
    order = node.attrs.get("ord", 2)
    if isinstance(order, bool) or not isinstance(order, (int, float)) or math.isnan(order):
        return f"a norm has a real order, not {order!r}"
    kind = _NORMS.get(float(order), "NormPower")
    power = {"power": float(order)} if kind == "NormPower" else {}
    return ReductionRule(kind, lambda _: power, frozenset({"ord"}))(node, pack)


def lower_mse_loss(node: OpNode, pack: Pack) -> list[BackendOp] | str:
    """Return the squared errors of two tensors, and their mean or sum."""
    kind = {1: "Mean", 2: "Sum"}.get(node.attrs.get("reduction", 1))  # type: ignore[call-overload]
    if kind is None:
        return f"a loss is a mean or a sum, not reduction={node.attrs['reduction']!r}"
    if len(node.inputs) != 2 or node.inputs[0].type != node.inputs[1].type:
        return "the loss of two tensors of one type"
    errors = Temporary(f"{node.name}.errors", node.inputs[0].tensor_type)
    squares = BackendOp("SquaredError", node.inputs, (errors,), (node,))
    return [squares, _reduction(kind, errors, node.outputs[0], node, pack, axes=0)]


_UNBIASED = frozenset({"correction", "unbiased"})
_OVER_ANY_AXES = {
    "sum.default": "Sum", "sum.dim_IntList": "Sum", "mean.default": "Mean", "mean.dim": "Mean",
    "amax.default": "Amax", "amin.default": "Amin", "max.default": "Amax", "min.default": "Amin",
    "prod.default": "Prod", "prod.dim_int": "Prod", "any.default": "Any", "any.dim": "Any",
    "all.default": "All", "all.dim": "All",
}  # fmt: skip
_OVER_SOME_AXES = {"any.dims": "Any", "all.dims": "All", "logsumexp.default": "LogSumExp"}

REDUCTION_RULES: Mapping[str, tuple[Callable[[OpNode, Pack], list[BackendOp] | str], ...]] = {
    **{f"aten.{name}": (ReductionRule(kind),) for name, kind in _OVER_ANY_AXES.items()},
    **{f"aten.{name}": (ReductionRule(kind, none_is_all=False),) for name, kind in _OVER_SOME_AXES.items()},
    **{
        f"aten.{name}.{overload}": (ReductionRule(kind, _correction, _UNBIASED),)
        for name, kind in (("var", "Var"), ("std", "Std"))
        for overload in ("default", "dim", "correction")
    },
    "aten.linalg_vector_norm.default": (_lower_norm,),
}

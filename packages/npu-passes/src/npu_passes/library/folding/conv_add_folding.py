"""Fold per-channel sums and products into the convolutions and linear layers in front of them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_passes.core.base import Pass, within
from npu_passes.core.edit import Edit
from npu_passes.library.folding.output_channels import (
    Affine,
    ChannelOp,
    Term,
    channel_op,
    fold,
    fold_problems,
    to_float64,
    unknown_reason,
)
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.weight_dependence import Weights

_KINDS = {
    f"aten.{kind}.{overload}": kind
    for kind in ("add", "sub", "rsub", "mul", "div")
    for overload in ("Tensor", "Scalar")
}
_BROADCASTS = ("aten.expand.default", "aten.expand_as.default", "aten.broadcast_to.default")


@dataclass(frozen=True, slots=True)
class _Side:
    """Operands of a node, one of them the output of a convolution."""

    op: ChannelOp  # the convolution
    kind: str  # the arithmetic: ``add``, ``sub``, ``rsub``, ``mul`` or ``div``
    other: Any  # the other operand: a value, or a number
    is_self: bool  # whether the convolution is the first operand
    alpha: Any  # the factor of the second operand; of ``rsub`` that of the first


class ConvAddFolding(Pass):
    """Fold ``conv(x) + z``, ``- z``, ``* z``, ``/ z``, ``z + conv(x)``, ``z - conv(x)`` and ``z * conv(x)``.

    Linear layers, likewise. ``z`` is a number, or a weight with one element per output channel or one for
    all channels: aligned at the last axis as in broadcasting, all its axes but that of the channels have
    size 1. So ``[C, 1, 1]`` fits the output ``[N, C, H, W]`` of a convolution, and ``[C]`` does not: it is
    added along the width. Weights that are expanded to the output's shape fit, too.

    Nodes compute the new weight and bias in float64; a bias is added if there was none. `constant-folding`
    moves these nodes into the prologue, so they run when weights are bound.

    Not folded are operands that change shape, dtype or layout of the result, that depend on the call or are
    updated by it; convolutions whose output is used elsewhere; numbers that are not finite; and factors
    that are very large or small for the dtype.

    The new weights have the dtype of the old ones: in float16 they may overflow where the results do not,
    and a factor that is 0 or infinite in a weight meets weights that are infinite or 0. Without data
    neither can be detected.
    """

    name = "conv-add-folding"
    is_idempotent = True
    numerics = within(1e-5)
    before = ("constant-folding",)

    def run(self, graph: Graph) -> bool:
        changed = False
        weights = Weights(graph)
        for node in graph.nodes_of(*_KINDS):
            if node.in_prologue:
                continue
            sides = [side for side in _sides(node) if _is_candidate(side, weights)]
            problems = [next(_problems(graph, side, node, weights), None) for side in sides]
            if None in problems:
                side = sides[problems.index(None)]
                with self.rewrite(graph, f"conv-{side.kind}", side.op.node, node) as edit:
                    edit.replace(node.outputs[0], fold(edit, side.op, _affine(edit, side), weights))
                changed = True
            elif problems:
                self.refuse(node, problems[0] or "", rule="conv-add")
        return changed


def _sides(node: OpNode) -> Iterator[_Side]:
    """Yield a side for each operand that is the output of a convolution or linear layer."""
    operators = {value: channel_op(value) for value in node.inputs}
    if not any(operators.values()):
        return
    arguments = arguments_of(node, defaults=True)
    for name, other in (("self", "other"), ("other", "self")):
        operand = arguments[name]
        op = operators[operand] if isinstance(operand, Value) else None
        if op is not None:
            yield _Side(op, _KINDS[node.op_type], arguments[other], name == "self", arguments.get("alpha", 1))


def _is_candidate(side: _Side, weights: Weights) -> bool:
    """Return whether the other operand may be foldable; an activation, as in a residual sum, is not."""
    if not isinstance(side.other, Value):
        return True
    other = _strip_expands(side.other)
    return _is_per_channel(side.op, other) or other in weights


def _problems(graph: Graph, side: _Side, node: OpNode, weights: Weights) -> Iterator[str]:
    """Yield the reasons why a node cannot be folded into the convolution."""
    yield from fold_problems(graph, side.op, node.outputs[0], weights)
    if side.kind == "div" and not side.is_self:
        yield "it divides by the output of the convolution"
    if isinstance(side.alpha, Value):
        yield f"its alpha is not a plain number: {unknown_reason(graph, side.alpha)}"
        return
    numbers = [side.alpha] if isinstance(side.other, Value) else [side.alpha, side.other]
    yield from (f"the number {number} is not finite" for number in numbers if not math.isfinite(number))
    factor = side.alpha
    if isinstance(side.other, Value):
        yield from _operand_problems(graph, side.op, _strip_expands(side.other), weights)
    elif side.kind in ("mul", "div"):
        factor = side.other
    # The square root leaves as much of the exponent range to the weights as to the factor.
    limit = math.sqrt(torch.finfo(side.op.type.dtype).max)
    if not 1 / limit <= abs(factor) <= limit:
        yield f"a factor of {factor} may take the weights out of the range of {side.op.type}"


def _operand_problems(graph: Graph, op: ChannelOp, other: Value, weights: Weights) -> Iterator[str]:
    if not isinstance(other.type, TensorType) or other not in weights:
        yield f"{unknown_reason(graph, other)}, and only weights can be folded"
    elif not _is_per_channel(op, other):
        yield f"%{other.name} is {other.type}, which is not one number for each channel of {op.type}"


def _is_per_channel(op: ChannelOp, other: Value) -> bool:
    """Return whether a value has one element per output channel, or one for all of them."""
    if not isinstance(other.type, TensorType):
        return True
    shape, rank = other.type.shape, op.type.rank
    aligned = (1,) * (rank - len(shape)) + shape
    expected = (1,) * op.axis + (op.channels,) + (1,) * (rank - op.axis - 1)
    return len(shape) <= rank and aligned in (expected, (1,) * rank)


def _strip_expands(value: Value) -> Value:
    """Return the tensor behind the expansions of a value."""
    while value.producer is not None and value.producer.op_type in _BROADCASTS:
        value = value.producer.inputs[0]
    return value


def _affine(edit: Edit, side: _Side) -> Affine:
    """Return the per-channel affine function that the node computes."""
    other: Term = (
        _flatten(edit, _strip_expands(side.other)) if isinstance(side.other, Value) else float(side.other)
    )
    if side.kind == "mul":
        return Affine(other)
    if side.kind == "div":
        inverse = edit.call("aten.reciprocal.default", other) if isinstance(other, Value) else 1 / other
        return Affine(inverse)
    # The factors of both operands; rsub is other - alpha * self.
    of_self, of_other = {
        "add": (1, side.alpha),
        "sub": (1, -side.alpha),
        "rsub": (-side.alpha, 1),
    }[side.kind]
    factor, share = (of_self, of_other) if side.is_self else (of_other, of_self)
    if share != 1:
        other = edit.call("aten.mul.Tensor", other, share) if isinstance(other, Value) else other * share
    return Affine(None if factor == 1 else float(factor), shift=other)


def _flatten(edit: Edit, value: Value) -> Value:
    wide = to_float64(edit, value)
    return edit.call("aten.reshape.default", wide, [-1])

"""Fusion of a residual sum with the norm after it."""

from __future__ import annotations

from typing import Any

import torch

from npu_ir import Graph, OpNode, Value
from npu_passes.core.base import within
from npu_passes.core.edit import Edit, merge_provenance
from npu_passes.ops.fused import ADD_LAYER_NORM, ADD_RMS_NORM
from npu_passes.patterns import Match, PatternPass, Rule, aten, attr, commutative, one_of, shared, var
from npu_passes.patterns.terms import Call, Term
from npu_passes.rewriting.arguments import arguments_of
from npu_passes.rewriting.value_replacement import equals_up_to_strides, match_strides

_NORMS = {"aten.layer_norm.default": ADD_LAYER_NORM, "aten.rms_norm.default": ADD_RMS_NORM}
_ARGUMENTS = ("normalized_shape", "weight", "bias", "eps")
_RULE = "add-norm"


def _maybe_cast(term: Term, name: str) -> Term:
    """Return a pattern for a term or a cast of it; ``name`` is bound to the dtype."""
    return one_of(aten.to.dtype(term, attr(name)), aten._to_copy.default(term, dtype=attr(name)), term)


def _rms_norm_pattern() -> Call:
    """Return the pattern of a decomposed RMS norm, with or without casts around its computation."""
    x = var("input")
    # Other nodes may read the cast: models add the input to the residual in the wider dtype, too.
    wide = one_of(
        *(shared(item) if isinstance(item, Call) else item for item in _maybe_cast(x, "wide").options)
    )
    squared = one_of(aten.pow.Tensor_Scalar(wide, 2), aten.mul.Tensor(wide, wide))
    scale = aten.rsqrt.default(aten.add.Tensor(aten.mean.dim(squared, attr("dims"), True), attr("eps")))
    normed = _maybe_cast(commutative(aten.mul.Tensor(wide, scale)), "narrow")
    return commutative(aten.mul.Tensor(var("weight"), normed))


def _rms_norm(edit: Edit, match: Match) -> Value:
    size = match["weight"].tensor_type.shape[0]
    return edit.call("aten.rms_norm.default", match["input"], [size], match["weight"], match["eps"])


def _rms_norm_problem(match: Match) -> str | None:
    """Return the reason why a match is not an RMS norm; None if it is one."""
    x, weight, result = (
        item.tensor_type for item in (match["input"], match["weight"], match.root.outputs[0])
    )
    if not isinstance(match["eps"], float) or not x.dtype.is_floating_point:
        return "eps is not a float, or the input is not a floating-point tensor"
    if [axis % x.rank for axis in match["dims"] or ()] != [x.rank - 1]:
        return f"the mean is over the axes {match['dims']}, not over the last one"
    if weight.rank != 1 or weight.shape != x.shape[-1:]:
        return f"the weight is {weight}, the input {x}"
    if not weight.dtype == x.dtype == result.dtype:
        return f"the input, the weight and the result differ in dtype: {x}, {weight}, {result}"
    wide, narrow = match["wide"] or x.dtype, match["narrow"] or x.dtype
    if narrow != x.dtype:
        return f"it is rounded to {narrow}"
    if torch.promote_types(wide, x.dtype) != wide:
        return f"it is computed in {wide}, which is less than {x.dtype}"
    return None


class FuseAddNorm(PatternPass):
    """Fuse ``norm(x + residual)`` into ``npu::add_layer_norm`` or ``npu::add_rms_norm``.

    These ops return the sum, too.

    1. ``aten.layer_norm`` and ``aten.rms_norm`` over a sum of two tensors of one type; the sum may have other
       readers.
    2. A decomposed RMS norm, as in the models of `transformers`, becomes ``aten.rms_norm`` first, also
       without a sum in front of it. In half precision that rounds once where these models round twice.
    """

    name = "fuse-add-norm"
    numerics = within(1e-5)
    rules = (Rule("rms-norm", _rms_norm_pattern(), _rms_norm, _rms_norm_problem),)

    def run(self, graph: Graph) -> bool:
        """Fuse decomposed norms, then sums with norms."""
        edited = super().run(graph)
        for node in graph.nodes_of(*_NORMS):
            if not node.in_prologue:
                edited |= self._fuse(graph, node)
        return edited

    def _fuse(self, graph: Graph, norm: OpNode) -> bool:
        arguments = arguments_of(norm, defaults=True)
        add = arguments["input"].producer
        if add is None or add.op_type != "aten.add.Tensor" or add.in_prologue:
            return False
        total = add.outputs[0]
        # Other nodes may read the sum before the norm does: then the fused op takes the place of the sum.
        is_at_sum = total.use_count > 1
        reason = (
            _sum_problem(arguments_of(add, defaults=True), total)
            or (is_at_sum and _availability_problem(arguments))
            or None
        )
        if reason is not None:
            self.refuse(norm, reason, _RULE)
            return False
        with self.rewrite(graph, _RULE, *((norm, add) if is_at_sum else (add, norm))) as edit:
            names = [name for name in _ARGUMENTS if name in arguments]
            results = edit.calls(_NORMS[norm.op_type], *add.inputs, *map(arguments.__getitem__, names))
            for old, new in ((norm.outputs[0], results[0]), (total, results[1])):
                edit.replace(old, match_strides(edit, new, old))
            for name in edit.made:
                graph.set_provenance(graph.node(name), merge_provenance([add, norm]))
        return True


def _sum_problem(arguments: dict[str, Any], total: Value) -> str | None:
    """Return the reason why a sum cannot be fused with a norm; None if it can."""
    parts = arguments["self"], arguments["other"]
    if not all(isinstance(part, Value) for part in parts) or arguments["alpha"] != 1:
        return "the sum is not one of two tensors, or scales one"
    for part in parts:
        if not equals_up_to_strides(part.type, total.type):
            return f"the sum broadcasts or promotes %{part.name}, {part.type}, to {total.type}"
    return None


def _availability_problem(arguments: dict[str, Any]) -> str | None:
    """Return the reason why an argument of a norm may be unavailable at its sum; None if none is."""
    for name in ("weight", "bias"):
        value = arguments.get(name)
        if isinstance(value, Value) and not (value.producer is None or value.producer.in_prologue):
            return f"its {name} is computed at each call, maybe after the sum"
    return None

"""Fusion of an RMS norm that is written out."""

from __future__ import annotations

import torch

from npu_ir import Value
from npu_passes.core.base import within
from npu_passes.core.edit import Edit
from npu_passes.patterns import Match, PatternPass, Rule, aten, attr, commutative, one_of, shared, var
from npu_passes.patterns.terms import Call, Term


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
    if not x.rank or weight.rank != 1 or weight.shape != x.shape[-1:]:
        return f"the weight is {weight}, the input {x}"
    if not isinstance(weight.shape[0], int):
        return f"the op takes no size that is not known, here {weight.shape[0]}"
    if [axis % x.rank for axis in match["dims"] or ()] != [x.rank - 1]:
        return f"the mean is over the axes {match['dims']}, not over the last one"
    if not weight.dtype == x.dtype == result.dtype:
        return f"the input, the weight and the result differ in dtype: {x}, {weight}, {result}"
    wide, narrow = match["wide"] or x.dtype, match["narrow"] or x.dtype
    if narrow != x.dtype:
        return f"it is rounded to {narrow}"
    if torch.promote_types(wide, x.dtype) != wide:
        return f"it is computed in {wide}, which is less than {x.dtype}"
    return None


class FuseRmsNorm(PatternPass):
    """Fuse an RMS norm that is written out, as in the models of `transformers`, into ``aten.rms_norm``.

    That is ``weight * (x * rsqrt(mean(x ** 2) + eps))`` over the last axis, also with casts to a wider dtype
    and back around what is in the parentheses. In half precision the op rounds once where these models round
    twice.
    """

    name = "fuse-rms-norm"
    is_idempotent = True
    numerics = within(1e-5)
    rules = (Rule("rms-norm", _rms_norm_pattern(), _rms_norm, _rms_norm_problem),)

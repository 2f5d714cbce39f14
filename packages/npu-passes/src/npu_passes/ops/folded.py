"""``npu::fold_batch_norm``: the weight and bias of a convolution that absorbs the batch norm after it.

Importing this module registers the op with PyTorch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from npu_ir import TensorType
from npu_ir.core.storage import is_dense
from npu_ir.symbolic.expressions import Dim
from npu_passes.ops.packed import goes_by_parts
from npu_passes.ops.registration import register_composite

FOLD_BATCH_NORM = "npu.fold_batch_norm.default"
_PART = 1 << 16  # elements: their products in float64 stay in the second cache


def folded_types(weight: TensorType, bias: TensorType | None, channels: Dim) -> list[TensorType] | None:
    """Return the types of the results of ``fold_batch_norm``; None if the weight's strides do not say."""
    if weight.strides is not None and not is_dense(weight.static_shape, weight.static_strides):
        return None
    return [weight, TensorType((channels,), (bias or weight).dtype)]


@register_composite(
    "(Tensor weight, Tensor? bias, Tensor mean, Tensor variance, Tensor? gamma, Tensor? beta, float eps, "
    "int transposed_groups) -> (Tensor, Tensor)"
)
def fold_batch_norm(
    weight: Tensor,
    bias: Tensor | None,
    mean: Tensor,
    variance: Tensor,
    gamma: Tensor | None,
    beta: Tensor | None,
    eps: float,
    transposed_groups: int,
) -> tuple[Tensor, Tensor]:
    """Return ``a * weight`` and ``a * (bias - mean) + beta``, with ``a = gamma / sqrt(variance + eps)``.

    Both are computed in float64, and have the dtype of the weight and of the bias; without a bias, both that
    of the weight.

    Args:
        weight: [out, in / groups, *kernel], of a linear layer [out, in]; transposed [in, out / groups,
            *kernel].
        bias: [out], like all that follow; None stands for zeros.
        mean: Running mean of the norm.
        variance: Its running variance.
        gamma: Its weight; None stands for ones.
        beta: Its bias; None stands for zeros.
        eps: Added to the variance.
        transposed_groups: The groups of a transposed convolution; 0 for all other layers.
    """
    mean = mean.to(torch.float64)
    scale = torch.rsqrt(variance.to(torch.float64) + eps)
    scale = scale if gamma is None else gamma * scale
    shift = (-mean if bias is None else bias - mean) * scale
    shift = shift if beta is None else shift + beta
    # A grouped transposed weight is [in, out / groups, ...]: rows of a group belong to its channels.
    factors = scale
    if transposed_groups:
        rows = weight.shape[0] // transposed_groups
        factors = scale.view(transposed_groups, -1).repeat_interleave(rows, 0)
    factors = factors.reshape([*factors.shape, *[1] * (weight.dim() - factors.dim())])
    return _product(weight, factors), shift.to((weight if bias is None else bias).dtype)


def _product(weight: Tensor, factors: Tensor) -> Tensor:
    """Return the product with factors in float64, in the dtype of the weight; of a large one part by part."""
    if not goes_by_parts(weight, factors):
        return (weight * factors).to(weight.dtype)
    result = torch.empty_like(weight)
    rows = max(1, _PART * len(weight) // weight.numel())
    tensors = (torch.split(tensor, rows) for tensor in (result, weight, factors))
    for part, some, scale in zip(*tensors, strict=True):
        part.copy_(some * scale)
    return result

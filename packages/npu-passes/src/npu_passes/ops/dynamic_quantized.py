"""``npu::dynamic_quantized_linear``: a linear layer by quantized weights, whose input is rounded to int8.

A group of a row of the input, which is as those of the weight, is cut into blocks of neighbouring elements,
each with a scale of its own that is found in each call ("dynamic"). So a block is small integers times a
scale on both sides, and its product is one of integers, which processors have instructions for. Importing
this module registers the op with PyTorch.
"""

from __future__ import annotations

import torch
from torch import Tensor

from npu_passes.errors import PassError
from npu_passes.ops.quantized import quantized_linear
from npu_passes.ops.registration import register_composite

DYNAMIC_QUANTIZED_LINEAR = "npu.dynamic_quantized_linear.default"
USUAL_BLOCK = 32
MOST_OF_BLOCK = 1024  # products of bytes whose sum float32 has exactly
_LARGEST = 127


@register_composite("(Tensor input, Tensor integers, Tensor scales, Tensor? bias, int block=32) -> Tensor")
def dynamic_quantized_linear(
    input: Tensor, integers: Tensor, scales: Tensor, bias: Tensor | None, block: int = USUAL_BLOCK
) -> Tensor:
    """Return ``npu::quantized_linear`` of the input as `round_activations` rounds it.

    A row with a NaN or an infinity has results of NaN. Gradients are those of the product with the numbers as
    they were: rounding counts as the identity.

    Args:
        input: [*, in], of any float dtype.
        integers: Those of a weight of [out, in]: int8, or uint8 where they have 4 bits.
        scales: float32 [out, groups].
        bias: [out].
        block: The number of elements of the input with a scale in common, within each group of the weight.

    Raises:
        PassError: A block has less than 1 or more than 1024 elements; or with 4 bits, an odd number.
    """
    groups, length = scales.shape[1], input.shape[-1]
    group = length // max(1, groups)
    bits = 4 if integers.dtype == torch.uint8 else 8
    if (problem := block_problem(bits, block, group)) is not None:
        raise PassError(f"npu::dynamic_quantized_linear: {problem}")
    wide = torch.promote_types(input.dtype, torch.float32)
    exact = input.to(wide)
    rounded = dequantize_activations(*round_activations(exact.detach(), group, block), block)
    if torch.is_grad_enabled() and exact.requires_grad:
        rounded = rounded + (exact - exact.detach())
    bias = None if bias is None else bias.to(wide)
    return quantized_linear(rounded, integers, scales, bias).to(input.dtype)


def block_problem(bits: int, block: int, group: int | None = None) -> str | None:
    """Return the reason why groups of an input cannot be cut into such blocks; None if they can."""
    if not 1 <= block <= MOST_OF_BLOCK:
        return f"a block has {block} elements, not 1 to {MOST_OF_BLOCK}"
    if bits == 4 and block % 2 and (group is None or block < group):
        return f"a block has {block} elements, an odd number, and a byte has two of 4 bits"
    return None


def round_activations(input: Tensor, group: int, block: int) -> tuple[Tensor, Tensor]:
    """Return numbers as integers and the scales of their blocks.

    The scale of a block is its largest magnitude over 127, rounded to the dtype. Integers are the quotients
    by it, rounded to nearest, ties to even, from -127 to 127. A block of zeros has the scale 0. One with a
    NaN or an infinity has such a scale, and the integers 0: numbers that are NaN.

    Args:
        input: [*, in], float32 or float64.
        group: The number of elements of a group, which are cut into blocks one by one.
        block: The number of elements of a block; the last one of a group may have fewer.

    Returns:
        Integers, int8 [*, in]; and scales in the dtype of the input, [*, groups, blocks].
    """
    length = input.shape[-1]
    if length == 0:
        return input.to(torch.int8), input.new_zeros(*input.shape[:-1], 0, 0)
    rows, blocks = input.shape[:-1], -(-group // block)
    grouped = input.reshape(*rows, length // group, group)
    if missing := blocks * block - group:  # not by F.pad: it assumes open sizes (torch 2.13)
        grouped = torch.cat([grouped, grouped.new_zeros(*rows, length // group, missing)], -1)
    padded = grouped.reshape(*rows, length // group, blocks, block)
    largest = padded.abs().amax(-1, keepdim=True)
    # Division by a number is multiplication by its reciprocal on a GPU (torch 2.13).
    scales = largest / torch.full_like(largest, _LARGEST)
    has_integers = scales.isfinite() & (scales != 0)
    quotients = torch.where(has_integers, padded, 0) / torch.where(has_integers, scales, 1)
    integers = quotients.round().clamp(-_LARGEST, _LARGEST).to(torch.int8)
    return integers.flatten(-2)[..., :group].flatten(-2), scales[..., 0]


def dequantize_activations(integers: Tensor, scales: Tensor, block: int) -> Tensor:
    """Return the numbers [*, in] that integers and scales of `round_activations` stand for."""
    groups, length = scales.shape[-2], integers.shape[-1]
    if length == 0:
        return integers.to(scales.dtype)
    grouped = integers.reshape(*integers.shape[:-1], groups, length // groups)
    each = scales.repeat_interleave(block, -1)[..., : length // groups]
    return (grouped * each).flatten(-2)

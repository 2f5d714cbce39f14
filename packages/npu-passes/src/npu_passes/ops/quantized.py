"""``npu::quantize_weight`` and ``npu::quantized_linear``: linear layers by weights of 8 or 4 bits.

A row of a weight is cut into groups of neighbouring elements, each with a scale: an element is a small
integer times the scale of its group. Integers of 8 bits are a tensor of int8. Of 4 bits, which are from -7 to
7, two are in a byte of uint8: ``16 * odd + even``, modulo 256, where ``even`` has the even place. So the byte
as int8 and its low half as a signed number are all that a product needs. Both are plain tensors, which can be
saved and replaced. Importing this module registers the ops with PyTorch.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from npu_passes.errors import PassError
from npu_passes.ops.registration import register_composite

QUANTIZE_WEIGHT = "npu.quantize_weight.default"
QUANTIZED_LINEAR = "npu.quantized_linear.default"
BITS = (8, 4)
_ELEMENTS_AT_ONCE = 1 << 20  # what is computed on the way takes several times the memory of floats


@register_composite("(Tensor weight, int bits, int group) -> (Tensor integers, Tensor scales)")
def quantize_weight(weight: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor]:
    """Return a weight of [out, in] as integers and scales, which differ from it by half a scale at most.

    The scale of a group is its largest magnitude over 127, or over 7 for 4 bits, so that 0 stays 0 and no
    element is clamped, but where it is near the smallest number of float32 or beyond its range. Elements are
    rounded to nearest, ties to even. A group of zeros has the scale 0; one with an infinity or a NaN has such
    a scale, and makes results that are not finite.

    Args:
        weight: [out, in], of any float dtype.
        bits: 8 or 4.
        group: The number of elements with a scale in common.

    Returns:
        Integers, int8 [out, in], or for 4 bits uint8 [out, in / 2]; and scales, float32 [out, in / group].

    Raises:
        PassError: Groups of so many do not make up a row; or a group of 4 bits has an odd number of elements.
    """
    if (problem := quantization_problem(weight.shape[1], bits, group)) is not None:
        raise PassError(f"npu::quantize_weight: {problem}")
    rows = max(1, _ELEMENTS_AT_ONCE // max(1, weight.shape[1]))
    blocks = [_quantize_rows(item, bits, group) for item in torch.split(weight, rows)]
    integers, scales = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    return integers, scales


def _quantize_rows(weight: Tensor, bits: int, group: int) -> tuple[Tensor, Tensor]:
    out, length = weight.shape
    groups = weight.to(_wide(weight)).reshape(out, length // group, group)
    most = 2 ** (bits - 1) - 1
    scales = (groups.abs().amax(-1, keepdim=True) / most).float()
    quotients = groups / torch.where(scales == 0, 1, scales)
    integers = quotients.nan_to_num(0.0).round().clamp(-most, most).to(torch.int8).reshape(out, length)
    return integers if bits == 8 else pack_nibbles(integers), scales[..., 0]


@register_composite("(Tensor input, Tensor integers, Tensor scales, Tensor? bias) -> Tensor")
def quantized_linear(input: Tensor, integers: Tensor, scales: Tensor, bias: Tensor | None) -> Tensor:
    """Return ``input @ weight.T + bias`` in the dtype of the input, with sums in float32 or wider.

    Args:
        input: [*, in], of any float dtype.
        integers: Those of a weight of [out, in]: int8, or uint8 where they have 4 bits.
        scales: float32 [out, groups].
        bias: [out].
    """
    wide = _wide(input)
    weight = dequantize(integers, scales, wide)
    return F.linear(input.to(wide), weight, None if bias is None else bias.to(wide)).to(input.dtype)


def quantization_problem(length: int, bits: int, group: int) -> str | None:
    """Return the reason why rows of a length cannot be quantized in such groups; None if they can."""
    if bits not in BITS:
        return f"integers have 8 or 4 bits, not {bits}"
    if group < 1 or length % group:
        return f"a row of {length} elements is not made up of groups of {group}"
    if bits == 4 and group % 2:
        return f"a group has {group} elements, an odd number, and a byte has two of 4 bits"
    return None


def dequantize(integers: Tensor, scales: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the weight of [out, in] that integers and scales stand for."""
    values = unpack_nibbles(integers) if integers.dtype == torch.uint8 else integers
    (out, groups), length = scales.shape, values.shape[1]
    return (values.to(dtype).reshape(out, groups, length // max(1, groups)) * scales[..., None]).reshape(
        out, length
    )


def pack_nibbles(integers: Tensor) -> Tensor:
    """Return int8 [out, in] from -7 to 7 as bytes of two, uint8 [out, in / 2]."""
    return (16 * integers[:, 1::2] + integers[:, ::2]).view(torch.uint8)


def unpack_nibbles(bytes: Tensor) -> Tensor:
    """Return what `pack_nibbles` was given."""
    both = bytes.view(torch.int8).to(torch.int16)
    even = ((both + 8) & 15) - 8
    return torch.stack((even, (both - even) // 16), -1).flatten(1).to(torch.int8)


def _wide(tensor: Tensor) -> torch.dtype:
    return torch.promote_types(tensor.dtype, torch.float32)

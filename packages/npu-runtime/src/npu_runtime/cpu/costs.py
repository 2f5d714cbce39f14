"""How long convolutions take, roughly: to choose between kernels, layouts and algorithms.

All numbers were measured with one thread of an AMD EPYC (Zen 4, AVX-512), torch 2.13, and data in the cache. Only
their ratios matter; two threads keep these, mostly. Sizes are given as channels x height x width.
"""

from __future__ import annotations

import math

from npu_ir import TensorType
from npu_runtime.cpu.convolutions import Convolution

# oneDNN comes to 116 GFLOP/s where channels are many, as with 512 x 7 x 7 or 64 x 28 x 28.
_FLOPS = 116e9
# What a call takes beside its work: of aten.conv2d where ATen computes it, and of oneDNN.
_CALL, _ONEDNN_CALL = 8e-6, 27e-6
# Weights that are not packed are packed at each call, bytes/s: 1 ms for 512 x 512 x 3 x 3; less for matrix products.
_PACKING, _PACKING_PRODUCT = 9.4e9, 14e9
# Contiguous images cost 15% more; those of 3 channels twice as much where kernels overlap and are larger than 3 x 3
# (a stem of 7 x 7: 7.0 ms, packed 2.9 ms), and a quarter more elsewhere, also in channels-last.
_CONTIGUOUS, _LARGE_STEM, _STEM = 1.15, 2.0, 1.25
# As a product of matrices, 1 x 1, in channels-last: 80 to 480 of 14 x 14 155 us, packed 161 us.
_PRODUCT = 1.08
# 16 output channels are computed at once: 64 to 24 of 56 x 56 take 143 us, and would take 111 us.
_LANES = 16
# Depthwise, a multiply-add: 200 us for 96 x 56 x 56 with 3 x 3, and 100 us in channels-last.
_DEPTHWISE_CALL, _DEPTHWISE, _DEPTHWISE_LAST = 35e-6, 0.07e-9, 0.025e-9
# Up to this size, ATen takes patches apart itself and multiplies matrices (batch 1, kernel up to 3).
_SMALL_INPUT = 20480
# Taking patches apart, an element; in channels-last a run of channels: 8 x 32 x 32 takes 41 us, and there 87 us.
_PATCH, _PATCH_RUN = 0.3e-9, 5.5e-9
# What an activation saves where it is computed with the convolution: 9 us of 14 us for 480 x 14 x 14.
_ELEMENTWISE_CALL, _ELEMENTWISE = 1e-6, 0.09e-9
# A copy in another layout, bytes/s: 130 us for 72 x 56 x 56, 6 us for 160 x 7 x 7.
_COPY_CALL, _COPY = 2e-6, 6.5e9
# Of Winograd's algorithm: FLOP/s of its products and transforms, bytes/s of images and of weights, its ten calls.
_GEMM, _TRANSFORM, _MEMORY, _WEIGHTS, _STEPS = 95e9, 76e9, 30e9, 17e9, 15e-6


def contiguous_seconds(item: Convolution) -> float:
    """Return what ``aten.conv2d`` takes on contiguous memory."""
    work = item.flops / _FLOPS
    if item.is_depthwise:
        return _DEPTHWISE_CALL + _DEPTHWISE * item.flops / 2
    if _is_product(item):
        return _CALL + work * _CONTIGUOUS + item.weight_bytes / _PACKING_PRODUCT
    if _is_small(item):
        patches = _PATCH * _patch_runs(item) * item.in_channels
        return _CALL + work + patches + item.weight_bytes / _PACKING
    is_large_stem = min(item.kernel) > 3 and max(item.stride) < max(item.kernel)
    few = (_LARGE_STEM if is_large_stem else _STEM) if _is_stem(item) else 1.0
    return _ONEDNN_CALL + work * _CONTIGUOUS * few + item.weight_bytes / _PACKING


def plain_seconds(item: Convolution) -> float:
    """Return what ``aten.conv2d`` takes in channels-last."""
    if item.is_depthwise:
        return packed_seconds(item) + 12e-6
    if _is_product(item):
        return _CALL + _lane_seconds(item) * _PRODUCT + item.weight_bytes / _PACKING_PRODUCT
    if _is_small(item):
        return _CALL + item.flops / _FLOPS + _PATCH_RUN * _patch_runs(item)
    return packed_seconds(item) + item.weight_bytes / _PACKING


def packed_seconds(item: Convolution) -> float:
    """Return what oneDNN takes in channels-last with packed weights."""
    if item.is_depthwise:
        return _ONEDNN_CALL + _DEPTHWISE_LAST * item.flops / 2
    return _ONEDNN_CALL + _lane_seconds(item) * (_STEM if _is_stem(item) else 1.0)


def winograd_seconds(item: Convolution, tile: int) -> float:
    """Return what Winograd's algorithm takes, for results in tiles of ``tile`` x ``tile`` pixels.

    1.4 ms where oneDNN takes 2.1 ms (64 x 56 x 56, tiles of 4), 1.1 of 2.2 ms (128 x 28 x 28, tiles of 4), 1.4 of
    2.0 ms (256 x 14 x 14, tiles of 2), 2.9 of 2.0 ms (512 x 7 x 7): there, the weights come from memory.
    """
    batch, _, height, width = item.output.tensor_type.sizes
    patches = batch * math.ceil(height / tile) * math.ceil(width / tile)
    points = (tile + 2) ** 2
    given, made = points * patches * item.in_channels, tile**2 * patches * item.out_channels
    product = 2 * points * patches * item.in_channels * item.out_channels / _GEMM
    weights = 4 * points * item.in_channels * item.out_channels / _WEIGHTS
    transforms = 2 * points * (given + made) / _TRANSFORM
    copies = 4 * (3 * given + 5 * made) / _MEMORY
    return _STEPS + product + weights + transforms + copies


def copy_seconds(type: TensorType) -> float:
    """Return what a copy in another layout takes."""
    return _COPY_CALL + 4 * math.prod(type.sizes) / _COPY


def fusion_seconds(type: TensorType) -> float:
    """Return what is saved where an activation is computed with the convolution in front of it."""
    return _ELEMENTWISE_CALL + _ELEMENTWISE * math.prod(type.sizes)


def _lane_seconds(item: Convolution) -> float:
    return item.flops / _FLOPS * math.ceil(item.out_channels / _LANES) * _LANES / item.out_channels


def _is_stem(item: Convolution) -> bool:
    return item.in_channels <= 4


def _is_product(item: Convolution) -> bool:
    """Whether ATen computes it as a product of two matrices, with one thread."""
    return item.kernel == item.stride == (1, 1) and item.groups == 1


def _is_small(item: Convolution) -> bool:
    """Whether ATen computes it without oneDNN, with one thread."""
    sizes = item.input.tensor_type.sizes
    return item.groups == sizes[0] == 1 and min(item.kernel) <= 3 and math.prod(sizes) <= _SMALL_INPUT


def _patch_runs(item: Convolution) -> int:
    return 0 if item.kernel == (1, 1) else math.prod(item.kernel) * item.positions

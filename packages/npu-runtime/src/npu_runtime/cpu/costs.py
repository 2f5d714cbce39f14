"""How long convolutions take, roughly: to choose between kernels, layouts and algorithms.

All numbers were measured with one thread of an AMD EPYC (Zen 4, AVX-512) and torch 2.13. Only their
ratios matter; two threads keep these, mostly.
"""

from __future__ import annotations

import math

from npu_ir import TensorType
from npu_runtime.cpu.convolutions import Convolution

# oneDNN comes to 108 GFLOP/s where channels are many, 512 x 7 x 7 or 64 x 56 x 56.
_FLOPS = 108e9
# A call of aten.conv2d takes 8 us beside its work, one with packed weights 27 us.
_CALL, _PACKED_CALL = 8e-6, 27e-6
# Weights that are not packed are packed at each call: 1 ms for 512 x 512 x 3 x 3.
_PACKING = 9.4e9
# NCHW costs 8% more; in images of few channels, as in a 7x7 stem (7.0 ms, 2.9 ms packed), much more.
_CONTIGUOUS = 1.08
# oneDNN computes 16 output channels at once: 8 of 8 x 32 x 32 take 50 us. Of 3 input channels it makes less: 3 x 3 of
# 224 x 224 take twice as long as the FLOPs let expect.
_LANES = 16
# Depthwise, a multiply-add: 200 us for 96 x 56 x 56 with 3x3, and 100 us in channels-last.
_DEPTHWISE, _DEPTHWISE_LAST = 0.1e-9, 0.03e-9
# Below this, ATen takes patches apart itself and multiplies matrices (batch 1, kernel up to 3).
_SMALL_INPUT = 20480
# Taking patches apart, an element; and in channels-last a run of channels: 8 x 32 x 32 takes 41 us and 87 us.
_PATCH, _PATCH_RUN = 0.3e-9, 5.5e-9
# An activation that is no part of a convolution: 9 us for 64 x 56 x 56 where the memory is in the cache.
_ELEMENTWISE_CALL, _ELEMENTWISE = 2e-6, 0.15e-9
# A copy in another layout: 190 us for 64 x 56 x 56, 3 us for 32 x 8 x 8.
_COPY_CALL, _COPY = 2e-6, 4.2e9
# Winograd: see `winograd_seconds`.
_GEMM, _TRANSFORM, _MEMORY, _WEIGHTS, _STEPS = 95e9, 76e9, 30e9, 17e9, 15e-6


def contiguous_seconds(item: Convolution) -> float:
    """Return what ``aten.conv2d`` takes on contiguous memory."""
    if item.is_depthwise:
        return _CALL + _DEPTHWISE * item.positions * math.prod(item.weight.tensor_type.sizes)
    work = item.flops / _FLOPS
    if _is_small(item):
        return _CALL + work + _PATCH * _patch_runs(item) * item.in_channels + item.weight_bytes / _PACKING
    if _is_product(item):
        return _CALL + work * _CONTIGUOUS + item.weight_bytes / _PACKING
    few = 2 if item.in_channels <= 4 and min(item.kernel) > 3 and max(item.stride) < max(item.kernel) else 1
    return _PACKED_CALL + work * _CONTIGUOUS * few + item.weight_bytes / _PACKING


def plain_seconds(item: Convolution) -> float:
    """Return what ``aten.conv2d`` takes in channels-last."""
    if item.is_depthwise:
        return packed_seconds(item) + 5e-6
    if _is_small(item):
        return _CALL + item.flops / _FLOPS + _PATCH_RUN * _patch_runs(item)
    call = _CALL if _is_product(item) else _PACKED_CALL
    return call + item.flops / _FLOPS + item.weight_bytes / _PACKING


def packed_seconds(item: Convolution) -> float:
    """Return what oneDNN takes in channels-last with packed weights."""
    if item.is_depthwise:
        return _PACKED_CALL + _DEPTHWISE_LAST * item.positions * math.prod(item.weight.tensor_type.sizes)
    lanes = math.ceil(item.out_channels / _LANES) * _LANES / item.out_channels
    few = 1 + 9 / math.prod(item.kernel) if item.in_channels <= 4 else 1
    return _PACKED_CALL + item.flops / _FLOPS * lanes * few


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


def elementwise_seconds(type: TensorType) -> float:
    """Return what an activation takes where it is not fused."""
    return _ELEMENTWISE_CALL + _ELEMENTWISE * math.prod(type.sizes)


def _is_product(item: Convolution) -> bool:
    """Whether ATen computes it as a product of two matrices, with one thread."""
    return item.kernel == item.stride == (1, 1) and item.groups == 1


def _is_small(item: Convolution) -> bool:
    """Whether ATen computes it without oneDNN, with one thread."""
    sizes = item.input.tensor_type.sizes
    return item.groups == sizes[0] == 1 and min(item.kernel) <= 3 and math.prod(sizes) <= _SMALL_INPUT


def _patch_runs(item: Convolution) -> int:
    return 0 if item.kernel == (1, 1) else math.prod(item.kernel) * item.positions

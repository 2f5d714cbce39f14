"""Costs of ops in either layout, measured, and the choice of kernels by them.

All numbers were measured with one thread of an AMD EPYC (Zen 4, AVX-512), torch 2.13, and data in the cache.
Only their ratios matter; with two threads most of these are the same. Sizes are channels x height x width,
of training steps batch x channels x height x width.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch

from npu_ir import Graph, OpNode, TensorType, Value
from npu_passes.rewriting.arguments import arguments_of
from npu_runtime.cpu.convolutions import CONVOLUTIONS, Convolution, convolution_of, shape_problem
from npu_runtime.cpu.onednn import activation_of, only_reader

# oneDNN reaches 116 GFLOP/s with many channels, as in 512 x 7 x 7 or 64 x 28 x 28.
_FLOPS = 116e9
# Overhead of a call: of aten.conv2d if ATen computes it, and of oneDNN.
_CALL, _ONEDNN_CALL = 8e-6, 27e-6
# Weights that are not packed are packed in each call, bytes/s: 1 ms for 512 x 512 x 3 x 3; faster for
# matrix products.
_PACKING, _PACKING_PRODUCT = 9.4e9, 14e9
# Contiguous images cost 15% more; those of 3 channels twice as much if kernels overlap and are larger than
# 3 x 3 (a stem of 7 x 7: 7.0 ms, packed 2.9 ms), and a quarter more otherwise, also in channels-last.
_CONTIGUOUS, _LARGE_STEM, _STEM = 1.15, 2.0, 1.25
# A 1 x 1 convolution as a matrix product in channels-last: 80 to 480 channels of 14 x 14 155 us, packed 161
# us.
_PRODUCT = 1.08
# 16 output channels are computed at once: 64 to 24 channels of 56 x 56 take 143 us, without rounding up 111
# us.
_LANES = 16
# Depthwise, per multiply-add: 200 us for 96 x 56 x 56 with 3 x 3, and 100 us in channels-last.
_DEPTHWISE_CALL, _DEPTHWISE, _DEPTHWISE_LAST = 35e-6, 0.07e-9, 0.025e-9
# Up to this size, ATen unfolds patches itself (im2col) and multiplies matrices (batch 1, kernel up to 3).
_SMALL_INPUT = 20480
# Unfolding patches, per element; in channels-last per run of channels: 8 x 32 x 32 takes 41 us, and there
# 87 us.
_PATCH, _PATCH_RUN = 0.3e-9, 5.5e-9
# Transforms of Winograd's algorithm by panels, per number at a point.
_POINT = 0.25e-9
# Saved by panels in channels-last, per element of both images: 73 us and 32 us for 8 to 8 channels of 32
# x 32.
_SPREAD = 3e-9
# Saved by fusing an activation with the convolution: 9 us of 14 us for 480 x 14 x 14.
_ELEMENTWISE_CALL, _ELEMENTWISE = 1e-6, 0.09e-9
# A copy to another layout, bytes/s: 130 us for 72 x 56 x 56, 6 us for 160 x 7 x 7.
_COPY_CALL, _COPY = 2e-6, 6.5e9
# Winograd's algorithm: FLOP/s of products and of transforms, bytes/s of images and of weights, seconds of
# ten calls.
_GEMM, _TRANSFORM, _MEMORY, _WEIGHTS, _STEPS = 95e9, 76e9, 30e9, 17e9, 15e-6
# The maximum of a window, per element of it: 1.7 ms for 32 x 16 x 28 x 28 and 2 x 2, and 0.15 ms in
# channels-last.
_WINDOW = 4.0e-9
# Both products of a convolution's gradients, per multiplication and addition: 2.1 ms for 32 x 16 x 14 x 14
# to 32 channels, and 1.6 ms in channels-last, where oneDNN needs no copies to its own layout.
_GRADIENTS = 2.5e-12
# Sizes of output tiles of Winograd's algorithm; with 6, its error is too large.
TILES = (2, 4)
# An estimate must be below this fraction of the alternative's, because estimates are rough.
_CLEARLY = 0.9


def contiguous_seconds(item: Convolution) -> float:
    """Return the seconds of ``aten.conv2d`` in contiguous memory."""
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
    """Return the seconds of ``aten.conv2d`` in channels-last."""
    if item.is_depthwise:
        return packed_seconds(item) + 12e-6
    if _is_product(item):
        return _CALL + _lane_seconds(item) * _PRODUCT + item.weight_bytes / _PACKING_PRODUCT
    if _is_small(item):
        return _CALL + item.flops / _FLOPS + _PATCH_RUN * _patch_runs(item)
    return packed_seconds(item) + item.weight_bytes / _PACKING


def packed_seconds(item: Convolution) -> float:
    """Return the seconds of oneDNN's kernel in channels-last with packed weights."""
    if item.is_depthwise:
        return _ONEDNN_CALL + _DEPTHWISE_LAST * item.flops / 2
    return _ONEDNN_CALL + _lane_seconds(item) * (_STEM if _is_stem(item) else 1.0)


def winograd_seconds(item: Convolution, tile: int) -> float:
    """Return the seconds of Winograd's algorithm with output tiles of ``tile`` x ``tile`` pixels.

    Measured, with oneDNN for comparison: 1.4 and 2.1 ms (64 x 56 x 56, tiles of 4), 1.1 and 2.2 ms (128 x
    28 x 28, tiles of 4), 1.4 and 2.0 ms (256 x 14 x 14, tiles of 2), 2.9 and 2.0 ms (512 x 7 x 7, whose
    weights do not fit in the cache).
    """
    batch, _, height, width = item.output.tensor_type.static_shape
    patches = batch * math.ceil(height / tile) * math.ceil(width / tile)
    points = (tile + 2) ** 2
    input_elements = points * patches * item.in_channels
    output_elements = tile**2 * patches * item.out_channels
    product = 2 * points * patches * item.in_channels * item.out_channels / _GEMM
    weights = 4 * points * item.in_channels * item.out_channels / _WEIGHTS
    transforms = 2 * points * (input_elements + output_elements) / _TRANSFORM
    copies = 4 * (3 * input_elements + 5 * output_elements) / _MEMORY
    return _STEPS + product + weights + transforms + copies


def copy_seconds(type: TensorType) -> float:
    """Return the seconds of a copy to another layout."""
    return _COPY_CALL + 4 * math.prod(type.static_shape) / _COPY


def fusion_seconds(type: TensorType) -> float:
    """Return the seconds saved by fusing an activation with the convolution in front of it."""
    return _ELEMENTWISE_CALL + _ELEMENTWISE * math.prod(type.static_shape)


def _lane_seconds(item: Convolution) -> float:
    return item.flops / _FLOPS * math.ceil(item.out_channels / _LANES) * _LANES / item.out_channels


def _is_stem(item: Convolution) -> bool:
    return item.in_channels <= 4


def _is_3x3(item: Convolution) -> bool:
    return item.kernel == (3, 3) and item.stride == item.dilation == (1, 1) and item.groups == 1


def _is_product(item: Convolution) -> bool:
    """Return whether ATen computes it as a matrix product, with one thread."""
    return item.kernel == item.stride == (1, 1) and item.groups == 1


def _is_small(item: Convolution) -> bool:
    """Return whether ATen computes it without oneDNN, with one thread."""
    sizes = item.input.tensor_type.static_shape
    return item.groups == sizes[0] == 1 and min(item.kernel) <= 3 and math.prod(sizes) <= _SMALL_INPUT


def _patch_runs(item: Convolution) -> int:
    return 0 if item.kernel == (1, 1) else math.prod(item.kernel) * item.positions


def packing_pays(item: Convolution) -> bool:
    """Return whether oneDNN with packed weights computes it faster than ``aten.conv2d`` does."""
    return _fused_seconds(item) < plain_seconds(item)


def winograd_tile(item: Convolution) -> int | None:
    """Return the fastest tile size of Winograd's algorithm; None if it is not applicable or not faster."""
    if not _is_3x3(item):
        return None
    seconds = {tile: winograd_seconds(item, tile) for tile in TILES}
    best = min(seconds, key=lambda tile: seconds[tile])
    return best if seconds[best] < _CLEARLY * _direct_seconds(item) else None


def panel_tile(item: Convolution) -> int | None:
    """Return the fastest tile size of Winograd's algorithm by panels; None if it is not faster."""
    if not _is_3x3(item) or item.in_channels % 64 or item.out_channels % 64:
        return None
    seconds = {tile: _panel_seconds(item, tile) for tile in TILES}
    best = min(seconds, key=lambda tile: seconds[tile])
    direct = item.flops / _FLOPS + item.weight_bytes / _WEIGHTS
    return best if seconds[best] < _CLEARLY * direct else None


def _panel_seconds(item: Convolution, tile: int) -> float:
    batch, _, height, width = item.output.tensor_type.static_shape
    patches, points = batch * math.ceil(height / tile) * math.ceil(width / tile), (tile + 2) ** 2
    weights = points * item.in_channels * item.out_channels
    product = 2 * patches * weights / _FLOPS + 4 * weights / _WEIGHTS
    return product + patches * points * (item.in_channels + item.out_channels) * _POINT


def seconds_saved(item: Convolution) -> float:
    """Return the seconds that a convolution saves in channels-last; negative if it is slower."""
    tile = winograd_tile(item)
    seconds = _direct_seconds(item) if tile is None else winograd_seconds(item, tile)
    return contiguous_seconds(item) - seconds


def seconds_saved_by_panels(item: Convolution) -> float:
    """Return the seconds that a convolution by `npu_passes.ops.packed` saves in channels-last."""
    return spread_seconds(item.node)


def spread_seconds(node: OpNode) -> float:
    """Return the seconds that channels which are not side by side cost a convolution on the host."""
    images = arguments_of(node)["input"], node.outputs[0]
    return _SPREAD * sum(math.prod(image.tensor_type.static_shape) for image in images)


def seconds_saved_by_layout(item: Convolution) -> float:
    """Return the seconds saved by the layout alone, without packed weights and Winograd's algorithm."""
    return contiguous_seconds(item) - plain_seconds(item)


def _direct_seconds(item: Convolution) -> float:
    return min(_fused_seconds(item), plain_seconds(item))


def _fused_seconds(item: Convolution) -> float:
    """Return the seconds of oneDNN's kernel, minus those of an activation that it fuses."""
    is_fused = activation_of(only_reader(item.output)) is not None
    return packed_seconds(item) - (fusion_seconds(item.output.tensor_type) if is_fused else 0.0)


def is_channels_last(value: Value) -> bool:
    """Return whether a value is an image in channels-last that is not also contiguous."""
    type = value.type
    return isinstance(type, TensorType) and type.memory_format is torch.channels_last


def seconds_saved_in_training(graph: Graph, node: OpNode, *, for_host: bool = False) -> float | None:
    """Return the seconds that an op of training steps saves in channels-last; None for any other op.

    These ops are convolutions whose weights are trained, pools that return indices, and the gradients of
    both; with `for_host`, as the backend ``host`` computes them, also batch norms.
    """
    if node.op_type in CONVOLUTIONS:
        weight = arguments_of(node)["weight"]
        if weight not in graph.updates or shape_problem(node) is not None:
            return None
        return (seconds_saved_by_panels if for_host else seconds_saved_by_layout)(convolution_of(node))
    saved = (_SAVED_ON_HOST if for_host else _SAVED).get(node.op_type)
    return None if saved is None or not all(map(_is_measured, _images(node))) else saved(node)


def _images(node: OpNode) -> list[Value]:
    return [value for value in node.inputs if isinstance(value.type, TensorType) and value.type.rank > 1]


def _is_measured(value: Value) -> bool:
    """Return whether a value is an image, or a tensor of that rank, that the measurements cover."""
    type = value.tensor_type
    return type.rank == 4 and type.dtype in (torch.float32, torch.int64) and not type.symbols


def _zero_seconds(_: OpNode) -> float:
    return 0.0


def _pool(node: OpNode) -> float:
    window: int = math.prod(arguments_of(node)["kernel_size"])
    return _WINDOW * window * math.prod(node.outputs[0].tensor_type.static_shape)


def _gradients(node: OpNode) -> float:
    arguments = arguments_of(node)
    if arguments["transposed"] or arguments["groups"] != 1:
        return 0.0
    grad, weight = arguments["grad_output"], arguments["weight"]
    assert isinstance(grad, Value)
    assert isinstance(weight, Value)
    batch, _, height, width = grad.tensor_type.static_shape
    return _GRADIENTS * 2 * batch * height * width * math.prod(weight.tensor_type.static_shape)


def _gradients_on_host(node: OpNode) -> float:
    """Return what both gradients save: each reads or writes both images."""
    arguments = arguments_of(node)
    images: list[Value] = [arguments["grad_output"], arguments["input"]]
    return 2 * _SPREAD * sum(math.prod(image.tensor_type.static_shape) for image in images)


CONVOLUTION_GRADIENTS = "aten.convolution_backward.default"
_SAVED: Mapping[str, Callable[[OpNode], float]] = {
    "aten.max_pool2d_with_indices.default": _pool,
    "aten.max_pool2d_with_indices_backward.default": _zero_seconds,
    "aten.avg_pool2d_backward.default": _zero_seconds,
    "aten._adaptive_avg_pool2d_backward.default": _zero_seconds,
    CONVOLUTION_GRADIENTS: _gradients,
}
_SAVED_ON_HOST: Mapping[str, Callable[[OpNode], float]] = {
    **dict.fromkeys(_SAVED, _zero_seconds),
    CONVOLUTION_GRADIENTS: _gradients_on_host,
    "aten._native_batch_norm_legit_functional.default": _zero_seconds,
    "aten._native_batch_norm_legit.no_stats": _zero_seconds,
    "aten.native_batch_norm_backward.default": _zero_seconds,
}

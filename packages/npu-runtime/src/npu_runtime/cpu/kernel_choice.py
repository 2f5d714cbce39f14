"""Kernel selection for convolutions in channels-last."""

from __future__ import annotations

import enum

import torch

from npu_ir import TensorType, Value
from npu_runtime.cpu.activations import activation_of, only_reader
from npu_runtime.cpu.convolutions import Convolution
from npu_runtime.cpu.costs import (
    contiguous_seconds,
    fusion_seconds,
    packed_seconds,
    plain_seconds,
    winograd_seconds,
)

# Sizes of output tiles of Winograd's algorithm; with 6, its error is too large.
TILES = (2, 4)
# An estimate must be below this fraction of the alternative's, because estimates are rough.
_CLEARLY = 0.9


class Kernel(enum.Enum):
    """Kernel that computes a convolution in channels-last."""

    PLAIN = enum.auto()  # aten.conv2d
    PACKED = enum.auto()  # oneDNN with packed weights
    WINOGRAD = enum.auto()


def direct_kernel(item: Convolution) -> Kernel:
    """Return the faster one of the direct kernels, which are all but Winograd's."""
    return Kernel.PACKED if _fused_seconds(item) < plain_seconds(item) else Kernel.PLAIN


def winograd_tile(item: Convolution) -> int | None:
    """Return the fastest tile size of Winograd's algorithm; None if it is not applicable or not faster."""
    is_3x3 = item.kernel == (3, 3) and item.stride == item.dilation == (1, 1) and item.groups == 1
    if not is_3x3:
        return None
    seconds = {tile: winograd_seconds(item, tile) for tile in TILES}
    best = min(seconds, key=lambda tile: seconds[tile])
    return best if seconds[best] < _CLEARLY * _direct_seconds(item) else None


def seconds_saved(item: Convolution) -> float:
    """Return the seconds that a convolution saves in channels-last; negative if it is slower."""
    tile = winograd_tile(item)
    seconds = _direct_seconds(item) if tile is None else winograd_seconds(item, tile)
    return contiguous_seconds(item) - seconds


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

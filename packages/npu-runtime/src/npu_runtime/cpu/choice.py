"""Which kernel a convolution gets once its input is in channels-last."""

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

# Output tiles of Winograd's algorithm; for those of 6 its error is too large.
TILES = (2, 4)
# What is estimated must be this much faster to be done.
_CLEARLY = 0.9


class Kernel(enum.Enum):
    """How a convolution is computed in channels-last."""

    PLAIN = enum.auto()  # aten.conv2d
    PACKED = enum.auto()  # oneDNN with packed weights
    WINOGRAD = enum.auto()


def direct_kernel(item: Convolution) -> Kernel:
    """Return the quicker one of those that need no other algorithm."""
    return Kernel.PACKED if _fused_seconds(item) < plain_seconds(item) else Kernel.PLAIN


def winograd_tile(item: Convolution) -> int | None:
    """Return the tile with which Winograd's algorithm is quickest; None where it does not pay, or is not for that."""
    is_3x3 = item.kernel == (3, 3) and item.stride == item.dilation == (1, 1) and item.groups == 1
    if not is_3x3:
        return None
    seconds = {tile: winograd_seconds(item, tile) for tile in TILES}
    best = min(seconds, key=lambda tile: seconds[tile])
    return best if seconds[best] < _CLEARLY * _direct_seconds(item) else None


def seconds_saved(item: Convolution) -> float:
    """Return how much faster than on contiguous memory a convolution is in channels-last; negative where slower."""
    tile = winograd_tile(item)
    seconds = _direct_seconds(item) if tile is None else winograd_seconds(item, tile)
    return contiguous_seconds(item) - seconds


def seconds_saved_by_layout(item: Convolution) -> float:
    """Return the same where weights are not packed, and no other algorithm is used."""
    return contiguous_seconds(item) - plain_seconds(item)


def _direct_seconds(item: Convolution) -> float:
    return min(_fused_seconds(item), plain_seconds(item))


def _fused_seconds(item: Convolution) -> float:
    """Return what oneDNN takes, less what an activation behind it would take alone."""
    is_fused = activation_of(only_reader(item.output)) is not None
    return packed_seconds(item) - (fusion_seconds(item.output.tensor_type) if is_fused else 0.0)


def is_channels_last(value: Value) -> bool:
    """Whether a value is an image in channels-last, and not contiguous as well."""
    type = value.type
    return isinstance(type, TensorType) and type.memory_format is torch.channels_last

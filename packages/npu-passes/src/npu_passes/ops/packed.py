"""Weights in panels, read in order: of linear layers (``npu::packed_linear``) and 2-d convolutions.

A matrix of [in, out] becomes panels of [ceil(out / width), in, width]: panel i has the columns from
i * width on, and zeros beyond the last one. It is a plain tensor, which can be saved and replaced. Importing
this module registers the ops with PyTorch.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from npu_ir import TensorType
from npu_ir.core.types import dense_type, memory_format_strides
from npu_passes.ops.registration import register_composite

PACK_MATRIX = "npu.pack_matrix.default"
PACK_FILTERS = "npu.pack_filters.default"
PACKED_LINEAR = "npu.packed_linear.default"
PACKED_CONV2D = "npu.packed_conv2d.default"
PACKED_CONV_TRANSPOSE2D = "npu.packed_conv_transpose2d.default"
MOST_WIDTH = 64
_LARGE = 1 << 17  # elements
_FEW_THREADS = 4  # with more, the copy of all panels at once is shared by them


def panel_width(columns: int) -> int:
    """Return the width of panels that suits a matrix of so many columns, on every processor."""
    return next((width for width in (16, 32) if columns <= width), MOST_WIDTH)


def panels_type(matrix: TensorType, width: int) -> TensorType:
    """Return the type of the panels of a matrix of fixed size."""
    rows, columns = matrix.static_shape
    return TensorType((-(-columns // width), rows, width), matrix.dtype)


def product_type(input: TensorType, out_features: int) -> TensorType:
    """Return the type of the product of ``packed_linear``."""
    return TensorType((*input.shape[:-1], out_features), input.dtype)


def image_type(input: TensorType, result: TensorType) -> TensorType | None:
    """Return the type of ``packed_conv2d`` and ``winograd_conv2d``: that of ``result``, but for strides.

    It is contiguous or in channels-last, as the input is: the weights in the panels decide nothing. None for
    an input that is neither, such as some channels of a larger one: PyTorch has to say so.
    """
    if input.memory_format is torch.contiguous_format:
        return TensorType(result.shape, result.dtype)
    if input.memory_format is torch.channels_last:
        strides = memory_format_strides(result.shape, torch.channels_last)
        return dense_type(result.static_shape, result.dtype, strides)
    return None


@register_composite("(Tensor matrix, int width) -> Tensor")
def pack_matrix(matrix: Tensor, width: int) -> Tensor:
    """Return the panels of a matrix of [in, out]."""
    if goes_by_parts(matrix):
        return _pack_one_by_one(matrix, width)
    return panels_view(matrix, width).clone(memory_format=torch.contiguous_format)


def panels_view(matrix: Tensor, width: int) -> Tensor:
    """Return the panels of a matrix, which share its memory unless columns have to be added."""
    missing = -matrix.shape[1] % width
    padded = F.pad(matrix, (0, missing)) if missing else matrix
    return padded.reshape(matrix.shape[0], padded.shape[1] // width, width).transpose(0, 1)


def goes_by_parts(weight: Tensor, *others: Tensor) -> bool:
    """Return whether a weight has much data, for few threads, and no gradient of its form is recorded.

    Args:
        weight: The weight.
        others: What else its form depends on.
    """
    is_plain = type(weight) is Tensor and weight.device.type == "cpu"
    is_large = is_plain and weight.numel() >= _LARGE and torch.get_num_threads() <= _FEW_THREADS
    is_recorded = torch.is_grad_enabled() and any(item.requires_grad for item in (weight, *others))
    return is_large and not is_recorded


@register_composite("(Tensor weight, int width) -> Tensor")
def pack_filters(weight: Tensor, width: int) -> Tensor:
    """Return the panels of the weights of a linear layer or convolution as a matrix.

    Args:
        weight: [out, in / groups, *kernel]. The matrix is [kernel positions * in / groups, out].
        width: That of the panels.
    """
    matrix = weight.permute(*range(2, weight.dim()), 1, 0)
    return pack_matrix(matrix if weight.dim() == 2 else matrix.reshape(-1, weight.shape[0]), width)


def _pack_one_by_one(matrix: Tensor, width: int) -> Tensor:
    """Return the panels, each copied by itself.

    PyTorch copies a transposed matrix by blocks, and a tensor of three axes element by element: on one thread
    a third to a quarter of the time (AMD EPYC, PyTorch 2.13).
    """
    rows, columns = matrix.shape
    count = -(-columns // width)
    panels = matrix.new_zeros(count, rows, width) if columns % width else matrix.new_empty(count, rows, width)
    for panel, start in zip(panels, range(0, columns, width), strict=True):
        part = matrix[:, start : start + width]
        panel[:, : part.shape[1]].copy_(part)
    return panels


@register_composite("(Tensor input, Tensor panels, Tensor? bias, SymInt out_features) -> Tensor")
def packed_linear(input: Tensor, panels: Tensor, bias: Tensor | None, out_features: int) -> Tensor:
    """Return ``input @ matrix + bias``.

    Args:
        input: [*, in].
        panels: Those of a matrix of [in, out].
        bias: [out].
        out_features: The number of columns of the matrix.
    """
    matrix = matrix_of(panels)[:, :out_features]
    return F.linear(input, matrix.t(), bias)


@register_composite(
    "(Tensor input, Tensor panels, Tensor? bias, SymInt[2] kernel, SymInt[2] stride, SymInt[2] padding, "
    "SymInt[2] dilation, SymInt out_channels) -> Tensor"
)
def packed_conv2d(
    input: Tensor,
    panels: Tensor,
    bias: Tensor | None,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    out_channels: int,
) -> Tensor:
    """Return the convolution of images, in as many groups as the rows of the matrix leave.

    Args:
        input: [batch, in, height, width].
        panels: Those of the weights as a matrix of [kernel height * kernel width * in / groups, out].
        bias: [out].
        kernel: Height and width, like the following pairs.
        stride: Distance between the positions of the kernel.
        padding: Zeros on either side.
        dilation: Distance between the elements of the kernel.
        out_channels: The number of columns of the matrix.
    """
    weight = _filters(panels, kernel, out_channels)
    groups = input.shape[1] // weight.shape[1]
    return F.conv2d(input, weight, bias, stride, padding, dilation, groups)


@register_composite(
    "(Tensor input, Tensor panels, Tensor? bias, SymInt[2] kernel, SymInt[2] stride, SymInt[2] padding, "
    "SymInt[2] output_padding, SymInt out_channels) -> Tensor"
)
def packed_conv_transpose2d(
    input: Tensor,
    panels: Tensor,
    bias: Tensor | None,
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    output_padding: Sequence[int],
    out_channels: int,
) -> Tensor:
    """Return the transposed convolution of images, in one group and without dilation.

    Args:
        input: [batch, in, height, width].
        panels: Those of the weights as a matrix of [kernel height * kernel width * in, out].
        bias: [out].
        kernel: Height and width, like the following pairs.
        stride: Distance between the results of neighbouring pixels.
        padding: Rows that the result lacks on either side.
        output_padding: Rows that it has more on one side.
        out_channels: The number of columns of the matrix.
    """
    weight = _filters(panels, kernel, out_channels).transpose(0, 1)
    return F.conv_transpose2d(input, weight, bias, stride, padding, output_padding)


def _filters(panels: Tensor, kernel: Sequence[int], out_channels: int) -> Tensor:
    """Return the weights of [out, in / groups, *kernel] that panels were made of."""
    return matrix_of(panels)[:, :out_channels].reshape(*kernel, -1, out_channels).permute(3, 2, 0, 1)


def matrix_of(panels: Tensor) -> Tensor:
    """Return the matrix that panels were made of, with the columns that fill the last one."""
    count, rows, width = panels.shape
    return panels.transpose(0, 1).reshape(rows, count * width)

"""The content of tensors: as bytes, and as numbers that are compared."""

from __future__ import annotations

import ctypes

import torch

from npu_ir.core.types import TensorType

# By size in bytes, a dtype whose elements move unchanged: some dtypes (int1, ..., uint7) cannot be copied.
BITS_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}


def tensor_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the elements of ``tensor`` as a 1-D uint8 tensor on the CPU, in row-major order.

    For a quantized tensor these are the integers, without scale and zero point.
    """
    # view() of a quantized tensor kills the process.
    stored = tensor.int_repr() if tensor.is_quantized else tensor
    resolved = stored.detach().resolve_conj().resolve_neg().cpu()
    if not resolved.numel():
        return torch.empty(0, dtype=torch.uint8, device="cpu")
    packed = resolved.view(BITS_OF_SIZE[tensor.itemsize]).contiguous()
    # Not reshape(-1): an axis of size 1 may have any stride, and keeps it.
    return packed.as_strided((packed.numel(),), (1,)).view(torch.uint8)


def content_buffer(content: torch.Tensor) -> memoryview:
    """Return the memory of a 1-D uint8 CPU tensor, without NumPy; valid while the tensor lives."""
    if not content.numel():
        return memoryview(bytearray())
    return memoryview((ctypes.c_ubyte * content.numel()).from_address(content.data_ptr())).cast("B")


def same_data(left: torch.Tensor | None, right: torch.Tensor | None) -> bool:
    """Return whether two tensors agree in shape, dtype and bits; if quantized, also in quantization."""
    if left is None or right is None:
        return left is right
    if left.is_quantized and right.is_quantized:
        return left.dtype == right.dtype and torch.equal(left.cpu(), right.cpu())
    if TensorType.of(left).same_shape_and_dtype(TensorType.of(right)):
        return torch.equal(tensor_bytes(left), tensor_bytes(right))
    return False


def equal_elements(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return which elements of two tensors are the same number: NaN equals NaN, and 0.0 equals -0.0."""
    return (left == right) | (left.isnan() & right.isnan())


def largest_magnitude(tensor: torch.Tensor) -> float:
    """Return the largest finite magnitude in a non-empty tensor of floating-point or complex numbers."""
    return float(torch.where(tensor.isfinite(), tensor.abs(), 0.0).max())

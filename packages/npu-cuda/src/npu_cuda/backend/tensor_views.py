"""Readings: shape and strides in which a kernel gets a tensor, its own or others over its memory."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from npu_ir import TensorType
from npu_ir.core.types import contiguous_strides
from npu_ir.plugins.backend import BackendOp, Operand


@dataclass(frozen=True, slots=True)
class TensorView:
    """A view of a tensor as passed to a kernel.

    Attributes:
        dtype: The name in PyTorch: "float32".
        shape: Sizes.
        strides: In elements.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    def from_type(cls, type: TensorType) -> TensorView:
        return cls(str(type.dtype).removeprefix("torch."), type.static_shape, type.static_strides)

    def with_shape(self, shape: Sequence[int], strides: Sequence[int]) -> TensorView:
        return TensorView(self.dtype, tuple(shape), tuple(strides))


def tensor_type(operand: Operand) -> TensorType:
    """Return the type of a value or temporary that is a tensor."""
    assert isinstance(operand.type, TensorType)
    return operand.type


def views_of(op: BackendOp) -> tuple[TensorView, ...]:
    """Return the readings of the tensors of ``op``, inputs first."""
    plain = [TensorView.from_type(tensor_type(item)) for item in (*op.inputs, *op.outputs)]
    return tuple(_BY_KIND.get(op.kind, list)(plain))


def is_column_major(type: TensorType) -> bool:
    """Return whether a matrix is column-major; `views_of` a Gemm then has its transpose."""
    return type.strides is not None and type.rank == 2 and type.static_strides == (1, type.static_shape[0])


def _as_matrices(plain: Sequence[TensorView]) -> list[TensorView]:
    """Return rows of vectors as one matrix, and column-major matrices as their transposes."""
    return [_as_matrix(item) for item in plain]


def _as_matrix(reading: TensorView) -> TensorView:
    shape, strides = reading.shape, reading.strides
    if strides == contiguous_strides(shape):
        flat = (math.prod(shape[:-1]), shape[-1] if shape else 1)
        return reading.with_shape(flat, contiguous_strides(flat))  # type: ignore[arg-type]
    if len(shape) == 2 and strides == (1, shape[0]):
        return reading.with_shape(shape[::-1], strides[::-1])
    return reading


def _broadcast_source(plain: Sequence[TensorView]) -> list[TensorView]:
    """Return the source of a copy expanded to the shape of its target."""
    source, target = plain
    missing = len(target.shape) - len(source.shape)
    if missing < 0 or any(
        size not in (1, wanted) for size, wanted in zip(source.shape, target.shape[missing:], strict=True)
    ):
        return [source, target]
    pairs = zip(source.shape, source.strides, target.shape[missing:], strict=True)
    strides = [0 if size != wanted else stride for size, stride, wanted in pairs]
    return [source.with_shape(target.shape, (*[0] * missing, *strides)), target]


_BY_KIND: Mapping[str, Callable[[Sequence[TensorView]], list[TensorView]]] = {
    "Copy": _broadcast_source,
    "Gemm": _as_matrices,
}

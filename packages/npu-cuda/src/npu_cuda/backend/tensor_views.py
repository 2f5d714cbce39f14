"""Views: shape and strides in which a kernel gets a tensor, its own or others over its memory."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from npu_cuda import _C
from npu_ir import TensorType
from npu_ir.core.types import Type
from npu_ir.plugins.backend import BackendOp, Operand

ALIGNMENT = 16  # bytes; that of most PyTorch memory, and of the widest loads


@dataclass(frozen=True)
class TensorView:
    """A view of a tensor as passed to a kernel; what the native part knows it by is made once.

    Attributes:
        dtype: The name in PyTorch: "float32".
        shape: Sizes.
        strides: In elements.
    """

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    @classmethod
    @functools.lru_cache(maxsize=4096)  # a graph has few types, and each is asked for many times
    def from_type(cls, type: Type) -> TensorView:
        assert isinstance(type, TensorType)
        return cls(str(type.dtype).removeprefix("torch."), type.static_shape, type.static_strides)

    @functools.cached_property
    def spec(self) -> _C.TensorSpec:
        """Its description for the native part, in memory that is aligned as its items are."""
        return _C.TensorSpec(self.dtype, self.shape, self.strides, 0)

    @functools.cached_property
    def aligned_spec(self) -> _C.TensorSpec:
        """Its description in memory that is aligned to `ALIGNMENT`."""
        return _C.TensorSpec(self.dtype, self.shape, self.strides, ALIGNMENT)

    def with_shape(self, shape: Sequence[int], strides: Sequence[int]) -> TensorView:
        return TensorView(self.dtype, tuple(shape), tuple(strides))


def tensor_type(operand: Operand) -> TensorType:
    """Return the type of a value or temporary that is a tensor."""
    assert isinstance(operand.type, TensorType)
    return operand.type


def views_of(op: BackendOp) -> tuple[TensorView, ...]:
    """Return the views of the tensors of ``op``, inputs first."""
    plain = [TensorView.from_type(item.type) for item in (*op.inputs, *op.outputs)]
    return tuple(_BY_KIND.get(op.kind, list)(plain))


def _as_matrices(plain: Sequence[TensorView]) -> list[TensorView]:
    """Return a vector on the left as a row, one on the right as a column, and the result as their product."""
    left, right, *addends, result = plain
    if len(right.shape) == 1:
        right, result = _with_axis(right, 1), _with_axis(result, len(result.shape))
    if len(left.shape) == 1:
        left, result = _with_axis(left, 0), _with_axis(result, len(result.shape) - 1)
    return [left, right, *addends, result]


def _with_axis(view: TensorView, axis: int) -> TensorView:
    """Return a view with one more axis, of size 1."""
    shape, strides = view.shape, view.strides
    return view.with_shape((*shape[:axis], 1, *shape[axis:]), (*strides[:axis], 1, *strides[axis:]))


def _as_one_group(plain: Sequence[TensorView]) -> list[TensorView]:
    """Return the panels of a convolution as those of its only group."""
    image, panels, *others = plain
    return [image, _with_axis(panels, 0), *others]


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
    "PackedConv": _as_one_group,
}

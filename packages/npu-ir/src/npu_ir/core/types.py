"""Types of values: shape, dtype and, unless contiguous, strides of a tensor, or the kind of a scalar."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias, cast, get_args

import torch

from npu_ir.errors import GraphError, ParseError
from npu_ir.symbolic.expressions import Dim, substitute_symbols, symbols_in

ScalarKind: TypeAlias = Literal["int", "float", "bool", "none"]
SCALAR_KINDS: tuple[str, ...] = get_args(ScalarKind)

_SHORT_NAMES = {
    "float64": "f64",
    "float32": "f32",
    "float16": "f16",
    "bfloat16": "bf16",
    "int64": "i64",
    "int32": "i32",
    "int16": "i16",
    "int8": "i8",
    "uint64": "u64",
    "uint32": "u32",
    "uint16": "u16",
    "uint8": "u8",
    "bool": "bool",
    "complex128": "c128",
    "complex64": "c64",
    "complex32": "c32",
}


def _all_dtypes() -> dict[str, torch.dtype]:
    dtypes = {value for value in vars(torch).values() if isinstance(value, torch.dtype)}
    return {str(dtype).removeprefix("torch."): dtype for dtype in sorted(dtypes, key=str)}


_TORCH_NAMES = _all_dtypes()
_NAME_OF = {dtype: _SHORT_NAMES.get(name, name) for name, dtype in _TORCH_NAMES.items()}
_DTYPE_OF = {**_TORCH_NAMES, **{name: dtype for dtype, name in _NAME_OF.items()}}


def dtype_name(dtype: torch.dtype) -> str:
    """Return the short name of ``dtype``: ``f32``, ``bf16``, ``float8_e4m3fn``, ..."""
    return _NAME_OF[dtype]


def is_dtype_name(name: str) -> bool:
    """Return whether ``parse_dtype`` accepts ``name``."""
    return name in _DTYPE_OF


def parse_dtype(name: str) -> torch.dtype:
    """Return the dtype called ``name``, in its short form (``f32``) or torch's (``float32``).

    Raises:
        ParseError: PyTorch has no such dtype.
    """
    if name not in _DTYPE_OF:
        raise ParseError(f"unknown dtype {name!r}", fix=f"use one of {', '.join(_NAME_OF.values())}")
    return _DTYPE_OF[name]


def contiguous_strides(shape: Sequence[Dim]) -> tuple[Dim, ...]:
    """Return the row-major strides of ``shape``, in elements; a symbolic size counts as not 0."""
    strides: list[Dim] = []
    step: Dim = 1
    for size in reversed(shape):
        strides.append(step)
        if size.__class__ is not int or size > 1:  # by class: an expression has no order
            step *= size
    return tuple(reversed(strides))


_CHANNELS_LAST_ORDER = {4: (1, 3, 2, 0), 5: (1, 4, 3, 2, 0)}


def memory_format_strides(shape: Sequence[Dim], memory_format: torch.memory_format) -> tuple[Dim, ...]:
    """Return the strides, in elements, of a tensor of ``shape`` in ``memory_format``.

    Raises:
        ParseError: ``channels_last`` of a shape that is not 4-D, or ``channels_last_3d`` not 5-D.
    """
    if memory_format == torch.contiguous_format:
        return contiguous_strides(shape)
    rank = {torch.channels_last: 4, torch.channels_last_3d: 5}.get(memory_format)
    if rank is None or len(shape) != rank:
        raise ParseError(f"a tensor of shape {list(shape)} has no strides in {memory_format}")
    strides: list[Dim] = [0] * rank
    step: Dim = 1
    for axis in _CHANNELS_LAST_ORDER[rank]:
        strides[axis] = step
        # No max(size, 1), unlike contiguous strides: here an empty axis makes PyTorch's outer strides 0.
        step *= shape[axis]
    return tuple(strides)


@dataclass(frozen=True, slots=True)
class TensorType:
    """The type of a tensor value.

    Attributes:
        shape: Sizes, outermost first; ``()`` for a 0-d tensor.
        dtype: Element type.
        strides: In elements; None if the tensor is contiguous (row-major), or not strided.
        layout: ``torch.strided``, or the layout of a sparse tensor.

    Raises:
        GraphError: Sizes or strides are not a tuple; what is in it is checked with the graph.
    """

    shape: tuple[Dim, ...]
    dtype: torch.dtype
    strides: tuple[Dim, ...] | None = None
    layout: torch.layout = torch.strided

    def __post_init__(self) -> None:
        if not (isinstance(self.shape, tuple) and isinstance(self.strides, (tuple, type(None)))):
            given = self.shape, self.dtype, *(() if self.strides is None else (self.strides,))
            raise GraphError(
                f"a tensor has a tuple of sizes and a dtype, not {', '.join(map(repr, given))}",
                fix="give them in this order: TensorType((2, 3), torch.float32)",
            )

    @classmethod
    def of(cls, tensor: torch.Tensor) -> TensorType:
        """Return the type of ``tensor``, which may be real, meta or fake, but has integer sizes."""
        if tensor.layout is not torch.strided:
            return cls(tuple(tensor.shape), tensor.dtype, layout=tensor.layout)
        strides = None if tensor.is_contiguous() else tuple(tensor.stride())
        return cls(tuple(tensor.shape), tensor.dtype, strides)

    @property
    def symbols(self) -> set[str]:
        """The names of the symbols in its sizes and strides."""
        sizes = self.shape if self.strides is None else (*self.shape, *self.strides)
        for size in sizes:
            if size.__class__ is not int:
                return symbols_in(sizes)
        return set()  # the usual case

    def substitute(self, values: Mapping[str, Dim]) -> TensorType:
        """Return the type with symbols replaced."""
        if not self.symbols:
            return self
        shape = tuple(substitute_symbols(size, values) for size in self.shape)
        strides = (
            None if self.strides is None else tuple(substitute_symbols(item, values) for item in self.strides)
        )
        return replace(self, shape=shape, strides=None if strides == contiguous_strides(shape) else strides)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def static_shape(self) -> tuple[int, ...]:
        """The static shape: all sizes as integers, as for every weight.

        Raises:
            GraphError: A size is symbolic.
        """
        return _require_integers(self, self.shape)

    @property
    def static_strides(self) -> tuple[int, ...]:
        """The static strides, in elements: integers, for contiguous tensors, too.

        Raises:
            GraphError: A size or stride is symbolic.
        """
        return _require_integers(
            self, contiguous_strides(self.shape) if self.strides is None else self.strides
        )

    @property
    def numel(self) -> Dim:
        count: Dim = 1
        for size in self.shape:
            count *= size
        return count

    @property
    def nbytes(self) -> Dim:
        return self.numel * self.dtype.itemsize

    @property
    def memory_format(self) -> torch.memory_format | None:
        """The memory format: contiguous, ``channels_last`` or ``channels_last_3d``; None for any other."""
        if self.strides is None:
            return torch.contiguous_format if self.layout is torch.strided else None
        named = {4: torch.channels_last, 5: torch.channels_last_3d}.get(self.rank)
        if named is not None and self.strides == memory_format_strides(self.shape, named):
            return named
        return None

    def same_shape_and_dtype(self, other: object) -> bool:
        """Return whether ``other`` is a tensor type that differs at most in strides."""
        return isinstance(other, TensorType) and (self.shape, self.dtype, self.layout) == (
            other.shape,
            other.dtype,
            other.layout,
        )

    def __str__(self) -> str:
        text = f"{dtype_name(self.dtype)}[{', '.join(map(str, self.shape))}]"
        if self.layout is not torch.strided:
            return f"{text}@{str(self.layout).removeprefix('torch.')}"
        if self.strides is None:
            return text
        if self.memory_format is not None:
            return f"{text}@{str(self.memory_format).removeprefix('torch.')}"
        return f"{text}@[{', '.join(map(str, self.strides))}]"


def dense_type(shape: tuple[int, ...], dtype: torch.dtype, strides: Sequence[Dim] | None) -> TensorType:
    """Return a type of these strides: without any where the tensor is contiguous, as PyTorch defines it."""
    if strides is not None and 0 not in shape:
        for size, stride, usual in zip(shape, strides, contiguous_strides(shape), strict=True):
            if size != 1 and stride != usual:
                return TensorType(shape, dtype, tuple(strides))
    return TensorType(shape, dtype)


def _require_integers(type: TensorType, dims: Sequence[Dim]) -> tuple[int, ...]:
    for dim in dims:
        if dim.__class__ is not int and not isinstance(dim, int):
            raise GraphError(
                f"{type} has symbolic sizes", fix="specialize the graph first: graph.specialize({...})"
            )
    return cast("tuple[int, ...]", tuple(dims))


@dataclass(frozen=True, slots=True)
class ScalarType:
    """The type of a value that is not a tensor: a Python number, or the None that an op returns.

    Numbers are sizes, results of arithmetic on sizes, and results of ``.item()``. Ops return None in place of
    a tensor that they do not have to compute (``output_mask`` of the backward ops).

    Attributes:
        kind: The Python type.
        value: The value of an integer, or its expression in the graph's symbols, if known: ``int(2*s0)``.
    """

    kind: ScalarKind
    value: Dim | None = None

    @property
    def symbols(self) -> set[str]:
        """The names of the symbols in its value."""
        return symbols_in((self.value,))

    def substitute(self, values: Mapping[str, Dim]) -> ScalarType:
        """Return the type with symbols replaced."""
        return replace(self, value=substitute_symbols(self.value, values))

    def __str__(self) -> str:
        return self.kind if self.value is None else f"{self.kind}({self.value})"


Type: TypeAlias = TensorType | ScalarType


def type_of(value: object) -> Type:
    """Return the type of a tensor, a Python number or None.

    Raises:
        ParseError: ``value`` is of any other kind.
    """
    if isinstance(value, torch.Tensor):
        return TensorType.of(value)
    if value is None:
        return ScalarType("none")
    for kind, python_type in (("bool", bool), ("int", int), ("float", float)):
        if isinstance(value, python_type):
            return ScalarType(kind)  # type: ignore[arg-type]
    raise ParseError(f"a value of type {type(value).__name__} has no type in the graph")

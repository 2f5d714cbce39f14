"""Guards on the tensors of a call, learned from calls that fit: one call into C for all of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch

from npu_ir import TensorType
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.core.types import contiguous_strides
from npu_runtime._torch.tensors import make_tensor_guard

# The expected sizes or strides; None where they depend on the call.
Extents: TypeAlias = "tuple[int | None, ...]"

# Not subclasses, which may override operators.
_EXACT_TYPES = (torch.Tensor, torch.nn.Parameter)
# A caller may alternate between tensors with and without gradients, in inference mode and out of it.
_MAX_KNOWN = 8


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """Dtype, sizes and strides of the tensors of a type, as far as they are known ahead of a call."""

    dtype: torch.dtype
    sizes: Extents
    strides: Extents

    @classmethod
    def of(cls, type: TensorType) -> TensorLayout:
        """Return the layout of a strided type; the strides of a contiguous one follow from its sizes."""
        strides = contiguous_strides(type.shape) if type.strides is None else type.strides
        return cls(type.dtype, _known_extents(type.shape), _known_extents(strides))

    def fits(self, item: Any, device: torch.device) -> bool:
        """Return whether an item is an ordinary tensor of this layout, not negated lazily."""
        return (
            type(item) in _EXACT_TYPES
            and item.layout is torch.strided
            and item.dtype is self.dtype
            and item.device == device
            and not item.is_neg()
            and len(item.shape) == len(self.sizes)
            and _agree(item.shape, self.sizes)
            and _agree(item.stride(), self.strides)
        )


def _known_extents(extents: Sequence[Any]) -> Extents:
    return tuple(extent if isinstance(extent, int) else None for extent in extents)


def _agree(extents: Sequence[int], wanted: Extents) -> bool:
    # Equally many: `fits` has compared the ranks.
    return all(
        expected is None or extent == expected
        for extent, expected in zip(extents, wanted)  # noqa: B905
    )


def _are_distinct(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether each tensor is another object, as guards require."""
    return len({*map(id, tensors)}) == len(tensors)


class TensorGuards:
    """Guards on the tensors of calls that fit.

    Attributes:
        known: The guards, the most frequent first, each with the values of the symbols in all sizes of its
            tensors; None where sizes are left open.
    """

    def __init__(self, layouts: Sequence[TensorLayout], device: torch.device) -> None:
        self._layouts = layouts
        self._device = device
        self._latest: dict[str, int] = {}
        # Changed in place: generated code holds it. Concurrent calls may miss a guard, and check again.
        self.known: list[tuple[Callable[..., bool], SymbolValues | None]] = []

    def fit(self, *tensors: Any) -> bool:
        """Return whether tensors have their layouts; if so, learn a guard that holds for such tensors."""
        fits = (layout.fits(item, self._device) for layout, item in zip(self._layouts, tensors, strict=True))
        if not all(fits):
            return False
        if _are_distinct(tensors) and len(self.known) < _MAX_KNOWN:
            sizes, strides = zip(*((item.sizes, item.strides) for item in self._layouts), strict=True)
            self.known.append((make_tensor_guard(tensors, sizes, strides), None))
        return True

    def pin(self, symbols: SymbolValues, *tensors: torch.Tensor) -> None:
        """Learn a guard on all sizes of tensors that fit, if those of the call before were the same."""
        if symbols.values != self._latest or not _are_distinct(tensors):
            self._latest = dict(symbols.values)
            return
        sizes, strides = zip(*((item.shape, item.stride()) for item in tensors), strict=True)
        pinned = make_tensor_guard(tensors, sizes, strides), symbols
        self.known[:] = [pinned, *(item for item in self.known if item[1] is None)]

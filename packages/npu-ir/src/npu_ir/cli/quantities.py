"""Human-readable numbers and results: bytes, times, counts, contents of tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from npu_ir.core.types import type_of

_UNITS = (" B", " KB", " MB", " GB", " TB")
_SHOWN_ELEMENTS = 8


def size_text(count: int) -> str:
    """Return a number of bytes in the unit that fits: ``97.8 MB``; 1 MB is 1000 KB."""
    return scaled_text(count, _UNITS)


def scaled_text(count: int, units: Sequence[str]) -> str:
    """Return a number with three digits and the unit that fits; each is 1000 of the one before."""
    number, index = float(count), 0
    while number >= 999.5 and index < len(units) - 1:
        number, index = number / 1000, index + 1
    return f"{number:.3g}{units[index]}"


def time_text(seconds: float) -> str:
    """Return a time in the unit that fits: ``12.3 us``."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if abs(seconds) * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def count_text(count: int, noun: str) -> str:
    """Return ``1 node`` or ``1,234 nodes``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def value_line(value: Any) -> str:
    """Return the type and content of a result: all elements if there are few, else statistics."""
    if not isinstance(value, torch.Tensor):
        return repr(value)
    return f"{type_of(value)}  {_content_text(value)}"


def _content_text(tensor: torch.Tensor) -> str:
    if not tensor.numel():
        return "empty"
    try:
        if tensor.numel() <= _SHOWN_ELEMENTS:
            return _elements_text(tensor.tolist())
        return _statistics_text(tensor)
    except (RuntimeError, NotImplementedError):
        return "(PyTorch cannot read the elements of this dtype)"


def _elements_text(items: Any) -> str:
    if isinstance(items, list):
        return f"[{', '.join(map(_elements_text, items))}]"
    return f"{items:.6g}" if isinstance(items, (float, complex)) else str(items)


def _statistics_text(tensor: torch.Tensor) -> str:
    if tensor.dtype == torch.bool:
        return f"{int(tensor.sum()):,} of {tensor.numel():,} true"
    wide = tensor.abs() if tensor.is_complex() else tensor
    wide = wide.to(torch.float64).flatten()
    finite = wide[wide.isfinite()]
    parts = []
    if finite.numel():
        name = "abs " if tensor.is_complex() else ""
        parts = [f"{name}min {finite.min():.6g}", f"mean {finite.mean():.6g}", f"max {finite.max():.6g}"]
    return ", ".join([*parts, *_count_nonfinite(wide)])


def _count_nonfinite(wide: torch.Tensor) -> list[str]:
    counts = {
        "nan": int(wide.isnan().sum()),
        "inf": int((wide == torch.inf).sum()),
        "-inf": int((wide == -torch.inf).sum()),
    }
    return [f"{count:,} {name}" for name, count in counts.items() if count]

"""Human-readable numbers: bytes, times, counts."""

from __future__ import annotations

_UNITS = ("B", "KB", "MB", "GB", "TB")


def size_text(count: int) -> str:
    """Return a number of bytes in the unit that fits: ``97.8 MB``; 1 MB is 1000 KB."""
    size, unit = float(count), 0
    while size >= 999.5 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{count} B" if unit == 0 else f"{size:.3g} {_UNITS[unit]}"


def time_text(seconds: float) -> str:
    """Return a time in the unit that fits: ``12.3 us``."""
    for factor, unit in ((1e6, "us"), (1e3, "ms")):
        if abs(seconds) * factor < 999.5:
            return f"{seconds * factor:.3g} {unit}"
    return f"{seconds:.3g} s"


def count_text(count: int, noun: str) -> str:
    """Return ``1 node`` or ``1,234 nodes``."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"

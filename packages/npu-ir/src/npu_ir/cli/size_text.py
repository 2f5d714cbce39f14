"""What ``--size`` and ``npu specialize`` accept: ``batch=8``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from npu_ir.errors import UsageError

_SIZE = re.compile(r"([A-Za-z_]\w*)=(-?\d+)", re.ASCII)


def parse_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Return the value of each symbol.

    Raises:
        UsageError: One of them cannot be read, or a symbol is given twice.
    """
    sizes: dict[str, int] = {}
    for text in texts:
        match = _SIZE.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"{text!r} is no size", fix="write SYMBOL=NUMBER, such as batch=8")
        if match[1] in sizes:
            raise UsageError(f"the size {match[1]!r} is given twice")
        sizes[match[1]] = int(match[2])
    return sizes


def sizes_text(sizes: Mapping[str, int], given: Collection[str]) -> str:
    """Return the sizes that inputs were made with, and how to change those that nobody asked for."""
    taken = [name for name in sizes if name not in given]
    note = f" (--size {taken[0]}=N for another one)" if taken else ""
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) + note

"""Values of ``--size`` and arguments of ``npu specialize``: ``batch=8``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from npu_ir.errors import UsageError

_SIZE = re.compile(r"([A-Za-z_]\w*)=(-?\d+)", re.ASCII)


def parse_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Parse the values of symbols.

    Raises:
        UsageError: One of them is malformed, or a symbol is given twice.
    """
    sizes: dict[str, int] = {}
    for text in texts:
        match = _SIZE.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"{text!r} is not a size", fix="write SYMBOL=NUMBER, such as batch=8")
        if match[1] in sizes:
            raise UsageError(f"the size {match[1]!r} is given twice")
        sizes[match[1]] = int(match[2])
    return sizes


def sizes_text(sizes: Mapping[str, int], given: Collection[str]) -> str:
    """Return the sizes of generated inputs, with a hint how to change those that were not given."""
    defaults = [name for name in sizes if name not in given]
    note = f" (--size {defaults[0]}=N for another one)" if defaults else ""
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) + note

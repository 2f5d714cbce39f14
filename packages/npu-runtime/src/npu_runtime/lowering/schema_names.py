"""Readable names of attribute schema ids."""

from __future__ import annotations


def schema_name(schema_id: int) -> str:
    """Return the four ASCII letters that an id encodes, the first in its lowest byte; hex if it encodes none.

    The id 0 means no schema and returns "".

    Source: kernels define their ids so, ``int.from_bytes(b"GEMM", "little")``.
    """
    if not schema_id:
        return ""
    if not 0 <= schema_id < 1 << 32:
        return hex(schema_id)
    letters = schema_id.to_bytes(4, "little")
    is_text = all(0x20 < letter < 0x7F for letter in letters)
    return letters.decode("ascii") if is_text else hex(schema_id)

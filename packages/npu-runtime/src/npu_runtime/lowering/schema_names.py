"""The ids of attribute schemas as people write them."""

from __future__ import annotations


def schema_name(schema_id: int) -> str:
    """Return the four letters that an id consists of, the first one in its lowest byte; a number in hex otherwise.

    0 stands for no schema: "".

    Source: kernels name their schemas so, ``int.from_bytes(b"GEMM", "little")``.
    """
    if not schema_id:
        return ""
    if not 0 <= schema_id < 1 << 32:
        return hex(schema_id)
    letters = schema_id.to_bytes(4, "little")
    is_text = all(0x20 < letter < 0x7F for letter in letters)
    return letters.decode("ascii") if is_text else hex(schema_id)

"""Compatibility of the operator schemas of a saved graph with those of this process."""

from __future__ import annotations

from typing import Any

from npu_ir._torch.ops import accepts_calls_of
from npu_ir.ops.schema import resolve
from npu_ir.serial.strict_json import Location, read_text

_MAX_NESTING = 16


def current_schemas(op_types: set[str]) -> dict[str, str]:
    """Return the schemas of those ops that are registered in this process, sorted by name."""
    ops = {op_type: resolve(op_type) for op_type in sorted(op_types)}
    return {op_type: str(op._schema) for op_type, op in ops.items() if op is not None}


def require_compatible_schemas(schemas: dict[str, Any], place: Location) -> None:
    """Verify that calls of the stored schemas have the same meaning for the operators of this process.

    Raises:
        SerializationError: An operator's schema has changed; names it and both schemas.
    """
    for op_type, stored in schemas.items():
        read_text(stored, place, op_type)
        op = resolve(op_type)
        if op is None or str(op._schema) == stored:
            continue
        if not _is_safe_to_parse(stored) or not accepts_calls_of(op, stored):
            raise place.at(op_type).error(
                f"{op_type} has another schema here: the file has {stored[:500]!r}, "
                f"this PyTorch has {str(op._schema)!r}",
                "use the PyTorch the file was made with, or export the model again",
            )


def _is_safe_to_parse(schema: str) -> bool:
    """Return whether ``schema`` is safe to pass to torch's schema parser.

    The parser recurses without a limit: deep nesting overflows the C stack and ends the process (torch 2.13).
    """
    depth = deepest = 0
    for char in schema:
        depth += (char in "([") - (char in ")]")
        deepest = max(deepest, depth)
    return schema.isascii() and deepest <= _MAX_NESTING

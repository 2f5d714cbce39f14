"""Attributes of ops in native form: a schema id and bytes, packed by the schemas of the C++ side."""

from __future__ import annotations

import struct
from typing import Any

from npu_cuda import _C
from npu_cuda.errors import InvalidArgumentError

INTEGER_CODES = "iIqQ"
# The schemas of the C++ side by name, which stay once they are there.
_SCHEMAS: dict[str, dict[str, Any]] = {}


def attrs(schema: str, /, **fields: float) -> tuple[int, bytes]:
    """Return ``(schema_id, attrs_bytes)`` for ``op_call`` and ``Program.add``.

    Args:
        schema: The name of a schema: "GEMM". ``ops()`` lists the schema of each op.
        **fields: Values by name; the others get their defaults. ``attr_schemas()`` lists both.

    Raises:
        InvalidArgumentError: There is no such schema or field, or a number does not fit into its field.
        TypeError: A value is not a number, or not an integer where one is required.
    """
    if schema not in _SCHEMAS:
        _SCHEMAS.update(_C.attr_schemas())  # all of them, in a new dict: not for each call
    known = _SCHEMAS.get(schema)
    if known is None:
        raise InvalidArgumentError(
            f"attrs: there is no schema {schema!r}; there are {', '.join(sorted(_SCHEMAS))}"
        )
    names = [name for name, _, _ in known["fields"]]
    for name in fields:
        if name not in names:
            raise InvalidArgumentError(
                f"attrs: {schema} has no field {name!r}; it has {', '.join(names) or 'none'}"
            )
    values = [
        _require_number(schema, name, code, fields.get(name, default))
        for name, code, default in known["fields"]
    ]
    try:
        return known["id"], struct.pack(known["format"], *values)
    except (struct.error, OverflowError):
        for (name, code, _), value in zip(known["fields"], values, strict=True):
            _require_fit(schema, name, code, value)
        raise


def _require_number(schema: str, name: str, code: str, value: object) -> float:
    """Return the value if it is a number as this format code of ``struct`` takes."""
    wanted = "an int" if code in INTEGER_CODES else "a number"
    is_right = isinstance(value, int) if code in INTEGER_CODES else isinstance(value, (int, float))
    if not is_right or isinstance(value, bool):
        raise TypeError(f"attrs: {schema}.{name} must be {wanted}, not {type(value).__name__}")
    assert isinstance(value, (int, float))
    return value


def _require_fit(schema: str, name: str, code: str, value: float) -> None:
    """Refuse a value that ``struct`` cannot pack with this format code."""
    try:
        struct.pack(f"<{code}", value)
    except (struct.error, OverflowError) as error:
        raise InvalidArgumentError(
            f"attrs: {schema}.{name} is {value}, which does not fit: {error}"
        ) from error

"""JSON output of commands."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from npu_ir.errors import SerializationError


def write_json(data: Any, path: Path, what: str) -> None:
    """Write plain data to a file as JSON.

    Raises:
        SerializationError: The file cannot be written.
    """
    try:
        path.write_text(json.dumps(data, indent=2, allow_nan=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise SerializationError(
            f"{what} cannot be written: {error.strerror or error}",
            where=str(path),
            fix="check that the folder exists and may be written to",
        ) from error

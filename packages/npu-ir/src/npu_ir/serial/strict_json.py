"""Strict JSON reader: rejects the extensions that Python's ``json`` accepts."""

from __future__ import annotations

import json
import math
import os
import stat
from pathlib import Path
from typing import Any, BinaryIO

from npu_ir.errors import SerializationError
from npu_ir.serial.location import DAMAGED, short_repr

# A document of this size holds about three million nodes.
MAX_DOCUMENT_BYTES = 1 << 30


def parse_json(data: bytes, file: str) -> Any:
    """Parse the UTF-8 text ``data`` as JSON.

    Rejects input that JSON does not define or that Python silently changes: NaN and Infinity, numbers too
    large for a float, duplicate keys.

    Args:
        data: The whole text.
        file: File name for errors.

    Raises:
        SerializationError: ``data`` is not such a text; says where.
    """
    try:
        return json.loads(
            data.decode("utf-8"),
            object_pairs_hook=_build_object,
            parse_constant=_reject_constant,
            parse_float=_parse_finite,
        )
    except json.JSONDecodeError as error:
        where = f"{file}, line {error.lineno}, column {error.colno}"
        raise SerializationError(f"not valid JSON: {error.msg}", where=where, fix=DAMAGED) from error
    except UnicodeDecodeError as error:
        raise SerializationError(
            f"not UTF-8: {error.reason}", where=f"{file}, byte {error.start}", fix=DAMAGED
        ) from error
    except ValueError as error:
        raise SerializationError(f"not valid JSON: {error}", where=file, fix=DAMAGED) from error
    except RecursionError as error:
        raise SerializationError("nested too deeply", where=file, fix=DAMAGED) from error


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data = dict(pairs)
    if len(data) == len(pairs):
        return data
    seen: set[str] = set()
    twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
    raise ValueError(f"the key {short_repr(twice)} is given twice")


def _reject_constant(token: str) -> Any:
    raise ValueError(f"{token} is not a number")


def _parse_finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"the number {short_repr(text)} is too large")
    return value


def open_regular(path: Path) -> tuple[BinaryIO, int]:
    """Return ``path`` opened for reading, and its size in bytes.

    Raises:
        SerializationError: The file does not exist, cannot be opened, or is not a regular file.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            # Opening a pipe would block until there is a writer, and a device may be endless.
            raise SerializationError(
                "not a regular file", where=str(path), fix="give the path of a saved graph"
            )
        file = path.open("rb")
        return file, os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise SerializationError(
            f"cannot be read: {reason}", where=str(path), fix="check the path"
        ) from error


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        SerializationError: As for `open_regular` and `parse_json`; or the file is larger than 1 GiB.
    """
    file, size = open_regular(path)
    with file:
        if size > MAX_DOCUMENT_BYTES:
            raise SerializationError(
                f"{size} bytes are more than a document may have ({MAX_DOCUMENT_BYTES})", where=str(path)
            )
        try:
            data = file.read(size)
        except OSError as error:
            raise SerializationError(
                f"cannot be read: {error.strerror}", where=str(path), fix="check the disk"
            ) from error
    return parse_json(data, str(path))

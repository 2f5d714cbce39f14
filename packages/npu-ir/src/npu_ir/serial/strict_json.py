"""Strict JSON: a reader that rejects the extensions of Python, and checks that say where data is wrong."""

from __future__ import annotations

import contextlib
import json
import math
import os
import reprlib
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

from npu_ir.errors import GraphError, SerializationError

DAMAGED = "the file is damaged or was not written by npu-ir: save the graph again"
UPGRADE = "the file may have been made by a newer version of npu-ir: upgrade npu-ir"
# A document of this size holds about three million nodes.
MAX_DOCUMENT_BYTES = 1 << 30
_KINDS = {str: "a string", bool: "true or false", list: "a list", dict: "an object"}
T = TypeVar("T", str, bool, "list[Any]", "dict[str, Any]")


@dataclass(frozen=True, slots=True)
class Location:
    """A position in a file, formatted as ``model.json: nodes[12].attrs.dim``."""

    file: str
    path: str = ""

    def at(self, *steps: str | int) -> Location:
        path = self.path
        for step in steps:
            if isinstance(step, int):
                path += f"[{step}]"
            elif step.isidentifier():
                path += f".{step}" if path else step
            else:
                path += f"[{reprlib.repr(step)}]"
        return Location(self.file, path)

    def error(self, message: str, fix: str = DAMAGED) -> SerializationError:
        return SerializationError(message, where=str(self), fix=fix)

    @contextlib.contextmanager
    def translate_errors(self, *steps: str | int) -> Iterator[None]:
        """Convert errors of the graph to errors at this position."""
        try:
            yield
        except GraphError as error:
            raise self.at(*steps).error(error.message, error.fix or DAMAGED) from error

    def __str__(self) -> str:
        return f"{self.file}: {self.path}" if self.path else self.file


def short_repr(value: object) -> str:
    """Return the representation of ``value`` in an error: short, however large or deep it is."""
    return reprlib.repr(value)


@dataclass(frozen=True, slots=True)
class RecordKeys:
    """The keys an object must and may have."""

    required: frozenset[str]
    optional: frozenset[str] = frozenset()


# A reader gets the position of the enclosing data and the steps from there to its own: the path is only
# composed for errors.


def read_as(kind: type[T], data: Any, place: Location, *steps: str | int) -> T:
    """Return ``data`` if it is of this type of JSON; otherwise raise a `SerializationError`."""
    if type(data) is not kind:
        raise place.at(*steps).error(f"expected {_KINDS[kind]}, found {short_repr(data)}")
    return data


def read_pair(data: Any, place: Location, *steps: str | int) -> tuple[Any, Any]:
    """Return the items of ``data`` if it is a list of two; otherwise raise a `SerializationError`."""
    if type(data) is not list or len(data) != 2:
        raise place.at(*steps).error(f"expected a list of two, found {short_repr(data)}")
    return data[0], data[1]


def read_texts(data: Any, place: Location, *steps: str | int) -> list[str]:
    """Return ``data`` if it is a list of strings; otherwise raise a `SerializationError`."""
    items = read_as(list, data, place, *steps)
    for index, item in enumerate(items):
        read_as(str, item, place, *steps, index)
    return items


def read_record(data: Any, keys: RecordKeys, place: Location, *steps: str | int) -> dict[str, Any]:
    """Return ``data`` if it is an object with these keys; otherwise raise a `SerializationError`."""
    record = read_as(dict, data, place, *steps)
    if record.keys() == keys.required:
        return record
    missing = sorted(keys.required - record.keys())
    if missing:
        raise place.at(*steps).error(f"the key {missing[0]!r} is missing")
    unknown = sorted(record.keys() - keys.required - keys.optional)
    if unknown:
        raise place.at(*steps, unknown[0]).error("unknown key", UPGRADE)
    return record


_LENGTH_BYTES = 8  # of a header of safetensors, in front of it


def parse_json(data: bytes, file: str) -> Any:
    """Parse the UTF-8 text ``data`` as JSON.

    Rejects input that JSON does not define or that Python silently changes: NaN and Infinity, numbers too
    large for a float, duplicate keys.

    Raises:
        SerializationError: ``data`` is not such a text; says where in ``file``.
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
        if data[_LENGTH_BYTES : _LENGTH_BYTES + 1] == b"{":
            raise SerializationError(
                "this is a file of tensors, not a graph",
                where=file,
                fix="IRExecutor.load reads what executor.save wrote, load_weights weights",
            ) from error
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
            fix = "give the path of a saved graph"
            raise SerializationError("not a regular file", where=str(path), fix=fix)
        file = path.open("rb")
        return file, os.fstat(file.fileno()).st_size
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        problem = f"cannot be read: {reason}"
        raise SerializationError(problem, where=str(path), fix="check the path") from error


def read_json(path: Path) -> Any:
    """Return the content of a JSON file.

    Raises:
        SerializationError: As for `open_regular` and `parse_json`; or the file is larger than 1 GiB.
    """
    file, size = open_regular(path)
    with file:
        if size > MAX_DOCUMENT_BYTES:
            problem = f"{size} bytes are more than a document may have ({MAX_DOCUMENT_BYTES})"
            raise SerializationError(problem, where=str(path))
        try:
            data = file.read(size)
        except OSError as error:
            problem = f"cannot be read: {error.strerror}"
            raise SerializationError(problem, where=str(path), fix="check the disk") from error
    return parse_json(data, str(path))

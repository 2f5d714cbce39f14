"""Positions in a JSON file, and strict readers that report them in errors."""

from __future__ import annotations

import reprlib
from dataclasses import dataclass
from typing import Any

from npu_ir.errors import SerializationError

DAMAGED = "the file is damaged or was not written by npu-ir: save the graph again"
UPGRADE = "the file may have been made by a newer version of npu-ir: upgrade npu-ir"


@dataclass(frozen=True, slots=True)
class Location:
    """A position in a file, formatted as ``model.json: nodes[12].attrs.dim``."""

    file: str
    path: str = ""

    def at(self, *steps: str | int) -> Location:
        """Return the position reached from here by keys and indexes."""
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


def read_text(data: Any, place: Location, *steps: str | int) -> str:
    """Return ``data`` if it is a string; otherwise raise a `SerializationError`."""
    if type(data) is not str:
        raise place.at(*steps).error(f"expected a string, found {short_repr(data)}")
    return data


def read_flag(data: Any, place: Location, *steps: str | int) -> bool:
    """Return ``data`` if it is true or false; otherwise raise a `SerializationError`."""
    if type(data) is not bool:
        raise place.at(*steps).error(f"expected true or false, found {short_repr(data)}")
    return data


def read_items(data: Any, place: Location, *steps: str | int) -> list[Any]:
    """Return ``data`` if it is a list; otherwise raise a `SerializationError`."""
    if type(data) is not list:
        raise place.at(*steps).error(f"expected a list, found {short_repr(data)}")
    return data


def read_object(data: Any, place: Location, *steps: str | int) -> dict[str, Any]:
    """Return ``data`` if it is an object; otherwise raise a `SerializationError`."""
    if type(data) is not dict:
        raise place.at(*steps).error(f"expected an object, found {short_repr(data)}")
    return data


def read_pair(data: Any, place: Location, *steps: str | int) -> tuple[Any, Any]:
    """Return the items of ``data`` if it is a list of two; otherwise raise a `SerializationError`."""
    if type(data) is not list or len(data) != 2:
        raise place.at(*steps).error(f"expected a list of two, found {short_repr(data)}")
    return data[0], data[1]


def read_texts(data: Any, place: Location, *steps: str | int) -> list[str]:
    """Return ``data`` if it is a list of strings; otherwise raise a `SerializationError`."""
    items = read_items(data, place, *steps)
    for index, item in enumerate(items):
        read_text(item, place, *steps, index)
    return items


def read_record(data: Any, keys: RecordKeys, place: Location, *steps: str | int) -> dict[str, Any]:
    """Return ``data`` if it is an object with these keys.

    Raises:
        SerializationError: It is not an object, or a key is missing or unknown.
    """
    record = read_object(data, place, *steps)
    if record.keys() == keys.required:
        return record
    missing = sorted(keys.required - record.keys())
    if missing:
        raise place.at(*steps).error(f"the key {missing[0]!r} is missing")
    unknown = sorted(record.keys() - keys.required - keys.optional)
    if unknown:
        raise place.at(*steps, unknown[0]).error("unknown key", UPGRADE)
    return record

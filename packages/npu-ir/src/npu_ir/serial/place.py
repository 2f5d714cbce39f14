"""Where in a JSON file something stands, and strict readers that say so when it is wrong."""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from npu_ir.errors import SerializationError

DAMAGED = "the file is damaged or was not written by npu-ir: save the graph again"
UPGRADE = "the file may have been made by a newer version of npu-ir: upgrade npu-ir"

# Reads one JSON value, which stands at the place given.
Reader = Callable[[Any, "Place"], Any]


@dataclass(frozen=True, slots=True)
class Place:
    """A place in a file, written ``model.json: nodes[12].attrs.dim``."""

    file: str
    path: str = ""

    def at(self, *steps: str | int) -> Place:
        """Return the place that keys and indexes lead to from here."""
        path = self.path
        for step in steps:
            if isinstance(step, int):
                path += f"[{step}]"
            elif step.isidentifier():
                path += f".{step}" if path else step
            else:
                path += f"[{reprlib.repr(step)}]"
        return Place(self.file, path)

    def error(self, message: str, fix: str = DAMAGED) -> SerializationError:
        return SerializationError(message, where=str(self), fix=fix)

    def __str__(self) -> str:
        return f"{self.file}: {self.path}" if self.path else self.file


def shown(value: object) -> str:
    """Return ``value`` as an error shows it: short, however large or deep it is."""
    return reprlib.repr(value)


def read_record(data: Any, place: Place, required: frozenset[str], optional: frozenset[str] = frozenset()) -> dict[str, Any]:
    """Return ``data`` if it is an object with these keys.

    Raises:
        SerializationError: It is no object, or a key is missing or unknown.
    """
    if type(data) is not dict:
        raise place.error(f"expected an object, found {shown(data)}")
    if data.keys() == required:
        return data
    missing = sorted(required - data.keys())
    if missing:
        raise place.error(f"the key {missing[0]!r} is missing")
    unknown = sorted(data.keys() - required - optional)
    if unknown:
        raise place.at(unknown[0]).error("unknown key", UPGRADE)
    return data


def read_text(data: Any, place: Place) -> str:
    if type(data) is not str:
        raise place.error(f"expected a string, found {shown(data)}")
    return data


def read_flag(data: Any, place: Place) -> bool:
    if type(data) is not bool:
        raise place.error(f"expected true or false, found {shown(data)}")
    return data


def read_items(data: Any, place: Place) -> list[Any]:
    if type(data) is not list:
        raise place.error(f"expected a list, found {shown(data)}")
    return data


def read_pair(data: Any, place: Place) -> tuple[Any, Any]:
    if type(data) is not list or len(data) != 2:
        raise place.error(f"expected a list of two, found {shown(data)}")
    return data[0], data[1]


def read_each(data: Any, place: Place, read: Reader) -> list[Any]:
    """Return what ``read`` makes of each item of a list."""
    return [read(item, place.at(index)) for index, item in enumerate(read_items(data, place))]


def read_texts(data: Any, place: Place) -> list[str]:
    items = read_items(data, place)
    for index, item in enumerate(items):
        if type(item) is not str:
            read_text(item, place.at(index))
    return items

"""References of code: the globals, attributes and imports that a function may use, read from its bytecode."""

from __future__ import annotations

import dis
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR", "IMPORT_FROM")
_NAMES = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_WRITES = ("STORE_GLOBAL", "DELETE_GLOBAL")


@dataclass(frozen=True, slots=True)
class Reference:
    """A global that code reads, with the attributes that it reads of it at once: ``torch.nn.functional``."""

    name: str
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CodeReferences:
    """References of code, those of the functions and classes in it included.

    Attributes:
        globals: The globals that it reads, in order.
        attributes: The names of attributes that it uses, and its strings, which may be such names.
        imports: The modules that it imports, with the number of leading dots.
        written: The globals that it writes.
    """

    globals: tuple[Reference, ...]
    attributes: frozenset[str]
    imports: tuple[tuple[str, int], ...]
    written: tuple[str, ...]


def find_references(code: CodeType) -> CodeReferences:
    """Return what code refers to."""
    references: dict[Reference, None] = {}
    attributes: set[str] = set()
    imports: list[tuple[str, int]] = []
    written: list[str] = []
    for part in iterate_codes(code):
        attributes.update(_strings(part.co_consts))
        instructions = [item for item in dis.get_instructions(part) if item.opname != "CACHE"]
        for index, item in enumerate(instructions):
            if item.opname in _NAMES:
                following = instructions[index + 1 :]
                references[Reference(item.argval, tuple(_leading_attributes(following)))] = None
            elif item.opname in _ATTRIBUTES:
                attributes.add(item.argval)
            elif item.opname == "IMPORT_NAME":
                # The number of dots and the imported names are pushed before.
                imports.append((item.argval, instructions[index - 2].argval or 0))
            elif item.opname in _WRITES:
                written.append(item.argval)
    return CodeReferences(tuple(references), frozenset(attributes), tuple(imports), tuple(written))


def iterate_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield code, and that of the functions and classes in it."""
    yield code
    for item in code.co_consts:
        if isinstance(item, CodeType):
            yield from iterate_codes(item)


def _leading_attributes(instructions: list[dis.Instruction]) -> Iterator[str]:
    for item in instructions:
        if item.opname not in ("LOAD_ATTR", "LOAD_METHOD"):
            return
        yield item.argval


def _strings(constants: object) -> Iterator[str]:
    if isinstance(constants, str):
        yield constants
    elif isinstance(constants, (tuple, frozenset)):
        for item in constants:
            yield from _strings(item)

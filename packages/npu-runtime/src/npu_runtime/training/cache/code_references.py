"""References of code: the globals, attributes and imports that a function may use, read from its bytecode."""

from __future__ import annotations

import dis
import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from types import CodeType

_ATTRIBUTES = ("LOAD_ATTR", "LOAD_METHOD", "STORE_ATTR", "DELETE_ATTR", "LOAD_SUPER_ATTR", "IMPORT_FROM")
_NAMES = ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
_WRITES = ("STORE_GLOBAL", "DELETE_GLOBAL")
# What the interpreter looks up by itself: names that stand for these instructions.
_IMPLICIT = {"MATCH_CLASS": "__match_args__", "LOAD_BUILD_CLASS": "__build_class__"}
_FORMATS = ("format", "format_map")
_IDENTIFIER = re.compile(r"[^\W\d]\w*")


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
        unordered: Its constant sets that it does more with than to test for elements.
    """

    globals: tuple[Reference, ...]
    attributes: frozenset[str]
    imports: tuple[tuple[str, int], ...]
    written: tuple[str, ...]
    unordered: tuple[frozenset[object], ...]


def find_references(code: CodeType) -> CodeReferences:
    """Return what code refers to."""
    references: dict[Reference, None] = {}
    attributes: set[str] = set()
    imports: list[tuple[str, int]] = []
    written: list[str] = []
    unordered: list[frozenset[object]] = []
    for part in iterate_codes(code):
        attributes.update(_strings(part.co_consts))
        instructions = [item for item in dis.get_instructions(part) if item.opname != "CACHE"]
        attributes.update(_implicit_names(instructions))
        unordered += _unordered_sets(instructions)
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
    return CodeReferences(
        tuple(references), frozenset(attributes), tuple(imports), tuple(written), tuple(unordered)
    )


def _implicit_names(instructions: list[dis.Instruction]) -> Iterator[str]:
    """Yield names that stand for what instructions look up without a name of it."""
    for index, item in enumerate(instructions):
        if item.opname in _IMPLICIT:
            yield _IMPLICIT[item.opname]
        elif item.opname in _NAMES and item.argval == "type" and not _is_type_of(instructions[index + 1 :]):
            yield "__build_class__"
        elif _is_format(item) and instructions[index - 1].opname != "LOAD_CONST":
            yield "getattr"  # by the names in a text that is not in the code


def _is_format(item: dis.Instruction) -> bool:
    return item.opname in _ATTRIBUTES and item.argval in _FORMATS


def _unordered_sets(instructions: list[dis.Instruction]) -> Iterator[frozenset[object]]:
    for item, following in itertools.pairwise(instructions):
        is_set = item.opname == "LOAD_CONST" and isinstance(item.argval, frozenset)
        if is_set and following.opname != "CONTAINS_OP":
            yield item.argval


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


def _is_type_of(instructions: list[dis.Instruction]) -> bool:
    """Return whether the builtin ``type`` is called with one variable: other calls make classes."""
    names = [item.opname for item in instructions[:8]]
    if not names or not names[0].startswith(("LOAD_FAST", "LOAD_GLOBAL", "LOAD_DEREF", "LOAD_NAME")):
        return False
    rest = [item for item in instructions[1:8] if item.opname not in ("PRECALL", "LOAD_ATTR")]
    return bool(rest) and rest[0].opname == "CALL" and rest[0].arg == 1


def _strings(constants: object) -> Iterator[str]:
    """Yield constant strings, and the names in those that `str.format` may be called with."""
    if isinstance(constants, str):
        yield constants
        if "{" in constants:
            yield from _IDENTIFIER.findall(constants)
    elif isinstance(constants, (tuple, frozenset)):
        for item in constants:
            yield from _strings(item)

"""The options of a pass: its annotated fields, with their types, defaults, documentation and text form."""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import math
import re
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any, cast

from npu_passes.errors import PassError

_KINDS = {"bool": "bool", "int": "int", "float": "float", "str": "str", "tuple[str, ...]": "list"}
_BARE = re.compile(r"[^\s{}\[\]=,\"]+")
WORDS = {"true": True, "false": False}
_DOCUMENTED = re.compile(r"^    (\w+): (.*(?:\n      +.*)*)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Option:
    """One option of a pass.

    Attributes:
        name: As in Python.
        kind: ``bool``, ``int``, ``float``, ``str`` or ``list`` (of strings).
        default: The default value.
        doc: Its description, from the docstring of the pass.
    """

    name: str
    kind: str
    default: Any
    doc: str = ""


def options_of(pass_type: type) -> tuple[Option, ...]:
    """Return the options of a pass, in the order of its fields.

    Raises:
        PassError: A field has no default, or a type without a text form.
    """
    if not (isinstance(pass_type, type) and dataclasses.is_dataclass(pass_type)):
        raise PassError(f"{pass_type!r} is not a class of passes", fix="find_pass(name) returns one")
    return _options_of(cast(Hashable, pass_type))


@functools.lru_cache(maxsize=256)
def _options_of(pass_type: Any) -> tuple[Option, ...]:
    if not dataclasses.fields(pass_type):
        return ()
    docs = {
        name: text for base in reversed(pass_type.__mro__) for name, text in _attribute_docs(base).items()
    }
    options = []
    for item in dataclasses.fields(pass_type):
        kind = _KINDS.get(item.type if isinstance(item.type, str) else inspect.formatannotation(item.type))
        if kind is None or item.default is dataclasses.MISSING:
            raise PassError(
                f"the option {item.name!r} of {pass_type.__name__} is {item.type}"
                + ("" if item.default is not dataclasses.MISSING else " without a default"),
                fix=f"options have a default, and one of the types {', '.join(_KINDS)}",
            )
        options.append(Option(item.name, kind, item.default, docs.get(item.name, "")))
    return tuple(options)


def check_option_types(item: object, name: str) -> None:
    """Raise unless every option has a value of its type."""
    if all(getattr(item, field.name) is field.default for field in dataclasses.fields(cast(Any, item))):
        return  # as in most pipelines: finding out about types takes longer than running some passes
    for option in options_of(type(item)):
        value = getattr(item, option.name)
        if not _is_of_kind(value, option.kind):
            raise PassError(
                f"the option {option.name!r} of {name} is {with_article(option.kind)}, not {value!r}",
                fix="write a tuple of strings: ('a', 'b')" if option.kind == "list" else None,
            )
        if option.kind == "float" and math.isnan(value):
            raise PassError(f"the option {option.name!r} of {name} is not a number: {value}")


def format_options(item: object) -> str:
    """Return the options that differ from their defaults as text: ``{max_bytes=1024}``; "" if none does."""
    changed = [
        f"{option.name}={format_value(getattr(item, option.name))}"
        for option in options_of(type(item))
        if getattr(item, option.name) != option.default
    ]
    return f"{{{','.join(changed)}}}" if changed else ""


def format_value(value: Any) -> str:
    """Return the value of an option as text."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, tuple):
        return f"[{','.join(map(format_value, value))}]"
    if isinstance(value, str):
        return value if _BARE.fullmatch(value) and value not in WORDS else json.dumps(value)
    return repr(value)


def with_article(kind: str) -> str:
    """Return the name of a kind with its article: ``an int``, ``a float``."""
    return f"{'an' if kind == 'int' else 'a'} {kind}"


def _is_of_kind(value: Any, kind: str) -> bool:
    if kind == "list":
        return isinstance(value, tuple) and all(isinstance(part, str) for part in value)
    if kind == "float":
        return type(value) in (int, float)
    return type(value).__name__ == kind


def _attribute_docs(pass_type: type) -> dict[str, str]:
    """Return the descriptions in the section "Attributes:" of a docstring, by attribute."""
    _, _, section = inspect.cleandoc(pass_type.__dict__.get("__doc__") or "").partition("Attributes:\n")
    return {name: " ".join(text.split()) for name, text in _DOCUMENTED.findall(section)}

"""Literals, the plain data that an attribute may hold, and their lossless text and JSON forms.

A literal is None, a bool, int, float, complex or string, a torch dtype, device, layout or memory
format, a list of literals, or a dict of them by string. Text form:
``[1, -0.0, nan, f32, device("cpu"), strided]``. JSON form: finite numbers, strings, bools, null and lists
represent themselves; everything else is an object with one key, such as ``{"dtype": "f32"}`` or
``{"float": "nan"}``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from typing import Any, TypeAlias

import torch

from npu_ir.core.types import dtype_name, parse_dtype
from npu_ir.errors import GraphError, ParseError

Literal: TypeAlias = Any

_PLAIN = (type(None), bool, int, str)
_NUMBERS_AND_TEXT = frozenset({type(None), bool, int, float, complex, str})
_NAMED = (torch.dtype, torch.layout, torch.memory_format)
MAX_LITERAL_DEPTH = 64
_MAX_INTEGER_BITS = 4096  # Python does not format or parse integers of more than 4300 digits


def _torch_constants(kind: type) -> dict[str, Any]:
    """Return the constants of PyTorch of this kind, by name."""
    constants = [value for value in vars(torch).values() if isinstance(value, kind)]
    return {str(value).removeprefix("torch."): value for value in constants}


LAYOUTS: dict[str, torch.layout] = _torch_constants(torch.layout)
MEMORY_FORMATS: dict[str, torch.memory_format] = _torch_constants(torch.memory_format)


def to_literal(value: object, depth: int = 0) -> Literal:
    """Return ``value`` as a literal: tuples and ``torch.Size`` become lists.

    Raises:
        GraphError: ``value`` is not plain data, an integer has more than 4096 bits, or lists are nested
            deeper than 64.
    """
    kind = type(value)
    if kind in _NUMBERS_AND_TEXT:
        if kind is int and value.bit_length() > _MAX_INTEGER_BITS:  # type: ignore[attr-defined]
            raise GraphError(
                f"an integer of {value.bit_length()} bits is too large: at most {_MAX_INTEGER_BITS}"  # type: ignore[attr-defined]
            )
        return value
    if isinstance(value, (list, tuple, dict)):
        if depth >= MAX_LITERAL_DEPTH:
            raise GraphError(f"lists nested deeper than {MAX_LITERAL_DEPTH} are not plain data")
        if not isinstance(value, dict):
            return [to_literal(item, depth + 1) for item in value]
        if all(type(key) is str for key in value):
            return {key: to_literal(item, depth + 1) for key, item in value.items()}
    if isinstance(value, (*_NAMED, torch.device)):
        return value
    raise GraphError(
        f"{value!r} of type {type(value).__name__} is not plain data",
        fix="attributes hold None, bools, numbers, strings, dtypes, devices, layouts, memory formats, and "
        "lists and dicts by string of them",
    )


def format_literal(value: Literal) -> str:
    """Return the text form of ``value``."""
    if isinstance(value, list):
        return f"[{', '.join(map(format_literal, value))}]"
    if isinstance(value, dict):
        return f"{{{', '.join(f'{json.dumps(key)}: {format_literal(item)}' for key, item in value.items())}}}"
    if isinstance(value, str):
        return json.dumps(value)
    if isinstance(value, torch.dtype):
        return dtype_name(value)
    if isinstance(value, torch.device):
        return f'device("{value}")'
    if isinstance(value, (torch.layout, torch.memory_format)):
        return str(value).removeprefix("torch.")
    if isinstance(value, complex):
        return f"complex({value.real!r}, {value.imag!r})"
    return repr(value)


def _float_to_json(value: float) -> Any:
    return value if math.isfinite(value) else {"float": repr(value)}


def literal_to_json(value: Literal) -> Any:
    """Return the JSON form of ``value``."""
    if isinstance(value, list):
        return [literal_to_json(item) for item in value]
    if isinstance(value, dict):
        return {"dict": [[key, literal_to_json(item)] for key, item in value.items()]}
    if isinstance(value, float):
        return _float_to_json(value)
    if isinstance(value, _PLAIN):
        return value
    if isinstance(value, complex):
        return {"complex": [_float_to_json(value.real), _float_to_json(value.imag)]}
    if isinstance(value, torch.device):
        return {"device": str(value)}
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    kind = "layout" if isinstance(value, torch.layout) else "memory_format"
    return {kind: str(value).removeprefix("torch.")}


def _complex_from_json(parts: Any) -> complex:
    real, imag = (literal_from_json(part) for part in parts)
    if not (isinstance(real, float) and isinstance(imag, float)):
        raise TypeError("a complex number is a pair of floats")
    return complex(real, imag)


def device_named(name: Any) -> torch.device:
    """Return the device that a graph names; a TypeError, ValueError or RuntimeError if there is none."""
    if not isinstance(name, str):
        raise TypeError("a device is a string")  # torch.device(0) depends on the machine
    device = torch.device(name)
    if str(device) != name:  # an index has 8 bits, and others become one of them
        raise ValueError(f"{name!r} would be {device}")
    return device


_FROM_JSON: dict[str, Callable[[Any], Literal]] = {
    "float": {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}.__getitem__,
    "complex": _complex_from_json,
    "dtype": parse_dtype,
    "device": device_named,
    "layout": LAYOUTS.__getitem__,
    "memory_format": MEMORY_FORMATS.__getitem__,
}


def literal_from_json(data: Any, depth: int = 0) -> Literal:
    """Return the literal whose JSON form is ``data``.

    Raises:
        ParseError: ``data`` is not the JSON form of a literal.
    """
    if isinstance(data, list) and depth < MAX_LITERAL_DEPTH:
        return [literal_from_json(item, depth + 1) for item in data]
    if isinstance(data, (*_PLAIN, float)):
        return data
    if isinstance(data, dict) and len(data) == 1:
        ((kind, value),) = data.items()
        if kind == "dict" and depth < MAX_LITERAL_DEPTH:
            return _dict_from_json(value, depth + 1)
        if kind in _FROM_JSON:
            try:
                return _FROM_JSON[kind](value)
            except (KeyError, TypeError, ValueError, RuntimeError) as error:
                raise ParseError(f"{value!r} is not a {kind}") from error
    raise ParseError(f"{str(data)[:80]} is not the JSON form of an attribute value")


def _dict_from_json(data: Any, depth: int) -> Literal:
    is_pairs = isinstance(data, list) and all(isinstance(item, list) and len(item) == 2 for item in data)
    keys = [item[0] for item in data] if is_pairs else [None]
    if not all(isinstance(key, str) for key in keys) or len(set(keys)) < len(keys):
        raise ParseError(f"{str(data)[:80]} is not a dict: pairs of a string, each another, and a literal")
    return {key: literal_from_json(item, depth) for key, item in data}


def same_literal(left: Literal, right: Literal) -> bool:
    """Return whether two literals are identical: of equal types; nan equals nan, 0.0 differs from -0.0."""
    if isinstance(left, list) and isinstance(right, list):
        return len(left) == len(right) and all(map(same_literal, left, right))
    if isinstance(left, dict) and isinstance(right, dict):
        return list(left) == list(right) and all(same_literal(left[key], right[key]) for key in left)
    if type(left) is not type(right):
        return False
    return repr(left) == repr(right) if isinstance(left, (float, complex)) else left == right

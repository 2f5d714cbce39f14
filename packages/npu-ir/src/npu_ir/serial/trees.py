"""The JSON form of nested calls and results.

A container is ``{"kind": "tuple", "items": [...]}``, with a ``context`` where its kind has one. At the
leaves, ``{"value": "x"}`` is a value of the graph and everything else is a literal.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from npu_ir.errors import ParseError
from npu_ir.literals import Literal, literal_from_json, literal_to_json
from npu_ir.node import Value
from npu_ir.serial.place import Place, RecordKeys, read_items, read_record, read_text, shown
from npu_ir.structure import LEAF, LEAF_STRUCTURE, Structure, dict_keys

_MAX_DEPTH = 200
_CONTAINER_KEYS = RecordKeys(frozenset({"kind", "items"}), frozenset({"context"}))
_VALUE_KEYS = RecordKeys(frozenset({"value"}))
_FACTORIES = (None, "dict", "float", "int", "list", "set", "str", "tuple")


def tree_to_json(structure: Structure, leaves: Iterator[Any]) -> Any:
    """Return the JSON form of ``leaves`` nested as ``structure`` says; takes what it needs of them."""
    if structure.kind == LEAF:
        leaf = next(leaves)
        return {"value": leaf.name} if isinstance(leaf, Value) else literal_to_json(leaf)
    data: dict[str, Any] = {"kind": structure.kind}
    if structure.context is not None:
        data["context"] = literal_to_json(structure.context)
    data["items"] = [tree_to_json(child, leaves) for child in structure.children]
    return data


def read_tree(
    data: Any, place: Place, values: Mapping[str, Value], leaves: list[Any], depth: int = 0
) -> Structure:
    """Return the structure whose JSON form is ``data``; appends its leaves to ``leaves``."""
    if type(data) is not dict or not ("kind" in data or "value" in data):
        leaves.append(read_literal(data, place))
        return LEAF_STRUCTURE
    if "value" in data:
        leaves.append(read_value(values, read_record(data, _VALUE_KEYS, place)["value"], place, "value"))
        return LEAF_STRUCTURE
    if depth > _MAX_DEPTH:
        raise place.error(f"containers nested deeper than {_MAX_DEPTH}")
    record = read_record(data, _CONTAINER_KEYS, place)
    kind = read_text(record["kind"], place, "kind")
    context = read_literal(record["context"], place, "context") if "context" in record else None
    items = read_items(record["items"], place, "items")
    problem = _context_problem(kind, context, len(items))
    if problem is not None:
        raise place.at("context").error(problem)
    children = [
        read_tree(item, place.at("items", index), values, leaves, depth + 1)
        for index, item in enumerate(items)
    ]
    return Structure(kind, context, tuple(children))


def read_value(values: Mapping[str, Value], name: Any, place: Place, *steps: str | int) -> Value:
    """Return the value called ``name``."""
    if type(name) is not str or name not in values:
        raise place.at(*steps).error(f"the graph has no value {shown(name)} here")
    return values[name]


def read_literal(data: Any, place: Place, *steps: str | int) -> Literal:
    """Return the literal whose JSON form is ``data``."""
    try:
        return literal_from_json(data)
    except ParseError as error:
        raise place.at(*steps).error(error.message) from error


def _context_problem(kind: str, context: Literal, count: int) -> str | None:
    """Return why a container of this kind cannot have this context and ``count`` items, or None."""
    if kind == LEAF:
        return "a leaf is no container"
    if kind in ("tuple", "list"):
        return None if context is None else f"a {kind} has no context"
    problem = _CONTEXT_PROBLEMS.get(kind)
    return None if problem is None else problem(context, count)


def _keys(keys: Literal, count: int) -> str | None:
    if not isinstance(keys, list) or len(keys) != count:
        return f"expected a list of {count} keys"
    return None if len(set(dict_keys(keys))) == count else "two keys of a dict are equal"


def _default_and_keys(context: Literal, count: int) -> str | None:
    if not (isinstance(context, list) and len(context) == 2 and context[0] in _FACTORIES):
        return "expected the name of the default and the keys"
    return _keys(context[1], count)


def _type_and_fields(context: Literal, count: int) -> str | None:
    if not (isinstance(context, list) and len(context) == 2 and isinstance(context[0], str)):
        return "expected the name of the type and its fields"
    problem = _keys(context[1], count)
    if problem is None and not all(isinstance(field, str) and field.isidentifier() for field in context[1]):
        return "the fields of a named tuple are identifiers"
    return problem


_CONTEXT_PROBLEMS: dict[str, Callable[[Literal, int], str | None]] = {
    "dict": _keys,
    "collections.OrderedDict": _keys,
    "defaultdict": _default_and_keys,
    "namedtuple": _type_and_fields,
}

"""The JSON form of nested calls and results.

A container is ``{"kind": "tuple", "items": [...]}``, with a ``context`` where its kind has one. At the
leaves, ``{"value": "x"}`` is a value of the graph and everything else is a literal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from npu_ir.core.literals import Literal, literal_from_json, literal_to_json
from npu_ir.core.node import Value
from npu_ir.core.structure import LEAF, LEAF_STRUCTURE, MAX_DEPTH, Structure
from npu_ir.errors import ParseError
from npu_ir.graph.rules.structures import context_problem
from npu_ir.serial.location import Location, RecordKeys, read_items, read_record, read_text, short_repr

_CONTAINER_KEYS = RecordKeys(frozenset({"kind", "items"}), frozenset({"context"}))
_VALUE_KEYS = RecordKeys(frozenset({"value"}))


def tree_to_json(structure: Structure, leaves: Iterator[Any]) -> Any:
    """Return the JSON form of ``leaves`` nested in ``structure``; consumes as many leaves as it has."""
    if structure.kind == LEAF:
        leaf = next(leaves)
        return {"value": leaf.name} if isinstance(leaf, Value) else literal_to_json(leaf)
    data: dict[str, Any] = {"kind": structure.kind}
    if structure.context is not None:
        data["context"] = literal_to_json(structure.context)
    data["items"] = [tree_to_json(child, leaves) for child in structure.children]
    return data


def read_tree(
    data: Any, place: Location, values: Mapping[str, Value], leaves: list[Any], depth: int = 0
) -> Structure:
    """Return the structure with the JSON form ``data``; appends its leaves to ``leaves``."""
    if type(data) is not dict or not ("kind" in data or "value" in data):
        leaves.append(read_literal(data, place))
        return LEAF_STRUCTURE
    if "value" in data:
        leaves.append(read_value(values, read_record(data, _VALUE_KEYS, place)["value"], place, "value"))
        return LEAF_STRUCTURE
    if depth >= MAX_DEPTH:
        raise place.error(f"containers nested deeper than {MAX_DEPTH}")
    record = read_record(data, _CONTAINER_KEYS, place)
    kind = read_text(record["kind"], place, "kind")
    context = read_literal(record["context"], place, "context") if "context" in record else None
    items = read_items(record["items"], place, "items")
    problem = context_problem(kind, context, len(items))
    if problem is not None:
        raise place.at("context").error(problem)
    children = [
        read_tree(item, place.at("items", index), values, leaves, depth + 1)
        for index, item in enumerate(items)
    ]
    return Structure(kind, context, tuple(children))


def read_value(values: Mapping[str, Value], name: Any, place: Location, *steps: str | int) -> Value:
    """Return the value called ``name``."""
    if type(name) is not str or name not in values:
        raise place.at(*steps).error(f"the graph has no value {short_repr(name)} here")
    return values[name]


def read_literal(data: Any, place: Location, *steps: str | int) -> Literal:
    """Return the literal with the JSON form ``data``."""
    try:
        return literal_from_json(data)
    except ParseError as error:
        raise place.at(*steps).error(error.message) from error

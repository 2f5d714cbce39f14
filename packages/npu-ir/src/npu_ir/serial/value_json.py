"""The JSON form of types, and of nested calls and results.

A tensor type is ``["f32", [8, 64]]``, with strides ``["f32", [8, 64], [1, 8]]``, with a layout that is not
strided ``["f32", [8, 64], "sparse_coo"]``. A number is ``"int"``, or ``{"int": "2*s0"}`` if its value is
known. A size that is not an integer is an expression in a string.

A container is ``{"kind": "tuple", "items": [...]}``, with a ``context`` where its kind has one. At the
leaves, ``{"value": "x"}`` is a value of the graph and everything else is a literal.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from npu_ir.core.literals import LAYOUTS, Literal, literal_from_json, literal_to_json
from npu_ir.core.node import Value
from npu_ir.core.structure import LEAF, LEAF_STRUCTURE, MAX_DEPTH, Structure
from npu_ir.core.types import (
    SCALAR_KINDS,
    ScalarType,
    TensorType,
    Type,
    dtype_name,
    is_dtype_name,
    parse_dtype,
)
from npu_ir.errors import GraphError, ParseError
from npu_ir.graph.rules.structures import context_problem
from npu_ir.serial.parser import parse_dim
from npu_ir.serial.strict_json import Location, RecordKeys, read_as, read_record, short_repr
from npu_ir.symbolic.expressions import Dim, Expr, Number

_MAX_DIM = 1 << 63
_MAX_EXPRESSION_LENGTH = 10_000
_CONTAINER_KEYS = RecordKeys(frozenset({"kind", "items"}), frozenset({"context"}))
_VALUE_KEYS = RecordKeys(frozenset({"value"}))


def type_to_json(type: Type) -> Any:
    if isinstance(type, ScalarType):
        return type.kind if type.value is None else {type.kind: dim_to_json(type.value)}
    more: list[Any] = [] if type.strides is None else [list(map(dim_to_json, type.strides))]
    if type.layout is not torch.strided:
        more = [str(type.layout).removeprefix("torch.")]
    return [dtype_name(type.dtype), list(map(dim_to_json, type.shape)), *more]


def dim_to_json(dim: Number) -> int | float | str:
    """Return the JSON form of a size or another number: an expression is a string."""
    return str(dim) if isinstance(dim, Expr) else dim


def read_type(data: Any, place: Location, *steps: str | int) -> Type:
    if type(data) is str:
        if data not in SCALAR_KINDS:
            expected = f"{', '.join(SCALAR_KINDS)} or a list"
            raise place.at(*steps).error(f"{short_repr(data)} is not a type: expected one of {expected}")
        return ScalarType(data)  # type: ignore[arg-type]
    if type(data) is dict and list(data) == ["int"]:
        return ScalarType("int", _read_dim(data["int"], place, *steps, "int"))
    return read_tensor_type(data, place, *steps)


def read_tensor_type(data: Any, place: Location, *steps: str | int) -> TensorType:
    if type(data) is not list or len(data) not in (2, 3):
        expected = "[dtype, shape] or [dtype, shape, strides]"
        raise place.at(*steps).error(f"expected {expected}, found {short_repr(data)}")
    if type(data[0]) is not str or not is_dtype_name(data[0]):
        raise place.at(*steps, 0).error(
            f"this PyTorch has no dtype {short_repr(data[0])}",
            "use the PyTorch the file was made with, or a newer one",
        )
    shape = _read_sizes(data[1], place, *steps, 1)
    dtype = parse_dtype(data[0])
    if len(data) == 3 and type(data[2]) is str:
        if data[2] not in LAYOUTS:
            raise place.at(*steps, 2).error(f"this PyTorch has no layout {short_repr(data[2])}")
        return TensorType(shape, dtype, layout=LAYOUTS[data[2]])
    strides = _read_sizes(data[2], place, *steps, 2) if len(data) == 3 else None
    if strides is not None and len(strides) != len(shape):
        raise place.at(*steps).error(f"{len(strides)} strides for {len(shape)} dimensions")
    return TensorType(shape, dtype, strides)


def _read_sizes(data: Any, place: Location, *steps: str | int) -> tuple[Dim, ...]:
    """Return sizes or strides: integers from 0 to 2**63 - 1, or expressions."""
    items = read_as(list, data, place, *steps)
    for index, size in enumerate(items):
        if type(size) is not str and (type(size) is not int or not 0 <= size < _MAX_DIM):
            expected = "an integer from 0 to 2**63 - 1, or an expression"
            raise place.at(*steps, index).error(f"{short_repr(size)} is not a size: expected {expected}")
    return tuple(_read_dim(size, place, *steps, index) for index, size in enumerate(items))


def _read_dim(data: Any, place: Location, *steps: str | int) -> Dim:
    """Return the integer or expression with the JSON form ``data``."""
    if type(data) is int:
        return data
    if type(data) is str and len(data) <= _MAX_EXPRESSION_LENGTH:
        try:
            dim = parse_dim(data)
        except (ParseError, GraphError) as error:
            problem = f"{short_repr(data)} is not an expression: {error.message}"
            raise place.at(*steps).error(problem) from error
        if isinstance(dim, Expr):
            return dim
        raise place.at(*steps).error(f"{short_repr(data)} is an integer: expected a JSON number")
    raise place.at(*steps).error(f"{short_repr(data)} is neither an integer nor an expression")


def read_number(data: Any, place: Location, *steps: str | int) -> Number:
    """Return the number or expression with the JSON form ``data``."""
    return data if type(data) is float else _read_dim(data, place, *steps)


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
    kind = read_as(str, record["kind"], place, "kind")
    context = read_literal(record["context"], place, "context") if "context" in record else None
    items = read_as(list, record["items"], place, "items")
    problem = context_problem(kind, context, len(items))
    if problem is not None:
        raise place.at("context").error(problem)
    children = [
        read_tree(item, place.at("items", index), values, leaves, depth + 1)
        for index, item in enumerate(items)
    ]
    return Structure(kind, context, tuple(children))


def read_value(values: Mapping[str, Value], name: Any, place: Location, *steps: str | int) -> Value:
    if type(name) is not str or name not in values:
        raise place.at(*steps).error(f"the graph has no value {short_repr(name)} here")
    return values[name]


def read_literal(data: Any, place: Location, *steps: str | int) -> Literal:
    try:
        return literal_from_json(data)
    except ParseError as error:
        raise place.at(*steps).error(error.message) from error

"""Operands of the text form: the inputs of a node, by schema argument.

``self=%x`` is one input, ``tensors=[%a, %b]`` a ``Tensor[]``, ``indices=?[None, %i]`` a ``Tensor?[]``,
and ``size=(%n, -1)`` any other list, nested or not, that contains inputs. The printer groups a node's record
(its inputs, operand names and list attributes) into operands, the parser flattens them. If flattening would
not restore the same record (empty lists of an op that is not registered in this process), the printer writes
the record itself instead: ``tensors[0]=%a`` and the two ``_tensor_list`` attrs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from npu_ir.core.literals import same_literal
from npu_ir.core.node import OpNode, Value
from npu_ir.ops.arguments import LIST_SIZES, NONE_MASKS, RECORD_ATTRS, list_operand
from npu_ir.ops.schema import ArgKind, find_op, schema_of
from npu_ir.text.lexer import PLAIN_WORD, quote_word


@dataclass(frozen=True, slots=True)
class Operand:
    """One argument as written: ``mark`` is ``""``, ``"["``, ``"?["`` or ``"("``.

    With the first three, ``items`` are inputs, or None; with the last also literals, and `Nested`.
    """

    name: str
    mark: str
    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Nested:
    """A list that contains inputs, inside another list."""

    items: tuple[Any, ...]


_INDEXED = re.compile(rf"{PLAIN_WORD.pattern}(\[(?:0|[1-9][0-9]*)\])+")


def quote_operand(name: str) -> str:
    """Return an operand name as written before ``=``."""
    return name if _INDEXED.fullmatch(name) else quote_word(name)


def flatten_operands(shown: Sequence[Operand]) -> tuple[list[Any], tuple[str, ...], dict[str, Any]]:
    """Return the inputs, operand names and record attrs of a node with these operands."""
    inputs: list[Any] = []
    names: list[str] = []
    sizes = [len(operand.items) for operand in shown if operand.mark == "["]
    masks = [[item is None for item in operand.items] for operand in shown if operand.mark == "?["]
    plain = {}
    for operand in shown:
        if operand.mark == "(":
            places: dict[str, Any] = {}
            plain[operand.name] = _remove_inputs(operand.items, operand.name, places)
            inputs += places.values()
            names += places
            continue
        for index, item in enumerate(operand.items):
            if item is not None:
                inputs.append(item)
                names.append(list_operand(operand.name, index) if operand.mark else operand.name)
    attrs = {**plain, **({LIST_SIZES: sizes} if sizes else {}), **({NONE_MASKS: masks} if masks else {})}
    return inputs, tuple(names), attrs


def _remove_inputs(items: Sequence[Any], path: str, places: dict[str, Any]) -> list[Any]:
    """Return the items as an attribute stores them: None for inputs, which are added to ``places``."""
    template: list[Any] = []
    for index, item in enumerate(items):
        operand = list_operand(path, index)
        if isinstance(item, Nested):
            template.append(_remove_inputs(item.items, operand, places))
        elif isinstance(item, Value):
            places[operand] = item
            template.append(None)
        else:
            template.append(item)
    return template


def _insert_inputs(template: Any, path: str, by_name: Mapping[str, Value]) -> Any:
    """Return an attribute with its inputs inserted, and lists that contain inputs as `Nested`."""
    if path in by_name:
        return by_name[path]
    if not isinstance(template, list) or not any(name.startswith(f"{path}[") for name in by_name):
        return template
    items = enumerate(template)
    return Nested(tuple(_insert_inputs(item, list_operand(path, index), by_name) for index, item in items))


def group_operands(node: OpNode) -> list[Operand] | None:
    """Return the operands of a node, or None if `flatten_operands` would not restore its record."""
    by_name = dict(zip(node.operands or (), node.inputs, strict=True))
    sizes = iter(node.attrs.get(LIST_SIZES, ()))
    masks = iter(node.attrs.get(NONE_MASKS, ()))
    shown = []
    for name, mark in _arguments(node):
        if not mark:
            shown.append(Operand(name, mark, (by_name.get(name),)))
            continue
        if mark == "(":
            nested = _insert_inputs(node.attrs[name], name, by_name)
            shown.append(Operand(name, mark, nested.items if isinstance(nested, Nested) else ()))
            continue
        # A size may be any number; the record of more items than inputs could not be restored.
        size = min(next(sizes, None) or 0, len(node.inputs)) if mark == "[" else 0
        mask = [False] * size if mark == "[" else next(masks, [])
        items = [
            None if is_none else by_name.get(list_operand(name, index)) for index, is_none in enumerate(mask)
        ]
        shown.append(Operand(name, mark, tuple(items)))
    hidden = [operand.name for operand in shown if operand.mark == "("] + list(RECORD_ATTRS)
    inputs, names, record = flatten_operands(shown)
    is_complete = (
        (inputs, names) == (list(node.inputs), node.operands)
        and record.keys() == node.attrs.keys() & set(hidden)
        and all(same_literal(record[name], node.attrs[name]) for name in record)
    )
    return shown if is_complete else None


def _arguments(node: OpNode) -> list[tuple[str, str]]:
    """Return the name and mark of every argument that takes inputs, in order."""
    names = list(dict.fromkeys(name.partition("[")[0] for name in node.operands or ()))
    op = find_op(node.op_type)
    if op is None:
        mark = "?[" if NONE_MASKS in node.attrs else "["
        return [
            (name, "" if name in (node.operands or ()) else "(" if name in node.attrs else mark)
            for name in names
        ]
    lists = {ArgKind.TENSOR_LIST: ("[", LIST_SIZES), ArgKind.OPTIONAL_TENSOR_LIST: ("?[", NONE_MASKS)}
    shown = []
    for arg in schema_of(op).args:
        mark, record = lists.get(arg.kind, ("(" if arg.name in node.attrs else "", None))
        if arg.name in names or record in node.attrs:
            shown.append((arg.name, mark))
    return shown

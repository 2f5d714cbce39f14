"""Edits of the rows of a document: the calls of migrated ops, made to mean what they did."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from npu_ir.ops.arguments import path_of_operand
from npu_ir.serial.compatibility.report import ArgumentEdit, OpCompatibility
from npu_ir.serial.compatibility.successors import Successor


def migrate_rows(document: Mapping[str, Any], ops: Iterable[OpCompatibility]) -> dict[str, Any]:
    """Return the document with the edits of ``ops`` made in its nodes, and the present schemas recorded."""
    ops = list(ops)
    edits = {op.op_type: [change.edit for change in op.changes if change.edit is not None] for op in ops}
    schemas = {op.op_type: op.present for op in ops if op.present is not None}
    return {**_migrate_nodes(document, edits), "schemas": {**document["schemas"], **schemas}}


def _migrate_nodes(graph: Mapping[str, Any], edits: Mapping[str, list[ArgumentEdit]]) -> dict[str, Any]:
    return {**graph, "nodes": [_migrate_node(row, edits) for row in graph["nodes"]]}


def _migrate_node(row: Mapping[str, Any], edits: Mapping[str, list[ArgumentEdit]]) -> dict[str, Any]:
    migrated = dict(row)
    for edit in edits.get(row["op"], ()):
        migrated = _edit(migrated, edit)
    if "regions" in row:
        migrated["regions"] = {name: _migrate_nodes(region, edits) for name, region in row["regions"].items()}
    return migrated


def _edit(row: dict[str, Any], edit: ArgumentEdit) -> dict[str, Any]:
    """Return a row with one edit; renames come before the writes of what they rename."""
    attrs, operands, name = dict(row["attrs"]), row["operands"], edit.argument
    if edit.action == "replace":
        return _replace_op(row, edit.content)
    if edit.action == "write" and name not in {*attrs, *_names(operands)}:
        attrs[name] = edit.content
    elif edit.action == "drop":
        attrs.pop(name, None)
    elif edit.action == "rename":
        attrs = {edit.content if key == name else key: item for key, item in attrs.items()}
        operands = operands and [_rename_operand(item, name, edit.content) for item in operands]
    return {**row, "attrs": attrs, "operands": operands}


def _replace_op(row: dict[str, Any], successor: Successor) -> dict[str, Any]:
    operands = [successor.operand_of(item) for item in row["operands"]]
    return {**row, "op": successor.op_type, "attrs": successor.attrs_of(row["attrs"]), "operands": operands}


def _names(operands: Iterable[str] | None) -> Iterator[str]:
    return (path_of_operand(operand)[0] for operand in operands or ())


def _rename_operand(operand: str, old: str, new: str) -> str:
    return new + operand.removeprefix(old) if path_of_operand(operand)[0] == old else operand

"""The JSON document of a graph, as text: one line for each argument, node and schema.

The same graph gives the same text. ``docs/reference/file-format.md`` describes it, and
``npu_ir/schema/npu-ir-1.schema.json`` is its JSON Schema.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from npu_ir.core.literals import literal_to_json
from npu_ir.core.node import OpNode, Value
from npu_ir.graph.graph import Graph
from npu_ir.ops.schema import resolve
from npu_ir.serial.value_json import dim_to_json, tree_to_json, type_to_json
from npu_ir.symbolic.constraints import Constraint

FORMAT = "npu-ir"
VERSION = 1
_dumps = json.JSONEncoder(allow_nan=False).encode


@dataclass(frozen=True, slots=True)
class StoredData:
    """Reference to the content of a constant or buffer: its name in the tensor file, and its SHA-256."""

    tensor: str
    sha256: str


@dataclass(frozen=True, slots=True)
class CompanionFiles:
    """The names of the files that belong to a document, and the reference into ``tensors`` for each value."""

    tensors: str | None
    weights: str | None
    data: Mapping[Value, StoredData]


def iterate_document(graph: Graph, beside: CompanionFiles) -> Iterator[str]:
    """Yield the text of the document that describes ``graph``, in pieces."""
    yield "{\n"
    yield from _entry("format", FORMAT)
    yield from _entry("version", VERSION)
    yield from _entry("torch", str(torch.__version__))
    yield from _entry("name", graph.name)
    yield from _entry("tensors", beside.tensors)
    yield from _entry("weights", beside.weights)
    yield from _schemas(graph)
    if graph.symbols:
        yield from _entry("symbols", {name: [range.low, range.high] for name, range in graph.symbols.items()})
    if graph.constraints:
        yield from _rows("constraints", map(_constraint, graph.constraints))
    if graph.prologue:
        yield from _entry("prologue", len(graph.prologue))
    yield from _rows("arguments", _arguments(graph, beside))
    yield from _entry("call", _tree(graph._call))
    yield from _rows("nodes", (_node(node, beside) for node in graph.nodes))
    yield from _rows("updates", _updates(graph))
    yield from _entry("results", _tree(graph.results), "\n")
    yield "}\n"


def _entry(key: str, data: Any, end: str = ",\n") -> Iterator[str]:
    yield f' "{key}": {_dumps(data)}{end}'


def _rows(key: str, rows: Iterable[Any]) -> Iterator[str]:
    yield from _block(key, "[", map(_dumps, rows), "]")


def _schemas(graph: Graph) -> Iterator[str]:
    """Yield the schemas of those ops that are registered in this process, sorted by name."""
    names = sorted({node.op_type for part in graph.graphs() for node in part.nodes})
    ops = {name: op for name in names if (op := resolve(name)) is not None}
    rows = (f"{_dumps(name)}: {_dumps(str(op._schema))}" for name, op in ops.items())
    yield from _block("schemas", "{", rows, "}")


def _block(key: str, opening: str, rows: Iterable[str], closing: str) -> Iterator[str]:
    yield f' "{key}": {opening}'
    separator = end = ""
    for row in rows:
        yield f"{separator}\n  {row}"
        separator, end = ",", "\n "
    yield f"{end}{closing},\n"


def _constraint(constraint: Constraint) -> list[Any]:
    return [dim_to_json(constraint.left), constraint.relation, dim_to_json(constraint.right)]


def _region(region: Graph, beside: CompanionFiles) -> dict[str, Any]:
    """Return a region as one row: the entries of a graph, without those of the whole document."""
    return {
        "name": region.name,
        "arguments": list(_arguments(region, beside)),
        "call": _tree(region._call),
        "nodes": [_node(node, beside) for node in region.nodes],
        "results": _tree(region.results),
    }


def _arguments(graph: Graph, beside: CompanionFiles) -> Iterator[dict[str, Any]]:
    return (_argument(value, beside.data.get(value)) for value in graph.arguments)


def _argument(value: Value, data: StoredData | None) -> dict[str, Any]:
    argument = value.argument
    assert argument is not None
    row = {
        "kind": argument.kind.value,
        "name": value.name,
        "target": argument.target,
        "type": type_to_json(value.type),
    }
    if argument.aliases:
        row["aliases"] = list(argument.aliases)
    if not argument.persistent:
        row["persistent"] = False
    if argument.overlaps is not None:
        row["overlaps"] = list(argument.overlaps)
    if data is not None:
        row["data"] = {"tensor": data.tensor, "sha256": data.sha256}
    return row


def _node(node: OpNode, beside: CompanionFiles) -> dict[str, Any]:
    row: dict[str, Any] = {
        "name": node.name,
        "op": node.op_type,
        "inputs": [value.name for value in node.inputs],
        "operands": node.operands,
        "attrs": {name: literal_to_json(attr) for name, attr in node.attrs.items()},
        "outputs": [[value.name, type_to_json(value.type)] for value in node.outputs],
    }
    if node.regions:
        row["regions"] = {argument: _region(region, beside) for argument, region in node.regions.items()}
    provenance = _provenance(node)
    return {**row, "provenance": provenance} if provenance else row


def _provenance(node: OpNode) -> dict[str, Any]:
    provenance = node.provenance
    origins = [
        [[origin.name, origin.module, origin.source] for origin in value.origins] for value in node.outputs
    ]
    fields = {
        "module": provenance.module,
        "source": provenance.source,
        "fused_from": list(provenance.fused_from),
        "phase": provenance.phase,
        "origins": [] if all(value.is_original for value in node.outputs) else origins,
    }
    return {name: field for name, field in fields.items() if field}


def _updates(graph: Graph) -> Iterator[list[Any]]:
    replaced = graph.replacements
    for target, value in graph.updates.items():
        yield [target.name, value.name, *([type_to_json(value.type)] if target in replaced else [])]


def _tree(nested: Any) -> Any:
    return None if nested is None else tree_to_json(nested[0], iter(nested[1]))

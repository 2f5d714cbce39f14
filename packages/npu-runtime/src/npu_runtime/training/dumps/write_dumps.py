"""Dumps of a captured step as files: text for people (``.txt``), and the same data as ``.json``."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from npu_ir import Graph, Value
from npu_ir.core.literals import format_literal, literal_to_json
from npu_ir.serial.atomic_write import staged_files, writing
from npu_runtime.errors import CaptureError
from npu_runtime.lowering.lowered_graph import LoweredGraph
from npu_runtime.lowering.notation import (
    ValueNumbers,
    attrs_records,
    attrs_text,
    literal_attrs_record,
    literal_attrs_text,
    type_text,
)
from npu_runtime.training.dumps.call_log import CallLog

__all__ = ["Dump", "call_log_dump", "graph_dump", "lowered_dumps", "plan_dump", "write_dumps"]


@dataclass(frozen=True, slots=True)
class Dump:
    """One stage of the compilation, for files of a name such as ``20_ir``: as text, and as plain data."""

    name: str
    text: str
    data: Any


def graph_dump(graph: Graph) -> Dump:
    """Return the dump ``20_ir``: values, nodes, results and updates of a graph."""
    return Dump("20_ir", "\n".join(_graph_lines(graph)), _graph_record(graph))


def _graph_lines(graph: Graph) -> Iterator[str]:
    numbers = ValueNumbers(graph)
    counts = f"{len(graph.values)} values, {len(graph)} nodes, {len(graph.updates)} updates"
    yield f"graph {graph.name!r}: {counts}"
    yield "values"
    for value in graph.values:
        role = "" if value.argument is None else f"  {value.argument.kind.value}"
        yield f"  {numbers.label(value)}  {value.name}  {type_text(value.type)}{role}"
    yield "nodes"
    for index, node in enumerate(graph.nodes):
        line = f"  #{index:03d} {node.op_type} {numbers.flow_text(node.inputs, node.outputs)}"
        location = str(node.provenance)
        location = location if location.isprintable() else repr(location)
        parts = (literal_attrs_text(node), "once" if node.in_prologue else "", location and f"[{location}]")
        yield f"{line} {'  '.join(filter(None, parts))}"
    yield "results"
    for leaf in graph.results[1]:
        is_value = isinstance(leaf, Value)
        yield f"  {numbers.label(leaf)}  {leaf.name}" if is_value else f"  {format_literal(leaf)}"
    yield "updates"
    for target, value in graph.updates.items():
        yield f"  {numbers.label(target)} <- {numbers.label(value)}  {target.name}"


def _graph_record(graph: Graph) -> dict[str, Any]:
    """Return values, nodes, results and updates of a graph, with values referred to by number."""
    numbers = ValueNumbers(graph)
    nodes = [
        {
            "name": node.name,
            "op": node.op_type,
            "inputs": numbers.of(node.inputs),
            "operands": None if node.operands is None else list(node.operands),
            "outputs": numbers.of(node.outputs),
            "attrs": literal_attrs_record(node),
            "once": node.in_prologue,
            "module": node.provenance.module,
            "source": node.provenance.source,
            "phase": node.provenance.phase,
        }
        for node in graph.nodes
    ]
    results = [
        {"value": numbers.of([leaf])[0]} if isinstance(leaf, Value) else {"literal": literal_to_json(leaf)}
        for leaf in graph.results[1]
    ]
    return {
        "graph": graph.name,
        "values": [numbers.record(value) for value in graph.values],
        "nodes": nodes,
        "results": results,
        "updates": [numbers.of(pair) for pair in graph.updates.items()],
    }


def lowered_dumps(lowered: LoweredGraph) -> tuple[Dump, Dump]:
    """Return the dumps ``30_lowered``, ops with their backends, and ``31_op_attrs``, their attributes."""
    return (
        Dump("30_lowered", str(lowered), lowered.to_dict()),
        Dump("31_op_attrs", attrs_text(lowered), attrs_records(lowered)),
    )


def plan_dump(plan: Any) -> Dump:
    """Return the dump ``40_plan``: the buffer and the live range of each value."""
    return Dump("40_plan", str(plan), plan.to_dict())


def call_log_dump(trace: CallLog) -> Dump:
    """Return the dump ``50_runtime_trace``: the call log."""
    return Dump("50_runtime_trace", str(trace), trace.to_dict())


def write_dumps(folder: str | os.PathLike[str], dumps: tuple[Dump, ...]) -> tuple[Path, ...]:
    """Write dumps into a folder, which is created if it does not exist; return the files.

    Either all files appear or none; those of an earlier dump are replaced. Equal dumps are written as equal
    bytes.

    Raises:
        CaptureError: The folder cannot be created or written to.
    """
    path = Path(folder)
    contents: Mapping[str, str] = {
        f"{dump.name}.{ending}": text
        for dump in dumps
        for ending, text in (("txt", dump.text), ("json", json.dumps(dump.data, indent=1)))
    }
    with writing("the dumps", path, CaptureError):
        path.mkdir(parents=True, exist_ok=True)
        with staged_files(path) as staging:
            for name, text in contents.items():
                staging.write(functools.partial(_write, name, text))
    return tuple(path / name for name in contents)


def _write(name: str, text: str, file: BinaryIO) -> str:
    file.write(f"{text}\n".encode())
    return name

"""Dumps of a captured step as files: text for people (``.txt``), and the same data as ``.json``."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from npu_ir import Graph
from npu_ir.serial.atomic_write import staged_files
from npu_runtime.errors import CaptureError
from npu_runtime.lowering.lowered_graph import Lowered
from npu_runtime.lowering.lowered_text import attrs_text, lowered_text
from npu_runtime.training.dumps.call_log import CallLog
from npu_runtime.training.dumps.json_dump import attrs_records, call_log_record, graph_record, lowered_record
from npu_runtime.training.dumps.text_dump import call_log_text, graph_text

__all__ = ["Dump", "call_log_dump", "graph_dump", "lowered_dumps", "plan_dump", "write_dumps"]


@dataclass(frozen=True, slots=True)
class Dump:
    """One stage of the compilation, to be written to files.

    Attributes:
        name: The name of its files, without their suffix: ``20_ir``.
        text: The text for people.
        data: The same as plain data.
    """

    name: str
    text: str
    data: Any


def graph_dump(graph: Graph) -> Dump:
    """Return the dump ``20_ir``: values, nodes, results and updates of a graph."""
    return Dump("20_ir", graph_text(graph), graph_record(graph))


def lowered_dumps(lowered: Lowered) -> tuple[Dump, Dump]:
    """Return the dumps ``30_lowered``, ops with their backends, and ``31_op_attrs``, their attributes."""
    return (
        Dump("30_lowered", lowered_text(lowered), lowered_record(lowered)),
        Dump("31_op_attrs", attrs_text(lowered), attrs_records(lowered)),
    )


def plan_dump(plan: Any) -> Dump:
    """Return the dump ``40_plan``: the buffer and the live range of each value."""
    return Dump("40_plan", str(plan), plan.to_dict())


def call_log_dump(trace: CallLog) -> Dump:
    """Return the dump ``50_runtime_trace``: the call log."""
    return Dump("50_runtime_trace", call_log_text(trace), call_log_record(trace))


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
    try:
        path.mkdir(parents=True, exist_ok=True)
        with staged_files(path) as staging:
            for name, text in contents.items():
                staging.write(functools.partial(_write, name, text))
    except OSError as error:
        raise CaptureError(
            f"the dumps cannot be written: {error.strerror or error}",
            where=str(path),
            fix="check that this is a folder, and may be written to",
        ) from error
    return tuple(path / name for name in contents)


def _write(name: str, text: str, file: BinaryIO) -> str:
    file.write(f"{text}\n".encode())
    return name

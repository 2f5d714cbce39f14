"""The stages of a captured step as files: what people read (``.txt``), and the same for programs (``.json``)."""

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
from npu_runtime.training.dumps.call_log import Trace
from npu_runtime.training.dumps.json_dump import attrs_records, graph_record, lowered_record, trace_record
from npu_runtime.training.dumps.text_dump import attrs_text, graph_text, lowered_text, trace_text

__all__ = ["Dump", "dump_stages", "graph_dump", "lowered_dumps", "lowered_text", "plan_dump", "trace_dump"]


@dataclass(frozen=True, slots=True)
class Dump:
    """One stage.

    Attributes:
        name: Of its files, without their ending: ``20_ir``.
        text: For people.
        data: The same as plain data.
    """

    name: str
    text: str
    data: Any


def graph_dump(graph: Graph) -> Dump:
    """Return the stage ``20_ir``: values and nodes of a graph."""
    return Dump("20_ir", graph_text(graph), graph_record(graph))


def lowered_dumps(lowered: Lowered) -> tuple[Dump, Dump]:
    """Return the stages ``30_lowered``, who runs what, and ``31_op_attrs``, the attributes of each op."""
    return (
        Dump("30_lowered", lowered_text(lowered), lowered_record(lowered)),
        Dump("31_op_attrs", attrs_text(lowered), attrs_records(lowered)),
    )


def plan_dump(plan: Any) -> Dump:
    """Return the stage ``40_plan``: where each value lies, and how long."""
    return Dump("40_plan", str(plan), plan.to_dict())


def trace_dump(trace: Trace) -> Dump:
    """Return the stage ``50_runtime_trace``: what ran."""
    return Dump("50_runtime_trace", trace_text(trace), trace_record(trace))


def dump_stages(folder: str | os.PathLike[str], dumps: tuple[Dump, ...]) -> tuple[Path, ...]:
    """Write stages into a folder, which is made if it is not there; returns the files.

    All files appear together or none does; those of an earlier dump are replaced. The same stages give the same bytes.

    Raises:
        CaptureError: The folder cannot be made or written to.
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
            f"the stages cannot be dumped: {error.strerror or error}",
            where=str(path),
            fix="check that this is a folder, and may be written to",
        ) from error
    return tuple(path / name for name in contents)


def _write(name: str, text: str, file: BinaryIO) -> str:
    file.write(f"{text}\n".encode())
    return name

"""Measured costs: what nodes take on each backend, and which pipeline is fastest, on one kind of machine.

``npu tune`` measures them; a file beside the graph has those of each machine.
"""

from __future__ import annotations

import json
import os
import platform
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from npu_ir import OpNode
from npu_ir.core.literals import format_literal
from npu_ir.errors import SerializationError
from npu_ir.graph.requirement import require_path
from npu_ir.plugins.backend import Backend
from npu_ir.serial.atomic_write import write_file, writing
from npu_ir.serial.strict_json import (
    DAMAGED,
    Location,
    RecordKeys,
    read_as,
    read_json,
    read_record,
    short_repr,
)
from npu_runtime.backends.registry import distribution_of

_FORMAT, _VERSION = "npu-tuning", 1
_KEYS = RecordKeys(frozenset({"format", "version", "machines"}))
_ENTRY = RecordKeys(frozenset({"machine", "passes", "seconds"}))
_MEASURE = "remove the file, and measure again: npu tune"
_CPU_INFO = Path("/proc/cpuinfo")


@dataclass(frozen=True, slots=True)
class MeasuredCosts:
    """Costs that were measured on one kind of machine.

    Attributes:
        machine: The CPU, the number of threads, and the versions that the numbers hold for.
        passes: The pipeline whose executor was fastest.
        seconds: The seconds of a call by the signature of the node, then by the name of the backend.
    """

    machine: Mapping[str, str]
    passes: str
    seconds: Mapping[str, Mapping[str, float]]

    def of(self, node: OpNode, backends: Sequence[Backend]) -> list[float] | None:
        """Return the seconds of a node on each backend; None unless all of them are known."""
        known = self.seconds.get(signature_of(node), {})
        found = [known[backend.name] for backend in backends if backend.name in known]
        return found if len(found) == len(backends) else None


def signature_of(node: OpNode) -> str:
    """Return a text that is the same for nodes that take the same time: their op, attributes and types."""
    inputs = ", ".join(str(value.type) for value in node.inputs)
    attrs = ", ".join(f"{name}={format_literal(item)}" for name, item in node.attrs.items())
    return f"{node.op_type}({inputs}) {{{attrs}}} -> {', '.join(str(value.type) for value in node.outputs)}"


def describe_machine(backends: Sequence[Backend], threads: int | None) -> dict[str, str]:
    """Return what measured times hold for: CPU, threads, version of PyTorch, distributions of backends."""
    cpu = platform.processor() or platform.machine()
    if _CPU_INFO.exists():
        lines = _CPU_INFO.read_text().splitlines()
        cpu = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), cpu)
    return {
        "cpu": cpu,
        "threads": str(torch.get_num_threads() if threads is None else threads),
        "torch": str(torch.__version__),
        **{backend.name: distribution_of("backends", backend.name) for backend in backends},
    }


def tuning_path(graph_path: str | os.PathLike[str]) -> Path:
    """Return the path of the measured costs beside a graph: ``net.tuning.json`` for ``net.json``."""
    path = require_path(graph_path, SerializationError)
    if path.name.endswith(".tuning.json"):
        return path
    return path.with_name(f"{path.name.removesuffix('.json')}.tuning.json")


def load_measured_costs(path: Path, machine: Mapping[str, str]) -> MeasuredCosts | None:
    """Return what a file says about a machine; None if it says nothing, or is not there.

    Raises:
        SerializationError: It cannot be read, is damaged, or was written by a newer version.
    """
    if not os.path.exists(path):
        return None
    return next((item for item in _read_entries(path) if item.machine == machine), None)


def save_measured_costs(costs: MeasuredCosts, path: Path) -> None:
    """Write costs to a file, in place of those of the same machine.

    Raises:
        SerializationError: The file cannot be written, or is not one of measured costs.
    """
    others = [item for item in _read_entries(path) if item.machine != costs.machine] if path.exists() else []
    data = {"format": _FORMAT, "version": _VERSION, "machines": [asdict(item) for item in (*others, costs)]}
    with writing("the measured costs", path, SerializationError):
        write_file(path, (json.dumps(data, indent=1, allow_nan=False) + "\n").encode())


def _read_entries(path: Path) -> list[MeasuredCosts]:
    try:
        return _parse_entries(path)
    except SerializationError as error:
        if error.fix != DAMAGED:
            raise
        raise SerializationError(error.message, where=error.where, fix=_MEASURE) from error


def _parse_entries(path: Path) -> list[MeasuredCosts]:
    place = Location(str(path))
    data = read_json(path)
    if type(data) is not dict or data.get("format") != _FORMAT:
        raise place.error("these are not measured costs", _MEASURE)
    if data.get("version") != _VERSION:
        raise place.error(
            f"the costs have format {data.get('version')!r}, this npu-runtime reads {_VERSION}", _MEASURE
        )
    rows = read_as(list, read_record(data, _KEYS, place)["machines"], place, "machines")
    return [_read_entry(row, place.at("machines", index)) for index, row in enumerate(rows)]


def _read_entry(row: Any, place: Location) -> MeasuredCosts:
    record = read_record(row, _ENTRY, place)
    seconds = read_as(dict, record["seconds"], place, "seconds")
    for signature, by_backend in seconds.items():
        for name, taken in read_as(dict, by_backend, place, "seconds", signature).items():
            if type(taken) not in (int, float) or not 0 <= taken <= sys.float_info.max:
                raise place.at("seconds", signature, name).error(
                    f"{short_repr(taken)} is not a time", _MEASURE
                )
    machine = read_as(dict, record["machine"], place, "machine")
    return MeasuredCosts(machine, read_as(str, record["passes"], place, "passes"), seconds)

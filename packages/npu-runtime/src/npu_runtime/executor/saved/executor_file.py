"""The file of a saved executor: safetensors, with the graph, its plan and its environment in the header."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from npu_ir import Graph, SerializationError, TensorType, Value
from npu_ir.core.node import InputKind, external_names
from npu_ir.graph.requirement import require_path
from npu_ir.plugins import plugin_manager
from npu_ir.plugins.backend import Backend
from npu_ir.serial.atomic_write import staged_files
from npu_ir.serial.document import CompanionFiles, StoredData, iterate_document
from npu_ir.serial.load import build_graph, check_document
from npu_ir.serial.strict_json import (
    DAMAGED,
    Location,
    RecordKeys,
    parse_json,
    read_as,
    read_record,
    read_texts,
    short_repr,
)
from npu_ir.serial.tensor_file import TensorFile, write_tensors
from npu_runtime.backends.partition import ATEN
from npu_runtime.backends.registry import find_backend
from npu_runtime.executor.bound_weights import BoundWeights, bind, place_weight
from npu_runtime.executor.options import resolve_device
from npu_runtime.executor.saved.environment import describe_environment, find_differences
from npu_runtime.executor.saved.file_errors import NEW_FILE, named_place
from npu_runtime.executor.saved.frozen_graph import freeze
from npu_runtime.executor.saved.saved_options import read_options
from npu_runtime.executor.saved.stored_tensors import (
    checksum,
    collect_memories,
    is_storable,
    restore_tensors,
)
from npu_runtime.lowering.lowered_graph import LoweredGraph

_VERSION = 1
_ENTRY, _DIGEST = "npu-executor", "npu-executor.sha256"
_KEYS = RecordKeys(
    frozenset({"version", "environment", "backends", "passes", "device", "options", "graph", "frozen"})
    | {"plan", "tensors", "checksums"}
)
_PART = RecordKeys(frozenset({"backend", "nodes", "kernels"}))


@dataclass(frozen=True, slots=True)
class PlannedPart:
    """A partition of a plan: its backend, the number of its nodes, and the kernels that were chosen."""

    backend: str
    nodes: int
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SavedExecutor:
    """The parts of an executor that a file keeps.

    Attributes:
        graph: The graph after the passes; in a file, and from it, a frozen one.
        frozen: The names of the weights that are in the graph only in another form.
        passes: The names of these passes.
        backends: The names of the backends, and whether each is what it offers to compete by cost.
        device: The device to run on.
        options: ``threads``, ``updates`` and ``donate``, as `IRExecutor` takes them.
        plan: The partitions, in order.
        bound: The weights, with the current content of mutated state.
    """

    graph: Graph
    frozen: tuple[str, ...]
    passes: tuple[str, ...]
    backends: Mapping[str, bool]
    device: torch.device
    options: Mapping[str, Any]
    plan: tuple[PlannedPart, ...]
    bound: BoundWeights

    @property
    def chosen(self) -> list[str]:
        """The name of the backend of each node of the body."""
        return [part.backend for part in self.plan for _ in range(part.nodes)]

    @property
    def environment(self) -> dict[str, str]:
        """The environment that these parts depend on, as it is here."""
        return describe_environment(self.backends, self.passes, self.device)


def name_backends(backends: Sequence[Backend]) -> dict[str, bool]:
    """Return the names of backends, and whether each is what a plugin offers to compete by cost.

    Raises:
        SerializationError: No plugin provides one, so another process would not find it.
    """
    named = {}
    for backend in backends:
        known = plugin_manager.get_plugins().backends.get(backend.name)
        if type(backend) is type(known):
            named[backend.name] = False
        elif known is not None and type(backend) is type(known.by_cost()):
            named[backend.name] = True
        else:
            raise SerializationError(
                f"no plugin provides the backend {backend.name!r} of the executor: {type(backend).__name__}",
                fix="a file names backends: return it from the hook npu_backends of a plugin",
            )
    return named


def find_backends(named: Mapping[str, bool]) -> list[Backend]:
    """Return the backends that `name_backends` has named.

    Raises:
        BackendError: There is no such backend.
    """
    found = {name: find_backend(name) for name in named}
    return [
        (found[name].by_cost() if is_priced else None) or found[name] for name, is_priced in named.items()
    ]


def plan_of(lowered: LoweredGraph) -> tuple[PlannedPart, ...]:
    """Return the partitions of a lowered graph, with their kernels."""
    return tuple(
        PlannedPart(
            item.partition.backend.name,
            len(item.partition.nodes),
            tuple(op.kernel or op.kind for op in item.ops if item.program is not None),
        )
        for item in lowered.partitions
    )


def write_executor(saved: SavedExecutor, path: str | os.PathLike[str]) -> None:
    """Write the parts of an executor to one file, which appears complete or not at all.

    The graph is frozen: what its prologue has computed is stored, and what only the prologue reads is not.

    Raises:
        SerializationError: A tensor cannot be stored, or the file cannot be written.
    """
    path = require_path(path, SerializationError)
    native = {node for node, name in zip(saved.graph.body, saved.chosen, strict=True) if name != ATEN}
    frozen = freeze(saved.graph, saved.bound, native)
    tensors, data = _select_tensors(frozen.graph, saved.bound, saved.device)
    rows, memories = collect_memories(tensors)
    beside = CompanionFiles(None, None, data)
    content = {
        "version": _VERSION,
        "environment": saved.environment,
        "backends": dict(saved.backends),
        "passes": saved.passes,
        "device": str(saved.device),
        "options": dict(saved.options),
        "graph": json.loads("".join(iterate_document(frozen.graph, beside))),
        "frozen": sorted({*saved.frozen, *frozen.frozen}),
        "plan": [
            {"backend": part.backend, "nodes": part.nodes, "kernels": part.kernels} for part in saved.plan
        ],
        "tensors": rows,
        "checksums": {name: checksum(memory) for name, memory in memories.items()},
    }
    text = json.dumps(content, allow_nan=False, separators=(",", ":"))
    header = {_ENTRY: text, _DIGEST: _digest(text)}
    stored = {name: (memory, TensorType.of(memory)) for name, memory in memories.items()}
    try:
        with staged_files(path.parent) as files:
            files.write(lambda file: (write_tensors(file, stored, header), path.name)[1])
    except (OSError, ValueError) as error:
        raise SerializationError(
            f"the executor cannot be written: {getattr(error, 'strerror', None) or error}",
            where=str(path),
            fix="check that the folder exists, may be written to and has space left",
        ) from error


def _select_tensors(
    graph: Graph, bound: BoundWeights, device: torch.device
) -> tuple[dict[str, torch.Tensor], dict[Value, StoredData]]:
    """Return the tensors of a frozen graph, by key, and for what has data in it the key of this data.

    The weights of ``bound`` are those of the graph before it was frozen: they have the same names.
    """
    given = {value.name: item for value, item in bound.tensors.items()}
    data, tensors = {}, {}
    for number, part in enumerate(graph.graphs()):
        for value in part.arguments:
            argument = value.argument
            assert argument is not None
            item = argument.data if part is not graph else given.get(value.name, argument.data)
            if argument.kind is InputKind.INPUT or item is None:
                continue
            key = f"{number}.{value.name}"
            if argument.kind is InputKind.CONSTANT or not argument.persistent:
                data[value] = StoredData(key, "")
            tensors[key] = place_weight(value, item, device)
    tensors |= {f"state.{number}": item for number, item in enumerate(bound.state)}
    for key, item in tensors.items():
        if not is_storable(item):
            raise SerializationError(
                f"the weight {key.partition('.')[2]!r} is not a plain tensor: {type(item).__name__} of layout"
                f" {item.layout}, {item.dtype}",
                where=f"graph {graph.name!r}",
                fix="give the executor dense weights, without quantized dtypes",
            )
    return tensors, data


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def read_executor(path: str | os.PathLike[str]) -> SavedExecutor:
    """Return the parts of the executor in a file, with its weights mapped from there.

    Raises:
        SerializationError: The file is missing, damaged, or of another kind or version; or it was made in
            another environment: the error says what differs.
    """
    path = require_path(path, SerializationError)
    place = Location(str(path))
    with TensorFile(path) as file:
        content = _read_content(file.metadata, place)
        passes = tuple(read_texts(content["passes"], place, "passes"))
        backends = _read_backends(content["backends"], place.at("backends"))
        device = _read_device(content["device"], place.at("device"))
        there = read_as(dict, content["environment"], place, "environment")
        if differences := find_differences(there, describe_environment(backends, passes, device)):
            raise place.error(
                "the executor was saved in another environment: " + "; ".join(differences), NEW_FILE
            )
        memories = file.map()
    _require_intact(memories, read_as(dict, content["checksums"], place, "checksums"), place)
    with named_place(str(place)):
        device = resolve_device(device)
    on_device = {name: memory.to(device) for name, memory in memories.items()}
    rows = read_as(dict, content["tensors"], place, "tensors")
    tensors = restore_tensors(rows, on_device, place.at("tensors"))
    document = check_document(content["graph"], place.at("graph"))
    with named_place(str(place)):
        graph = build_graph(document, place.at("graph"), _StoredTensors(tensors, place))
        bound = _bind(graph, tensors, device, place.at("tensors"))
    plan = _read_plan(read_as(list, content["plan"], place, "plan"), place.at("plan"), graph, backends)
    options = read_options(content["options"], graph, place.at("options"))
    frozen = tuple(read_texts(content["frozen"], place, "frozen"))
    return SavedExecutor(graph, frozen, passes, backends, device, options, plan, bound)


def _read_content(metadata: Mapping[str, Any], place: Location) -> dict[str, Any]:
    text = metadata.get(_ENTRY)
    if not isinstance(text, str):
        raise place.error("this is not a saved executor", "give the path that was given to IRExecutor.save")
    if metadata.get(_DIGEST) != _digest(text):
        raise place.error("the header is not what was saved: its SHA-256 differs", NEW_FILE)
    content = parse_json(text.encode(), str(place))
    version = content.get("version") if isinstance(content, dict) else None
    if version != _VERSION:
        raise place.error(f"the executor has format {version!r}, this npu-runtime reads {_VERSION}", NEW_FILE)
    return read_record(content, _KEYS, place)


def _read_backends(data: Any, place: Location) -> dict[str, bool]:
    return {name: read_as(bool, item, place, name) for name, item in read_as(dict, data, place).items()}


def _read_device(data: Any, place: Location) -> torch.device:
    text = read_as(str, data, place)
    try:
        return torch.device(text)
    except RuntimeError as error:
        raise place.error(f"{short_repr(text)} is not a device of PyTorch", NEW_FILE) from error


def _require_intact(memories: Mapping[str, torch.Tensor], sums: Mapping[str, Any], place: Location) -> None:
    for name, memory in memories.items():
        if memory.numel() % 8 or checksum(memory) != sums.get(name):
            raise place.at(name).error("the weights are not what was saved: their checksum differs", NEW_FILE)


def _read_plan(
    rows: Sequence[Any], place: Location, graph: Graph, backends: Mapping[str, bool]
) -> tuple[PlannedPart, ...]:
    parts = []
    for index, row in enumerate(rows):
        record = read_record(row, _PART, place, index)
        kernels = tuple(read_texts(record["kernels"], place, index, "kernels"))
        backend, nodes = read_as(str, record["backend"], place, index, "backend"), record["nodes"]
        if backend not in backends or type(nodes) is not int or nodes < 1:
            raise place.at(index).error(
                f"{short_repr(nodes)} nodes for {backend!r}: a part of the plan has a"
                f" number of nodes, and one of the backends {', '.join(backends)}"
            )
        parts.append(PlannedPart(backend, nodes, kernels))
    if sum(part.nodes for part in parts) != len(graph.body):
        raise place.error(f"the plan is not one of the {len(graph.body)} nodes of the graph")
    return tuple(parts)


@dataclass(frozen=True, slots=True)
class _StoredTensors:
    """The tensors of a file as the data of constants and buffers; the file has been checked as a whole."""

    tensors: Mapping[str, torch.Tensor]
    place: Location

    def read(self, name: str, type: TensorType, sha256: str) -> torch.Tensor:  # noqa: ARG002
        found = self.tensors.get(name)
        if found is None or (found.dtype, tuple(found.shape)) != (type.dtype, type.static_shape):
            raise self.place.at("tensors", name).error(f"there is no {type} of this name", DAMAGED)
        return found


def _bind(
    graph: Graph, tensors: Mapping[str, torch.Tensor], device: torch.device, place: Location
) -> BoundWeights:
    weights = {
        external_names(value)[0]: tensors[f"0.{value.name}"]
        for value in graph.weights
        if f"0.{value.name}" in tensors
    }
    bound = bind(graph, weights, None, device)
    state = []
    for number, initial in enumerate(bound.state):
        item = tensors.get(f"state.{number}")
        if item is None or (item.dtype, item.shape) != (initial.dtype, initial.shape):
            expected = TensorType.of(initial)
            raise place.at(f"state.{number}").error(f"there is no {expected} of this name", NEW_FILE)
        state.append(item)
    return replace(bound, state=tuple(state))


def require_plan(plan: Sequence[PlannedPart], found: Sequence[PlannedPart], path: str) -> None:
    """Require that a graph was lowered to the kernels that its plan names.

    Raises:
        SerializationError: Names the first partition that differs.
    """
    for part, other in zip(plan, found, strict=True):
        if part == other:
            continue
        differing = next(
            (f"{one} there, {two} here" for one, two in zip(part.kernels, other.kernels) if one != two),  # noqa: B905
            f"{len(part.kernels)} kernels there, {len(other.kernels)} here",
        )
        raise SerializationError(
            f"the backend {part.backend!r} has other kernels than the executor was saved with: {differing}",
            where=path,
            fix=NEW_FILE,
        )

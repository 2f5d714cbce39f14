"""Loading of a saved graph; every part of the file is validated before use."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from npu_ir.core.isolation import pause_gc
from npu_ir.errors import GraphError, SerializationError
from npu_ir.graph.graph import Graph
from npu_ir.graph.requirement import require_path
from npu_ir.ops.schema import resolve
from npu_ir.plugins import plugin_manager
from npu_ir.serial.compatibility.comparison import calls_by_op, compare_op
from npu_ir.serial.document import FORMAT, VERSION
from npu_ir.serial.graph_reader import REGION_KEYS, GraphReader, TensorReader
from npu_ir.serial.strict_json import (
    DAMAGED,
    Location,
    RecordKeys,
    read_as,
    read_json,
    read_record,
    short_repr,
)
from npu_ir.serial.tensor_file import TensorFile

_KEYS = RecordKeys(
    REGION_KEYS.required | {"format", "version", "torch", "tensors", "weights", "schemas", "updates"},
    frozenset({"symbols", "constraints", "prologue"}),
)


def load_ir(path: str | os.PathLike[str]) -> Graph:
    """Return the graph that `save_ir` wrote to ``path``.

    No code from the file is run, and sizes it states are validated: untrusted files are safe to load.

    Raises:
        SerializationError: The file or its tensor file is missing, damaged, from a newer version, or
            saved with other schemas of operators than those of this process, so that a call would have
            another meaning; says where. `check_compatibility` says what changed.
    """
    path = require_path(path, SerializationError)
    with translate_damage(path), pause_gc(), open_document(path) as (document, place, tensors):
        return build_graph(document, place, tensors)


@contextlib.contextmanager
def translate_damage(path: Path) -> Iterator[None]:
    """Convert what goes wrong in a damaged file to a `SerializationError`."""
    try:
        yield
    except GraphError as error:
        raise SerializationError(
            error.message, where=f"{path}: {error.where or 'the graph'}", fix=DAMAGED
        ) from error
    except RecursionError as error:
        raise Location(str(path)).error("nested too deeply") from error


def read_document(path: Path) -> dict[str, Any]:
    """Return the document at ``path``, with its keys checked against this version."""
    return check_document(read_json(path), Location(str(path)))


def check_document(data: Any, place: Location) -> dict[str, Any]:
    """Return the data of a document, with its keys checked against this version."""
    if type(data) is not dict or data.get("format") != FORMAT:
        raise place.error("this is not a graph of npu-ir", "give the path that was given to save_ir")
    version = data.get("version")
    if type(version) is not int or version < 1:
        raise place.at("version").error(f"{short_repr(version)} is not a version")
    if version > VERSION:
        raise place.at("version").error(
            f"made by a newer version of npu-ir: format {version}, this one reads {VERSION}", "upgrade npu-ir"
        )
    return read_record(data, _KEYS, place)


def companion_file_name(name: Any, place: Location) -> str | None:
    """Return the file that an entry of a document names: a safetensors file in its folder, or None."""
    if name is None:
        return None
    text = read_as(str, name, place)
    if not text.endswith(".safetensors") or any(char in text for char in "/\\:\0"):
        raise place.error(f"{short_repr(text)} is not the name of a safetensors file in the same folder")
    return text


@contextlib.contextmanager
def open_document(path: Path) -> Iterator[tuple[dict[str, Any], Location, TensorReader | None]]:
    """Yield the document at ``path``, with its keys checked, its place, and the file of its tensors."""
    data, place = read_document(path), Location(str(path))
    companion_file_name(data["weights"], place.at("weights"))
    tensors = companion_file_name(data["tensors"], place.at("tensors"))
    with contextlib.nullcontext() if tensors is None else TensorFile(path.parent / tensors) as file:
        yield data, place, file


def build_graph(data: dict[str, Any], place: Location, tensors: TensorReader | None) -> Graph:
    """Return the graph of a document whose keys have been checked, with the data that ``tensors`` reads."""
    graph = read_graph_unchecked(data, place, tensors)
    _require_same_meaning(graph, data["schemas"], place.at("schemas"))
    graph.check()
    return graph


def read_graph_unchecked(data: dict[str, Any], place: Location, tensors: TensorReader | None) -> Graph:
    """Return the graph of a document, whose calls may not fit the ops of this process."""
    read_as(str, data["torch"], place, "torch")
    schemas = read_as(dict, data["schemas"], place, "schemas")
    for op_type, schema in schemas.items():
        read_as(str, schema, place.at("schemas"), op_type)
    return GraphReader(read_as(str, data["name"], place, "name"), place, tensors).read(data)


def _require_same_meaning(graph: Graph, schemas: dict[str, str], place: Location) -> None:
    """Require that calls mean here what they meant with the stored schemas; unknown ops may mean anything."""
    if any(resolve(op_type) is None for op_type in schemas):
        plugin_manager.get_plugins()  # they may register it
    for op_type, calls in calls_by_op(graph).items():
        if op_type not in schemas or resolve(op_type) is None:
            continue
        op = compare_op(op_type, schemas[op_type], calls)
        if not op.verdict.is_usable:
            change = next(change for change in op.changes if not change.verdict.is_usable)
            raise place.at(op_type).error(
                f"{op_type} has another schema here: the file has {schemas[op_type][:500]!r}, "
                f"this PyTorch has {op.present!r}: {change.text}",
                "npu check-compat FILE says what changed and migrates what it can; or use the PyTorch the "
                "file was made with, or export the model again",
            )

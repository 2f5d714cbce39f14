"""Loading of a saved graph; every part of the file is validated before use."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Any

from npu_ir._torch.ops import accepts_calls_of
from npu_ir.core.isolation import pause_gc
from npu_ir.errors import GraphError, SerializationError
from npu_ir.graph.graph import Graph
from npu_ir.ops.schema import resolve
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

_MAX_NESTING = 16
_KEYS = RecordKeys(
    REGION_KEYS.required | {"format", "version", "torch", "tensors", "weights", "schemas", "updates"},
    frozenset({"symbols", "constraints", "prologue"}),
)


def load_ir(path: str | os.PathLike[str]) -> Graph:
    """Return the graph that `save_ir` wrote to ``path``.

    No code from the file is run, and sizes it states are validated: untrusted files are safe to load.

    Raises:
        SerializationError: The file or its tensor file is missing, damaged, from a newer version, or
            saved with other schemas of operators than those of this process; says where.
    """
    path = Path(path)
    place = Location(str(path))
    try:
        with pause_gc():
            return _read_graph(read_document(path), place, path.parent)
    except GraphError as error:
        raise SerializationError(
            error.message, where=f"{path}: {error.where or 'the graph'}", fix=DAMAGED
        ) from error
    except RecursionError as error:
        raise place.error("nested too deeply") from error


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


def _read_graph(data: dict[str, Any], place: Location, folder: Path) -> Graph:
    companion_file_name(data["weights"], place.at("weights"))
    tensors = companion_file_name(data["tensors"], place.at("tensors"))
    with contextlib.nullcontext() if tensors is None else TensorFile(folder / tensors) as file:
        return build_graph(data, place, file)


def build_graph(data: dict[str, Any], place: Location, tensors: TensorReader | None) -> Graph:
    """Return the graph of a document whose keys have been checked, with the data that ``tensors`` reads."""
    read_as(str, data["torch"], place, "torch")
    _require_compatible_schemas(read_as(dict, data["schemas"], place, "schemas"), place.at("schemas"))
    graph = GraphReader(read_as(str, data["name"], place, "name"), place, tensors).read(data)
    graph.check()
    return graph


def _require_compatible_schemas(schemas: dict[str, Any], place: Location) -> None:
    """Require that calls of the stored schemas have the same meaning for the operators of this process."""
    for op_type, stored in schemas.items():
        read_as(str, stored, place, op_type)
        op = resolve(op_type)
        if op is None or str(op._schema) == stored:
            continue
        if not _is_safe_to_parse(stored) or not accepts_calls_of(op, stored):
            raise place.at(op_type).error(
                f"{op_type} has another schema here: the file has {stored[:500]!r}, "
                f"this PyTorch has {str(op._schema)!r}",
                "use the PyTorch the file was made with, or export the model again",
            )


def _is_safe_to_parse(schema: str) -> bool:
    """Return whether ``schema`` is safe to pass to torch's schema parser.

    The parser recurses without a limit: deep nesting overflows the C stack and ends the process (torch 2.13).
    """
    depth = deepest = 0
    for char in schema:
        depth += (char in "([") - (char in ")]")
        deepest = max(deepest, depth)
    return schema.isascii() and deepest <= _MAX_NESTING

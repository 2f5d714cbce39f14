"""Saving of a graph: all files are complete before any of them gets its final name."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from npu_ir.core.node import Value, external_names
from npu_ir.core.types import TensorType
from npu_ir.errors import SerializationError
from npu_ir.graph.binding import bind_weights, flatten_wrappers
from npu_ir.graph.graph import Graph
from npu_ir.graph.requirement import require_graph, require_path
from npu_ir.serial.atomic_write import staged_files, writing
from npu_ir.serial.document import CompanionFiles, StoredData, iterate_document
from npu_ir.serial.strict_json import MAX_DOCUMENT_BYTES, read_json
from npu_ir.serial.tensor_file import write_tensors, write_weights
from npu_ir.serial.tensor_layout import require_storable

_TENSOR_FILE = re.compile(r"(.*)-[0-9a-f]{16}\.safetensors", re.DOTALL)


def select_weights(graph: Graph, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors of the parameters, buffers and optimizer state of ``graph``, tied ones once.

    Tied weights get their first name. A buffer that is not in the ``state_dict`` may be left out.

    Raises:
        WeightError: The weights do not fit; lists every problem.
        SerializationError: A tensor is of a kind that cannot be stored.
    """
    weights = flatten_wrappers(weights)
    for name, tensor in weights.items():
        if isinstance(tensor, torch.Tensor):
            require_storable(tensor, name)
    left_out = {
        target: torch.empty(buffer.type.static_shape, dtype=buffer.type.dtype, device="meta")
        for target, buffer in graph.buffers.items()
        if isinstance(buffer.type, TensorType)
        and buffer.argument is not None
        and not buffer.argument.persistent
        and buffer.data is None
        and not any(key in weights for key in external_names(buffer))
    }
    return {
        value.target: tensor
        for value, tensor in bind_weights(graph, weights, left_out).items()
        if value.data is None and value.target not in left_out
    }


def save_ir(
    graph: Graph, path: str | os.PathLike[str], *, weights: Mapping[str, torch.Tensor] | None = None
) -> None:
    """Write ``graph`` to ``path``, a JSON document with its tensors in a file beside it.

    For ``model.json`` the data of constants goes to ``model-<hash>.safetensors``, if there is any, and
    ``weights`` to ``model.weights.safetensors``. After an error the previous files are still there and
    complete; after success the tensor file of the previous graph at ``path`` is removed.

    Args:
        graph: Any graph.
        path: Destination; usually ends in ``.json``.
        weights: Parameters, buffers and optimizer state by name; tied ones are stored once.

    Raises:
        GraphError: The graph breaks a rule of the IR.
        SerializationError: A tensor is of a kind that cannot be stored, or a file cannot be written.
        WeightError: The weights do not fit the graph.
    """
    require_graph(graph)
    graph.check()
    path = require_path(path, SerializationError)
    _require_valid_name(path)
    data = _tensors_to_store(graph)
    fitting = None if weights is None else select_weights(graph, weights)
    before = _tensor_file_of(path)
    try:
        with writing("the graph", path, SerializationError):
            after = _write_files(graph, path, data, fitting)
    except SerializationError as error:
        raise SerializationError(error.message, where=error.where or str(path), fix=error.fix) from error
    if before is not None and before != after:
        with contextlib.suppress(OSError):  # the graph is saved: a leftover file is harmless
            path.with_name(before).unlink()


def _require_valid_name(path: Path) -> None:
    try:
        is_valid = b"\0" not in os.fsencode(path) and path.name
    except UnicodeEncodeError:  # a lone surrogate
        is_valid = False
    if not is_valid:
        raise SerializationError(f"{str(path)!r} cannot be the name of a file", fix="give another path")


def _tensors_to_store(graph: Graph) -> dict[Value, tuple[torch.Tensor, TensorType]]:
    """Return the data of constants and buffers, each with the type that states its layout."""
    data: dict[Value, tuple[torch.Tensor, TensorType]] = {}
    for value in (value for part in graph.graphs() for value in part.arguments):
        if value.data is not None:
            require_storable(value.data, value.name)
            data[value] = value.data, value.tensor_type
    return data


def _write_files(
    graph: Graph,
    path: Path,
    data: dict[Value, tuple[torch.Tensor, TensorType]],
    weights: dict[str, torch.Tensor] | None,
) -> str | None:
    """Write the document last, as it names the others, and return the name of the tensor file, if any."""
    stem = path.name.removesuffix(".json")
    keys = {value: str(index) for index, value in enumerate(data)}
    stored: dict[Value, StoredData] = {}

    def write_data(file: BinaryIO) -> str:
        digests = write_tensors(file, {keys[value]: item for value, item in data.items()})
        stored.update((value, StoredData(key, digests[key])) for value, key in keys.items())
        return f"{stem}-{_content_digest(path, stored)}.safetensors"

    def write_weight_file(file: BinaryIO) -> str:
        write_weights(file, weights or {})
        return f"{stem}.weights.safetensors"

    def write_document(file: BinaryIO) -> str:
        beside = CompanionFiles(tensor_file, weights_file, stored)
        file.writelines(piece.encode("ascii") for piece in iterate_document(graph, beside))
        if file.tell() > MAX_DOCUMENT_BYTES:
            problem = f"the document is larger than {MAX_DOCUMENT_BYTES} bytes"
            raise SerializationError(problem, fix="save parts of it")
        return path.name

    with staged_files(path.parent) as staging:
        tensor_file = staging.write(write_data) if data else None
        weights_file = None if weights is None else staging.write(write_weight_file)
        staging.write(write_document)
    return tensor_file


def _content_digest(path: Path, stored: dict[Value, StoredData]) -> str:
    """Return 16 hex digits that identify a tensor file by its content and its document.

    A new content has a new name: the old tensor file stays valid until the document is replaced.
    """
    content = [(value.name, str(value.type), data.sha256) for value, data in stored.items()]
    return hashlib.sha256(json.dumps([os.fsencode(path.name).hex(), *content]).encode()).hexdigest()[:16]


def _tensor_file_of(path: Path) -> str | None:
    """Return the tensor file of the document that is at ``path``, if npu-ir wrote one."""
    stem = path.name.removesuffix(".json")
    try:
        if not any(_is_tensor_file(name, stem) for name in os.listdir(path.parent)):
            return None
        document: Any = read_json(path)
    except (OSError, SerializationError):
        return None  # not there, or not a graph: no tensor file to remove
    name = document.get("tensors") if isinstance(document, dict) else None
    return name if isinstance(name, str) and _is_tensor_file(name, stem) else None


def _is_tensor_file(name: str, stem: str) -> bool:
    match = _TENSOR_FILE.fullmatch(name)
    return match is not None and match[1] == stem

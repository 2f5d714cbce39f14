"""Loading of checkpoints: a single file, a sharded one, a folder, or the weights of a saved graph."""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from npu_ir.core.node import external_names
from npu_ir.errors import NpuError, SerializationError, WeightError
from npu_ir.graph.graph import Graph
from npu_ir.graph.requirement import require_path
from npu_ir.serial.load import companion_file_name, read_document
from npu_ir.serial.strict_json import DAMAGED, Location, read_json, short_repr
from npu_ir.serial.tensor_file import read_weights

SAFETENSORS = ".safetensors"
TORCH_SUFFIXES = (".pt", ".pth", ".bin")
WEIGHT_SUFFIXES = (SAFETENSORS, *TORCH_SUFFIXES)
T = TypeVar("T")
DAMAGED_TENSORS = "check that the file is complete, or save it again"
_MORE_THAN_TENSORS = (
    "the file holds more than tensors, and no code from it is run: save model.state_dict() instead"
)
_INDEX_SUFFIX = ".index.json"
_BEGINNINGS = {"torch.save": (b"PK\x03\x04", b"\x80"), "numpy.save": (b"\x93NUMPY",)}
_OTHER_INDEX = "get the index again from where the weights come from"
# The files to look for in a folder, in order of preference (the names that Hugging Face uses).
_PREFERRED_FILES = (
    "model.safetensors.index.json",
    "model.safetensors",
    "pytorch_model.bin.index.json",
    "pytorch_model.bin",
)
# Data files of saved graphs, which are not checkpoints.
_GRAPH_TENSORS = re.compile(r".*-[0-9a-f]{16}\.safetensors", re.DOTALL)


def _read_checkpoint(path: Path, wanted: Callable[[str], bool]) -> dict[str, torch.Tensor]:
    """Return the tensors of one file of any format whose names ``wanted`` accepts."""
    _require_file(path)
    if path.suffix.lower() == SAFETENSORS:
        return _read(lambda: read_weights(path, wanted), path)
    require_written_by("torch.save", path, WeightError)
    mmap = zipfile.is_zipfile(path)  # files of torch < 1.6 are not zip archives, and cannot be mapped
    content = _read(lambda: torch.load(path, map_location="cpu", weights_only=True, mmap=mmap), path)
    return {name: tensor for name, tensor in _find_state_dict(content, path).items() if wanted(name)}


def _require_file(path: Path) -> None:
    if not path.is_file():
        problem = "is not a regular file" if path.exists() else "does not exist"
        raise WeightError(
            f"the weights file {path.name} {problem}",
            where=str(path),
            fix="check the path, and that every shard is there",
        )


def _read(read: Callable[[], T], path: Path) -> T:
    try:
        return read()
    except NpuError as error:
        raise WeightError(error.message, where=error.where or str(path), fix=DAMAGED_TENSORS) from error
    except Exception as error:
        reason, is_refused = failure_reason(error)
        raise WeightError(
            f"the file cannot be read as weights: {reason}",
            where=str(path),
            fix=_MORE_THAN_TENSORS if is_refused else DAMAGED_TENSORS,
        ) from error


def require_written_by(writer: str, path: Path, error: type[NpuError]) -> None:
    """Raise an ``error`` unless a file begins as ``torch.save`` or ``numpy.save`` writes it.

    The libraries take anything else for a pickle, and advise to run the code in it.
    """
    with path.open("rb") as file:
        start = file.read(6)
    if not start.startswith(_BEGINNINGS[writer]):
        begins = f"begins with {start!r}" if start else "is empty"
        raise error(
            f"{path.name} is not what {writer} writes: it {begins}", where=str(path), fix=DAMAGED_TENSORS
        )


def failure_reason(error: Exception) -> tuple[str, bool]:
    """Return why a library cannot read a file of tensors, in a line, and whether that is for code in it.

    safetensors, zipfile, NumPy and pickle raise arbitrary exceptions on damaged files.
    """
    reason = (str(error).strip() or type(error).__name__).splitlines()[0]
    is_refused = "weights_only" in str(error) or "Weights only" in str(error)
    if is_refused:  # what follows is advice to run the code in it, in colours of a terminal
        reason = reason.partition(". ")[0]
    return reason[:300], is_refused


def _find_state_dict(content: Any, path: Path) -> dict[str, torch.Tensor]:
    """Return the only ``state_dict`` in the content of a file: the content itself, or the value of one key.

    Entries that are not tensors (``_extra_state``) are left out: a graph does not read them.
    """
    if not isinstance(content, Mapping):
        raise WeightError(
            f"expected a state_dict, found {type(content).__name__}",
            where=str(path),
            fix="save model.state_dict()",
        )
    nested = {key: item for key, item in content.items() if _is_state_dict(item)}
    if len(nested) > 1:
        raise WeightError(
            f"more than one state_dict: under the keys {', '.join(map(short_repr, nested))}",
            where=str(path),
            fix="pass one of them: weights=torch.load(path)[key]",
        )
    state = next(iter(nested.values()), content)
    tensors = {
        key: item.detach()
        for key, item in state.items()
        if isinstance(key, str) and isinstance(item, torch.Tensor)
    }
    if not tensors and content:
        raise WeightError(
            f"no state_dict under any of the keys {short_repr(list(content))}",
            where=str(path),
            fix="save model.state_dict()",
        )
    return tensors


def _is_state_dict(item: Any) -> bool:
    return isinstance(item, Mapping) and any(
        isinstance(key, str) and isinstance(value, torch.Tensor) for key, value in item.items()
    )


def load_weights(path: str | os.PathLike[str], graph: Graph | None = None) -> dict[str, torch.Tensor]:
    """Return the tensors of a checkpoint by ``state_dict`` name, on the CPU, mapped from the file.

    Args:
        path: A ``.pt``, ``.pth``, ``.bin`` or ``.safetensors`` file; the index of a sharded checkpoint
            (``*.index.json``); a folder with one of these; or a graph that was saved with weights.
        graph: Return only the weights of this graph, and open only the files that contain them.

    Raises:
        WeightError: A file is missing, damaged, or of another kind; or it has no weights of ``graph``.
    """
    path = require_path(path, WeightError)
    needed = () if graph is None else graph.weights
    names = {name for value in needed if value.data is None for name in external_names(value)}
    try:
        tensors = _load(path, (lambda _: True) if graph is None else names.__contains__)
    except OSError as error:
        raise WeightError(
            f"the weights cannot be read: {error.strerror}", where=str(path), fix="check the path"
        ) from error
    if names and not tensors:
        raise WeightError(
            f"none of the weights of the graph is here: it needs {short_repr(sorted(names))}",
            where=str(path),
            fix="check that this is a checkpoint of the same model; a common prefix in its names has to be "
            "removed",
        )
    return tensors


def weight_names(path: str | os.PathLike[str]) -> set[str]:
    """Return the names of the tensors of a checkpoint, of which none is read.

    Args:
        path: As for `load_weights`.

    Raises:
        WeightError: A file is missing, damaged, or of another kind.
    """
    names: set[str] = set()

    def note(name: str) -> bool:
        names.add(name)
        return False

    _load(require_path(path, WeightError), note)
    return names


def _load(path: Path, wanted: Callable[[str], bool]) -> dict[str, torch.Tensor]:
    if path.is_dir():
        path = _find_in_folder(path)
    _require_file(path)
    if path.name.endswith(_INDEX_SUFFIX):
        return _load_shards(path, wanted)
    is_checkpoint = path.suffix.lower() in WEIGHT_SUFFIXES
    return _read_checkpoint(path if is_checkpoint else _weights_of_document(path), wanted)


def _find_in_folder(folder: Path) -> Path:
    """Return the weights file in ``folder``, or the index of its shards."""
    names = sorted(os.listdir(folder))
    for name in _PREFERRED_FILES:
        if name in names:
            return folder / name
    indexes = [name for name in names if name.endswith(_INDEX_SUFFIX)]
    safetensors = [
        name for name in names if name.endswith(SAFETENSORS) and not _GRAPH_TENSORS.fullmatch(name)
    ]
    pickles = [name for name in names if name.endswith(TORCH_SUFFIXES)]
    candidates = indexes or safetensors or pickles
    if len(candidates) != 1:
        problem = f"the folder holds {', '.join(candidates)}" if candidates else "the folder holds no weights"
        raise WeightError(problem, where=str(folder), fix="give the path of the file itself")
    return folder / candidates[0]


def _load_shards(index: Path, wanted: Callable[[str], bool]) -> dict[str, torch.Tensor]:
    """Return the wanted tensors of a sharded checkpoint; shards without any are not opened."""
    names_in: dict[str, set[str]] = {}
    for name, shard in _weight_map(index).items():
        if wanted(name):
            names_in.setdefault(shard, set()).add(name)
    loaded: dict[str, torch.Tensor] = {}
    for shard, names in names_in.items():
        tensors = _read_checkpoint(index.with_name(shard), names.__contains__)
        missing = sorted(names - tensors.keys())
        if missing:
            raise WeightError(
                f"the index says {short_repr(missing)} are in {shard}: they are not",
                where=str(index),
                fix="get the checkpoint again",
            )
        loaded.update(tensors)
    return loaded


def _weight_map(index: Path) -> dict[str, str]:
    """Return the shard of each tensor, the name of a file in the same folder."""
    content = _read_or_raise(read_json, index, _OTHER_INDEX)
    shards: Any = content.get("weight_map") if isinstance(content, dict) else None
    if not isinstance(shards, dict):
        raise WeightError(
            "the index has no weight_map", where=str(index), fix="give the path of a checkpoint's index"
        )
    for name, shard in shards.items():
        is_plain = isinstance(shard, str) and not any(char in shard for char in "/\\:\0")
        if not is_plain or not shard.lower().endswith(WEIGHT_SUFFIXES):
            raise WeightError(
                f"{short_repr(shard)} is not the name of a weights file in the same folder",
                where=f"{index}: weight_map[{short_repr(name)}]",
                fix=_OTHER_INDEX,
            )
    return shards


def _weights_of_document(path: Path) -> Path:
    with path.open("rb") as file:
        if not file.read(64).lstrip().startswith(b"{"):
            raise WeightError(
                f"{path.name} is neither weights nor a graph",
                where=str(path),
                fix=f"supported are {', '.join(WEIGHT_SUFFIXES)}, *{_INDEX_SUFFIX}, and graphs saved with "
                "weights",
            )
    entry = _read_or_raise(read_document, path)["weights"]
    name = _read_or_raise(lambda path: companion_file_name(entry, Location(str(path)).at("weights")), path)
    if name is None:
        raise WeightError(
            "the graph was saved without weights",
            where=str(path),
            fix="save_ir(graph, path, weights=...), or give a checkpoint",
        )
    return path.with_name(name)


def _read_or_raise(read: Callable[[Path], Any], path: Path, if_damaged: str = DAMAGED) -> Any:
    try:
        return read(path)
    except SerializationError as error:
        fix = if_damaged if error.fix == DAMAGED else error.fix
        raise WeightError(error.message, where=error.where or str(path), fix=fix) from error

"""Weights from one checkpoint file of any format, memory-mapped if the format allows it."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch

from npu_ir.errors import NpuError, WeightError
from npu_ir.serial.location import short_repr
from npu_ir.serial.weights_file import read_weights

SAFETENSORS = ".safetensors"
TORCH_SUFFIXES = (".pt", ".pth", ".bin")
WEIGHT_SUFFIXES = (SAFETENSORS, *TORCH_SUFFIXES)
T = TypeVar("T")
_DAMAGED = "check that the file is complete, or save the weights again"


def read_checkpoint(path: Path, wanted: Callable[[str], bool]) -> dict[str, torch.Tensor]:
    """Return the tensors of one file whose names ``wanted`` accepts.

    Raises:
        WeightError: The file cannot be read, or is not a checkpoint.
    """
    require_file(path)
    if path.suffix.lower() == SAFETENSORS:
        return _read(lambda: read_weights(path, wanted), path)
    state = find_state_dict(_read(lambda: _load_pickle(path), path), path)
    return {name: tensor for name, tensor in state.items() if wanted(name)}


def require_file(path: Path) -> None:
    """Raise unless ``path`` is a regular file.

    Raises:
        WeightError: It does not exist, or is something else.
    """
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
        raise WeightError(error.message, where=error.where or str(path), fix=_DAMAGED) from error
    except Exception as error:
        # safetensors, zipfile and pickle raise arbitrary exceptions on damaged files.
        reason = (str(error).strip() or type(error).__name__).splitlines()[0]
        raise WeightError(
            f"the file cannot be read as weights: {reason[:300]}", where=str(path), fix=_suggest_fix(error)
        ) from error


def _suggest_fix(error: Exception) -> str:
    if "weights_only" in str(error) or "Weights only" in str(error):
        return "the file holds more than tensors, and no code from it is run: save model.state_dict() instead"
    return _DAMAGED


def _load_pickle(path: Path) -> Any:
    # Files of torch < 1.6 are not zip archives and cannot be mapped.
    return torch.load(os.fspath(path), map_location="cpu", weights_only=True, mmap=zipfile.is_zipfile(path))


def find_state_dict(content: Any, path: Path) -> dict[str, torch.Tensor]:
    """Return the only ``state_dict`` in the content of a file: the content itself, or the value of one key.

    Entries that are not tensors (``_extra_state``) are left out: a graph does not read them.

    Raises:
        WeightError: There is none, or more than one.
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

"""Files of tensors: inputs, and results, which are written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from npu_ir.cli.input_text import FileReference
from npu_ir.errors import SerializationError, UsageError
from npu_ir.serial.atomic_write import staged_files, writing
from npu_ir.serial.checkpoints import DAMAGED_TENSORS, failure_reason, require_written_by
from npu_ir.serial.tensor_file import read_weights, write_weights
from npu_ir.serial.tensor_layout import require_storable

_SAFETENSORS = ".safetensors"
_TORCH_SUFFIXES = (".pt", ".pth")
_NUMBERS_ALONE = "save an array of numbers"
_TENSORS_ALONE = "no code from a file is run: save tensors, or lists, tuples and dicts of them"
_INPUT_SUFFIXES = (".npy", *_TORCH_SUFFIXES, _SAFETENSORS)


def read_input(reference: FileReference, name: str) -> Any:
    """Return the content of a file: a tensor, or any object of a ``.pt`` file.

    The tensor that ``reference`` does not name is the one called ``name``, or else the only one.

    Raises:
        UsageError: The file cannot be read, or the choice among its tensors is ambiguous.
    """
    suffix = reference.path.suffix.lower()
    if suffix not in _INPUT_SUFFIXES:
        raise UsageError(
            f"{reference.path} is not a file of tensors", fix=f"supported are {', '.join(_INPUT_SUFFIXES)}"
        )
    if reference.key and suffix != _SAFETENSORS:
        raise UsageError(f"{reference.path}#{reference.key}: only .safetensors files hold tensors by name")
    if not reference.path.is_file():
        raise UsageError(f"there is no file {reference.path}")
    try:
        if suffix == ".npy":
            return _read_array(reference.path)
        if suffix in _TORCH_SUFFIXES:
            require_written_by("torch.save", reference.path, UsageError)
            return torch.load(reference.path, map_location="cpu", weights_only=True)
        tensors = read_weights(reference.path, lambda _: True)
    except UsageError:
        raise
    except Exception as error:
        reason, is_refused = failure_reason(error)
        raise UsageError(
            f"{reference.path} cannot be read: {reason}",
            fix=_TENSORS_ALONE if is_refused else DAMAGED_TENSORS,
        ) from error
    return _choose_tensor(tensors, reference, name)


def _read_array(path: Path) -> torch.Tensor:
    try:
        import numpy as np
    except ImportError as error:
        raise UsageError(f"reading {path} needs NumPy", fix="python -m pip install numpy") from error
    require_written_by("numpy.save", path, UsageError)
    try:
        array = np.load(path, allow_pickle=False)
    except ValueError as error:
        if "allow_pickle" not in str(error):
            raise
        raise UsageError(f"{path} holds Python objects, not numbers", fix=_NUMBERS_ALONE) from error
    if array.dtype.kind not in "biufc":
        raise UsageError(f"{path} holds {array.dtype}, not numbers", fix=_NUMBERS_ALONE)
    return torch.from_numpy(array)


def _choose_tensor(tensors: dict[str, torch.Tensor], reference: FileReference, name: str) -> torch.Tensor:
    if reference.key and reference.key not in tensors:
        raise UsageError(
            f"{reference.path} has no tensor {reference.key!r}", fix=f"it has {', '.join(tensors)}"
        )
    key = reference.key or (name if name in tensors else "")
    if key:
        return tensors[key]
    if len(tensors) != 1:
        raise UsageError(
            f"{reference.path} holds {len(tensors)} tensors: which one?",
            fix=f"--input NAME=@{reference.path}#TENSOR, TENSOR being one of {', '.join(tensors) or 'none'}",
        )
    return next(iter(tensors.values()))


def require_supported_suffix(path: Path) -> None:
    """Reject, before anything is computed, a file that `save_results` cannot write."""
    if path.suffix.lower() not in (_SAFETENSORS, *_TORCH_SUFFIXES):
        raise UsageError(
            f"results cannot be saved as {path.name!r}",
            fix="use .safetensors, or .pt for results that are not tensors",
        )


def save_results(results: Mapping[str, Any], path: Path) -> list[str]:
    """Write the results, and return the paths of those that the file cannot hold.

    ``.pt`` holds a dict of all of them; ``.safetensors`` those that are tensors.

    Raises:
        SerializationError: The file cannot be written.
    """
    is_safetensors = path.suffix.lower() == _SAFETENSORS
    tensors = {name: value for name, value in results.items() if isinstance(value, torch.Tensor)}

    def content(file: BinaryIO) -> str:
        if is_safetensors:
            write_weights(file, tensors)
        else:
            # Clones: torch.save would write the whole storage of a view.
            torch.save(
                {name: value.clone() if name in tensors else value for name, value in results.items()}, file
            )
        return path.name

    if is_safetensors:
        for name, tensor in tensors.items():
            require_storable(tensor, name)
    with writing("the results", path, SerializationError), staged_files(path.parent) as staging:
        staging.write(content)
    return [name for name in results if is_safetensors and name not in tensors]

"""Saving of a graph's results: tensors by path, in a file that is written atomically."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch

from npu_ir.errors import SerializationError, UsageError
from npu_ir.serial.atomic_write import staged_files
from npu_ir.serial.tensor_layout import require_storable
from npu_ir.serial.weights_file import write_weights

_SAFETENSORS = ".safetensors"
_TORCH_SUFFIXES = (".pt", ".pth")


def require_supported_suffix(path: Path) -> None:
    """Reject, before anything is computed, a file that `save_results` cannot write.

    Raises:
        UsageError: Its suffix is not supported.
    """
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
    try:
        with staged_files(path.parent) as staging:
            staging.write(content)
    except OSError as error:
        raise SerializationError(
            f"cannot write the results: {error.strerror or error}",
            where=str(path),
            fix="check that the folder exists and may be written to",
        ) from error
    return [name for name in results if is_safetensors and name not in tensors]

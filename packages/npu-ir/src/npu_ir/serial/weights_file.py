"""Weights in safetensors files, by their ``state_dict`` names, compatible with other tools.

A dtype that safetensors does not support is stored as bytes; its type is then in the metadata.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import torch
from safetensors import safe_open

from npu_ir.core.types import TensorType
from npu_ir.serial.location import Location, read_object
from npu_ir.serial.strict_json import parse_json
from npu_ir.serial.tensor_file import write_tensors
from npu_ir.serial.tensor_layout import NATIVE_DTYPES, stored_form
from npu_ir.serial.type_json import read_tensor_type, type_to_json

_TYPES = "npu-ir.types"


def write_weights(file: BinaryIO, weights: Mapping[str, torch.Tensor]) -> None:
    """Write weights, each row-major.

    Raises:
        SerializationError: A name is not allowed in a safetensors file.
    """
    types = {name: TensorType(tuple(tensor.shape), tensor.dtype) for name, tensor in weights.items()}
    raw = {name: type_to_json(type) for name, type in types.items() if type.dtype not in NATIVE_DTYPES}
    metadata = {"format": "pt", **({_TYPES: json.dumps(raw)} if raw else {})}
    write_tensors(file, {name: (tensor, types[name]) for name, tensor in weights.items()}, metadata)


def read_weights(path: Path, wanted: Callable[[str], bool]) -> dict[str, torch.Tensor]:
    """Return the memory-mapped tensors of a safetensors file whose names ``wanted`` accepts.

    Raises:
        SerializationError: The metadata contradicts a tensor.
        Exception: Any error that safetensors raises for a damaged file.
    """
    with safe_open(path, framework="pt", device="cpu") as file:
        types = _read_raw_types(file.metadata() or {}, Location(str(path)).at("metadata"))
        tensors = {name: file.get_tensor(name) for name in file.keys() if wanted(name)}  # noqa: SIM118
    for name in types.keys() & tensors.keys():
        tensors[name] = _restore_dtype(tensors[name], types[name], Location(str(path)).at(name))
    return tensors


def _read_raw_types(metadata: Mapping[str, str], place: Location) -> dict[str, TensorType]:
    if _TYPES not in metadata:
        return {}
    data = parse_json(metadata[_TYPES].encode(), str(place))
    return {name: read_tensor_type(item, place, name) for name, item in read_object(data, place).items()}


def _restore_dtype(content: torch.Tensor, type: TensorType, place: Location) -> torch.Tensor:
    if (
        type.strides is not None
        or content.dtype != torch.uint8
        or tuple(content.shape) != stored_form(type).shape
    ):
        raise place.error(f"the content is not that of a {type}")
    return content.view(type.dtype).view(type.static_shape)

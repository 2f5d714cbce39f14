"""Weights in safetensors files: by their ``state_dict`` names, as every other tool writes them.

A dtype that safetensors does not know is stored as bytes; the metadata then says what it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import BinaryIO

import torch
from safetensors import safe_open

from npu_ir.binding import bind_weights
from npu_ir.graph import Graph
from npu_ir.node import Argument, InputKind, Value
from npu_ir.serial.place import Place
from npu_ir.serial.strict_json import parse_json
from npu_ir.serial.tensor_file import write_tensors
from npu_ir.serial.tensor_layout import NATIVE_DTYPES, require_storable, stored_form
from npu_ir.serial.written_types import read_tensor_type, type_to_json
from npu_ir.types import TensorType

_TYPES = "npu-ir.types"


def fitting_weights(graph: Graph, weights: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensor of each parameter and buffer of ``graph``; of tied ones only the first name.

    A buffer that is not in the ``state_dict`` may be left out.

    Raises:
        WeightError: The weights do not fit; lists every problem.
        SerializationError: A tensor is of a kind that cannot be stored.
    """
    left_out = {
        buffer.argument.target: torch.empty(buffer.type.shape, dtype=buffer.type.dtype, device="meta")
        for buffer in graph.buffers.values()
        if isinstance(buffer.type, TensorType) and not _named(buffer).persistent and _named(buffer).target not in weights
    }
    bound = bind_weights(graph, weights, left_out)
    fitting = {}
    for value, tensor in bound.items():
        argument = _named(value)
        if argument.kind is not InputKind.CONSTANT and argument.data is None and argument.target not in left_out:
            require_storable(tensor, argument.target)
            fitting[argument.target] = tensor
    return fitting


def _named(value: Value) -> Argument:
    assert value.argument is not None
    return value.argument


def write_weights(file: BinaryIO, weights: Mapping[str, torch.Tensor]) -> None:
    """Write weights, each row-major.

    Raises:
        SerializationError: A name cannot stand in a safetensors file.
    """
    types = {name: TensorType(tuple(tensor.shape), tensor.dtype) for name, tensor in weights.items()}
    raw = {name: type_to_json(type) for name, type in types.items() if type.dtype not in NATIVE_DTYPES}
    metadata = {"format": "pt", **({_TYPES: json.dumps(raw)} if raw else {})}
    write_tensors(file, {name: (tensor, types[name]) for name, tensor in weights.items()}, metadata)


def read_weights(path: Path, wanted: Callable[[str], bool]) -> dict[str, torch.Tensor]:
    """Return those tensors of a safetensors file whose names are wanted, mapped from the file.

    Raises:
        SerializationError: What the metadata says of a tensor is not true.
        Exception: Whatever safetensors raises for a damaged file.
    """
    with safe_open(path, framework="pt", device="cpu") as file:
        types = _raw_types(file.metadata() or {}, Place(str(path)).at("metadata"))
        tensors = {name: file.get_tensor(name) for name in file.keys() if wanted(name)}  # noqa: SIM118
    for name in types.keys() & tensors.keys():
        tensors[name] = _typed(tensors[name], types[name], Place(str(path)).at(name))
    return tensors


def _raw_types(metadata: Mapping[str, str], place: Place) -> dict[str, TensorType]:
    if _TYPES not in metadata:
        return {}
    data = parse_json(metadata[_TYPES].encode(), str(place))
    if type(data) is not dict:
        raise place.error(f"{_TYPES} is no object")
    return {name: read_tensor_type(item, place.at(name)) for name, item in data.items()}


def _typed(content: torch.Tensor, type: TensorType, place: Place) -> torch.Tensor:
    if type.strides is not None or content.dtype != torch.uint8 or tuple(content.shape) != stored_form(type).shape:
        raise place.error(f"the content is not that of a {type}")
    return content.view(type.dtype).view(type.shape)

"""Reader and writer of safetensors files, one tensor at a time.

The format is eight bytes with the length of a JSON header, the header (name -> dtype, shape and range of
bytes), and the bytes. Not done by the ``safetensors`` package because it needs NumPy to write, and keeps
a file mapped that a later save replaces.
"""

from __future__ import annotations

import hashlib
import json
import mmap
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import torch
from safetensors import safe_open

from npu_ir.core.tensor_bytes import content_buffer
from npu_ir.core.types import TensorType
from npu_ir.errors import SerializationError
from npu_ir.serial.strict_json import (
    Location,
    RecordKeys,
    open_regular,
    parse_json,
    read_as,
    read_pair,
    read_record,
    short_repr,
)
from npu_ir.serial.tensor_layout import NATIVE_DTYPES, StoredForm, pack, stored_form, unpack
from npu_ir.serial.value_json import read_tensor_type, type_to_json

METADATA = "__metadata__"
_LENGTH_BYTES = 8
_ALIGNMENT = 64  # of the first tensor, in a mapped file, too: a cache line
_MAX_HEADER_BYTES = 100_000_000  # the limit of the safetensors package
_ENTRY_KEYS = RecordKeys(frozenset({"dtype", "shape", "data_offsets"}))
_TYPES = "npu-ir.types"


def write_tensors(
    file: BinaryIO,
    tensors: Mapping[str, tuple[torch.Tensor, TensorType]],
    metadata: Mapping[str, str] | None = None,
) -> dict[str, str]:
    """Write tensors, each in the layout of its type, and return the SHA-256 of the bytes of each, in hex.

    One tensor is in memory at a time. ``metadata`` are text entries of the header.

    Raises:
        SerializationError: A name is not allowed in a safetensors file.
    """
    for name in tensors:
        if name == METADATA or any("\ud800" <= char <= "\udfff" for char in name):
            raise SerializationError(
                f"a safetensors file cannot hold a tensor called {short_repr(name)}",
                fix="rename the parameter, or save the graph without weights",
            )
    # Sorted by item size, largest first, every tensor is aligned for its dtype without padding.
    order = sorted(tensors, key=lambda name: (-tensors[name][1].dtype.itemsize, name))
    header: dict[str, Any] = {METADATA: dict(metadata)} if metadata else {}
    end = 0
    for name in order:
        form = stored_form(tensors[name][1])
        header[name] = {"dtype": form.dtype, "shape": form.shape, "data_offsets": [end, end + form.nbytes]}
        end += form.nbytes
    text = json.dumps(header, ensure_ascii=False, separators=(",", ":")).encode()
    text += b" " * (-(_LENGTH_BYTES + len(text)) % _ALIGNMENT)
    file.write(len(text).to_bytes(_LENGTH_BYTES, "little") + text)
    digests = {}
    for name in order:
        content = pack(*tensors[name])
        buffer = content_buffer(content)
        digests[name] = hashlib.sha256(buffer).hexdigest()
        file.write(buffer)
    return digests


class TensorFile:
    """A safetensors file that is open for reading.

    Its content is untrusted: sizes are compared with the size of the file before memory is allocated.

    Raises:
        SerializationError: It cannot be read, or its header is invalid.
    """

    def __init__(self, path: Path) -> None:
        self._place = Location(str(path))
        self._file, self._size = open_regular(path)
        try:
            self._header = self._read_header()
        except BaseException:
            self._file.close()
            raise

    def __enter__(self) -> TensorFile:
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()

    def _read_header(self) -> dict[str, Any]:
        first = self._read(_LENGTH_BYTES, self._place.at("header"))
        if first.startswith((b"{\n", b'{"', b"{ ")):
            raise self._place.error("this is JSON, not a file of tensors", "load_ir reads a graph")
        length = int.from_bytes(first, "little")
        self._start = _LENGTH_BYTES + length
        if length > _MAX_HEADER_BYTES or self._start > self._size:
            raise self._place.error(f"the header says it is {length} bytes long, the file has {self._size}")
        header = parse_json(self._read(length, self._place.at("header")), self._place.file)
        if type(header) is not dict:
            raise self._place.error(f"the header is not an object: {short_repr(header)}")
        return header

    def _read(self, count: int, place: Location) -> bytes:
        try:
            data = self._file.read(count)
        except OSError as error:
            raise place.error(f"cannot be read: {error.strerror}", "check the disk") from error
        if len(data) != count:
            raise place.error(f"the file ends after {len(data)} of {count} bytes")
        return data

    def read(self, name: str, type: TensorType, sha256: str) -> torch.Tensor:
        """Return a copy of the tensor called ``name``.

        Raises:
            SerializationError: It does not exist, is not of this type, or does not have this hash.
        """
        place = self._place.at(name)
        if name not in self._header or name == METADATA:
            raise place.error("there is no such tensor in the file")
        entry = read_record(self._header[name], _ENTRY_KEYS, place)
        form = stored_form(type)
        dtype, shape = (
            read_as(str, entry["dtype"], place, "dtype"),
            read_as(list, entry["shape"], place, "shape"),
        )
        if (dtype, shape) != (form.dtype, list(form.shape)):
            raise place.error(
                f"expected {form.dtype} of shape {list(form.shape)} for {type}, "
                f"found {dtype} of shape {short_repr(shape)}"
            )
        content = self._content(entry["data_offsets"], form, place.at("data_offsets"))
        if hashlib.sha256(content_buffer(content)).hexdigest() != sha256:
            raise place.error(f"the data is not what was saved: its SHA-256 is not {short_repr(sha256)}")
        return unpack(content, type)

    @property
    def metadata(self) -> dict[str, Any]:
        """The text entries of the header; whoever wrote them knows what they mean."""
        return read_as(dict, self._header.get(METADATA, {}), self._place, METADATA)

    def map(self) -> dict[str, torch.Tensor]:
        """Return the bytes of each tensor, mapped: pages are read when they are used, and never written back.

        Each has a storage of its own, and stays valid after the file is closed or replaced.

        Raises:
            SerializationError: The file does not have all of them, or cannot be mapped.
        """
        try:
            whole = mmap.mmap(self._file.fileno(), self._size, access=mmap.ACCESS_COPY)
        except (OSError, ValueError) as error:
            raise self._place.error(f"cannot be mapped: {error}", "check the disk") from error
        mapped = {}
        for name in self._header.keys() - {METADATA}:
            entry = read_record(self._header[name], _ENTRY_KEYS, self._place.at(name))
            start, end = self._bounds(entry["data_offsets"], self._place.at(name, "data_offsets"))
            mapped[name] = (
                torch.frombuffer(whole, dtype=torch.uint8, count=end - start, offset=self._start + start)
                if start < end
                else torch.empty(0, dtype=torch.uint8)
            )
        return mapped

    def _bounds(self, offsets: Any, place: Location, nbytes: int | None = None) -> tuple[int, int]:
        """Return a range of bytes behind the header, of this length if one is given."""
        start, end = read_pair(offsets, place)
        inside = type(start) is type(end) is int and 0 <= start <= end <= self._size - self._start
        if not inside or nbytes not in (None, end - start):
            length = "" if nbytes is None else f"{nbytes} "
            raise place.error(f"{short_repr(offsets)} is not a range of {length}bytes within the file")
        return start, end

    def _content(self, offsets: Any, form: StoredForm, place: Location) -> torch.Tensor:
        start, _ = self._bounds(offsets, place, form.nbytes)
        content = torch.empty(form.nbytes, dtype=torch.uint8)
        try:
            self._file.seek(self._start + start)
            count = self._file.readinto(content_buffer(content))  # type: ignore[attr-defined]
        except OSError as error:
            raise place.error(f"cannot be read: {error.strerror}", "check the disk") from error
        if count != form.nbytes:
            raise place.error(f"the file ends after {count} of {form.nbytes} bytes")
        return content


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
    return {name: read_tensor_type(item, place, name) for name, item in read_as(dict, data, place).items()}


def _restore_dtype(content: torch.Tensor, type: TensorType, place: Location) -> torch.Tensor:
    if (
        type.strides is not None
        or content.dtype != torch.uint8
        or tuple(content.shape) != stored_form(type).shape
    ):
        raise place.error(f"the content is not that of a {type}")
    return content.view(type.dtype).view(type.static_shape)

"""Tensors as the memory of their storages, and back: strides and shared memory stay what they are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.nn import functional as F

from npu_ir.core.storage import element_span, storage_address, storage_range
from npu_ir.core.types import TensorType
from npu_ir.serial.strict_json import Location, RecordKeys, read_as, read_record
from npu_ir.serial.tensor_layout import unstorable_reason
from npu_ir.serial.value_json import read_tensor_type, type_to_json

_ALIGNMENT = 64  # bytes: PyTorch's; kernels are chosen by the alignment of weights
_ROW = RecordKeys(frozenset({"type", "memory", "offset"}))


def is_storable(item: Any) -> bool:
    """Return whether an item is a tensor whose memory is all there is to it: no packed weight of oneDNN."""
    return (
        type(item) in (torch.Tensor, torch.nn.Parameter)
        and item.layout is torch.strided
        and not (item.is_quantized or item.is_conj() or item.is_neg() or item.is_meta)
    )


def collect_memories(
    tensors: Mapping[str, torch.Tensor],
) -> tuple[dict[str, dict[str, Any]], dict[str, torch.Tensor]]:
    """Return a row of plain data for each tensor, and the memories that they are in, by name.

    A memory is the part of a storage that these tensors span, as bytes on the CPU, in whole cache lines.
    """
    members: dict[int, list[torch.Tensor]] = {}
    for tensor in tensors.values():
        if (address := storage_address(tensor)) is not None and tensor.numel():
            members.setdefault(address, []).append(tensor)
    starts = {
        address: min(storage_range(tensor)[0] for tensor in group) // _ALIGNMENT * _ALIGNMENT
        for address, group in members.items()
    }
    names = {address: str(number) for number, address in enumerate(members)}
    rows = {}
    for key, tensor in tensors.items():
        address = storage_address(tensor) or 0
        has_memory = address in names and tensor.numel()
        rows[key] = {
            "type": type_to_json(TensorType.of(tensor)),
            "memory": names[address] if has_memory else None,
            "offset": storage_range(tensor)[0] - starts[address] if has_memory else 0,
        }
    memories = {
        names[address]: _copy_memory(group, starts[address], max(storage_range(item)[1] for item in group))
        for address, group in members.items()
    }
    return rows, memories


def _copy_memory(group: list[torch.Tensor], start: int, end: int) -> torch.Tensor:
    whole = torch.empty(0, dtype=torch.uint8, device=group[0].device)
    memory = whole.set_(group[0].untyped_storage(), start, (end - start,), (1,)).cpu()
    return F.pad(memory, (0, -(end - start) % _ALIGNMENT)) if (end - start) % _ALIGNMENT else memory


def checksum(memory: torch.Tensor) -> int:
    """Return the sum of the 64-bit words of a memory, which shows a changed word, at the speed of reading."""
    return int(memory.view(torch.int64).sum())


def restore_tensors(
    rows: Mapping[str, Any], memories: Mapping[str, torch.Tensor], place: Location
) -> dict[str, torch.Tensor]:
    """Return the tensors that rows describe, as views of the memories.

    Raises:
        SerializationError: A row is not valid, or no memory has room for its tensor.
    """
    return {key: _restore(row, memories, place.at(key)) for key, row in rows.items()}


def _restore(row: Any, memories: Mapping[str, torch.Tensor], place: Location) -> torch.Tensor:
    record = read_record(row, _ROW, place)
    type = read_tensor_type(record["type"], place, "type")
    if (reason := unstorable_reason(type)) is not None:
        raise place.error(reason)
    if record["memory"] is None:
        if type.numel:
            raise place.error(f"a {type} is in no memory")
        device = next((item.device for item in memories.values()), None)
        return torch.empty_strided(type.static_shape, type.static_strides, dtype=type.dtype, device=device)
    memory = memories.get(read_as(str, record["memory"], place, "memory"))
    offset = record["offset"]
    end = element_span(type.static_shape, type.static_strides) * type.dtype.itemsize
    if memory is None or not isinstance(offset, int) or offset < 0 or offset % type.dtype.itemsize:
        raise place.error(f"a {type} cannot start at byte {offset!r} of the memory {record['memory']!r}")
    if offset + end > memory.numel():
        raise place.error(f"the memory {record['memory']!r} has no room for a {type} at {offset}")
    return memory[offset : offset + end].view(type.dtype).as_strided(type.static_shape, type.static_strides)

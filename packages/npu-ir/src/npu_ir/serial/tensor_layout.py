"""Bit-exact layout of the elements of a tensor in a file.

A contiguous tensor is stored row-major. Of any other, the file holds the range of memory that its strides
span, with zeros in the gaps: so strides are restored exactly, and an expanded tensor stays small.
A dtype that every version of safetensors supports is stored as such, any other as its bytes.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from npu_ir.core.storage import element_span
from npu_ir.core.tensor_bytes import BITS_OF_SIZE, same_data, tensor_bytes
from npu_ir.core.types import TensorType, dtype_name
from npu_ir.errors import SerializationError

NATIVE_DTYPES: dict[torch.dtype, str] = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint64: "U64",
    torch.uint32: "U32",
    torch.uint16: "U16",
    torch.uint8: "U8",
    torch.bool: "BOOL",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
}
_RAW = "U8"


@dataclass(frozen=True, slots=True)
class StoredForm:
    """The entry of one tensor in a safetensors file; 1-D if the elements are in another order."""

    dtype: str
    shape: tuple[int, ...]
    nbytes: int


def stored_form(type: TensorType) -> StoredForm:
    count = element_span(type.static_shape, type.static_strides)
    nbytes = count * type.dtype.itemsize
    native = NATIVE_DTYPES.get(type.dtype)
    if native is None:
        return StoredForm(_RAW, (nbytes,), nbytes)
    return StoredForm(native, type.static_shape if type.strides is None else (count,), nbytes)


def require_storable(tensor: torch.Tensor, name: str) -> None:
    """Refuse a tensor that is quantized, sparse, without data, or of a tensor subclass."""
    reason = None
    if tensor.is_quantized or str(tensor.dtype).startswith("torch.q"):
        reason = f"is quantized ({tensor.dtype})"
        fix = "store int_repr(), scale and zero point as tensors of their own"
    elif tensor.layout is not torch.strided:
        reason, fix = f"has the layout {tensor.layout}", "make it dense: tensor.to_dense()"
    elif type(tensor) not in (torch.Tensor, torch.nn.Parameter):
        reason, fix = f"is a {type(tensor).__name__}", "make it a plain torch.Tensor"
    elif tensor.is_meta:
        reason, fix = "is on the meta device and has no data", "give a tensor that has data"
    if reason is not None:
        raise SerializationError(f"the tensor {name!r} {reason}: this cannot be stored", fix=fix)


def pack(tensor: torch.Tensor, type: TensorType) -> torch.Tensor:
    """Return the stored content of ``tensor`` in the layout of ``type``: 1-D uint8, on the CPU.

    Raises:
        SerializationError: With the strides of ``type``, elements that differ would share memory.
    """
    if type.strides is None or type.numel == 0:
        return tensor_bytes(tensor)
    bits = tensor.detach().resolve_conj().resolve_neg().cpu().view(BITS_OF_SIZE[type.dtype.itemsize])
    once = bits  # without the copies along expanded axes
    for axis, stride in enumerate(type.static_strides):
        if stride == 0:
            once = once.narrow(axis, 0, 1)
    flat = torch.zeros(element_span(type.static_shape, type.static_strides), dtype=bits.dtype)
    flat.put_(torch.arange(len(flat)).as_strided(once.shape, type.static_strides), once)
    content = flat.view(torch.uint8)
    # Other strides than the tensor's own may overlap in any way: only restoring it shows that none is lost.
    if tuple(tensor.stride()) != type.strides and not same_data(unpack(content, type), tensor):
        raise SerializationError(
            f"the data of a {type} cannot have these strides: elements that share memory differ"
        )
    return content


def unpack(content: torch.Tensor, type: TensorType) -> torch.Tensor:
    """Return the tensor of this type with the stored content ``content``, as a view.

    ``content`` is 1-D uint8, aligned for the dtype, ``stored_form(type).nbytes`` long.
    """
    flat = content.view(type.dtype)
    if type.strides is None:
        return flat.view(type.static_shape)
    return flat.as_strided(type.static_shape, type.static_strides)


def unstorable_reason(type: TensorType) -> str | None:
    """Return the reason why a tensor of this type cannot be stored, or None."""
    if str(type.dtype).startswith("torch.q"):
        return f"a tensor of dtype {dtype_name(type.dtype)} cannot be stored"
    if type.symbols or type.layout is not torch.strided:
        return f"a {type} cannot be stored: only dense tensors of integer sizes are"
    if type.numel * type.dtype.itemsize >= 1 << 63:
        return f"a tensor of shape {list(type.shape)} is too large"
    return None

"""Contents of constants in the text form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch

from npu_ir.core.literals import Literal, format_literal
from npu_ir.core.tensor_bytes import content_buffer, same_data, tensor_bytes
from npu_ir.core.types import TensorType
from npu_ir.text.reader import Reader

INLINE_ELEMENTS = 16


def format_data(data: torch.Tensor) -> str:
    """Return a tensor's content: its elements if there are few, else its content hash."""
    if data.numel() > INLINE_ELEMENTS:
        return f"sha256:{content_hash(data)}"
    try:
        text = format_literal(data.detach().resolve_conj().resolve_neg().reshape(-1).tolist())
        exact = same_data(_from_items(Reader(text).literal(), TensorType.of(data)), data)
    except (RuntimeError, TypeError, ValueError):
        exact = False  # sub-byte dtypes have no Python numbers
    if exact:
        return text
    content = tensor_bytes(data)  # kept while its memory is read
    return f'bytes("{content_buffer(content).hex()}")'


def content_hash(data: torch.Tensor) -> str:
    """Return the first 16 hex digits of the SHA-256 of a tensor's dtype, shape and bytes."""
    digest = hashlib.sha256(f"{TensorType(tuple(data.shape), data.dtype)}:".encode())
    content = tensor_bytes(data)  # kept while its memory is read
    digest.update(content_buffer(content))
    return digest.hexdigest()[:16]


def read_data(
    reader: Reader, type: TensorType, target: str, constants: Mapping[str, torch.Tensor]
) -> torch.Tensor:
    """Read the output of ``format_data`` for a tensor of ``type``; the memory layout may differ.

    Raises:
        ParseError: It does not fit the type, or ``constants`` lacks the tensor or has a different one.
    """
    token = reader.token
    if token.kind == "hash":
        reader.advance()
        if target not in constants:
            fix = "pass it: parse_ir(text, constants={...})"
            raise reader.fail(f"the content of constant {target!r} is not in the text", token, fix=fix)
        data = constants[target].detach()
        if not type.same_shape_and_dtype(TensorType.of(data)) or f"sha256:{content_hash(data)}" != token.text:
            raise reader.fail(
                f"the tensor passed for constant {target!r} is not the one the text names", token
            )
        return data
    try:
        if reader.accept("bytes"):
            reader.expect("(")
            content = reader.string()
            reader.expect(")")
            return _from_bytes(bytearray.fromhex(content), type)
        return _from_items(reader.literal(), type)
    except (RuntimeError, TypeError, ValueError, OverflowError) as error:
        raise reader.fail(f"the content of constant {target!r} is not of type {type}", token) from error


def _from_bytes(content: bytearray, type: TensorType) -> torch.Tensor:
    flat = torch.empty(0, dtype=torch.uint8, device="cpu")
    if content:  # frombuffer refuses nothing
        flat = torch.frombuffer(content, dtype=torch.uint8)
    return flat.view(type.dtype).reshape(type.static_shape)


def _from_items(items: Literal, type: TensorType) -> torch.Tensor:
    number = bool if type.dtype == torch.bool else int
    is_float = type.dtype.is_floating_point or type.dtype.is_complex
    is_exact = is_float or all(item.__class__ is number for item in items)
    if not isinstance(items, list) or any(isinstance(item, list) for item in items) or not is_exact:
        raise ValueError("expected a flat list of numbers of the dtype")
    return torch.tensor(items, dtype=type.dtype, device="cpu").reshape(type.static_shape)

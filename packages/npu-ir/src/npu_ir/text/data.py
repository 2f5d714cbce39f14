"""The content of constants in the text form."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from npu_ir.content import content_buffer, tensor_bytes
from npu_ir.equality import same_data
from npu_ir.literals import format_literal
from npu_ir.types import TensorType, Type

if TYPE_CHECKING:
    from npu_ir.text.parser import _Parser

INLINE_ELEMENTS = 16


def format_data(data: torch.Tensor) -> str:
    """Return a tensor's content: its elements where there are few, else its content hash."""
    if data.numel() > INLINE_ELEMENTS:
        return f"sha256:{content_hash(data)}"
    try:
        items = data.detach().resolve_conj().resolve_neg().reshape(-1).tolist()
        exact = same_data(_from_items(items, TensorType.of(data)), data)
    except (RuntimeError, TypeError, NotImplementedError):
        exact = False  # sub-byte dtypes have no Python numbers
    if exact:
        return format_literal(items)
    content = tensor_bytes(data)  # kept while its memory is read
    return f'bytes("{content_buffer(content).hex()}")'


def content_hash(data: torch.Tensor) -> str:
    """Return the first 16 hex digits of the SHA-256 of a tensor's dtype, shape and bytes."""
    digest = hashlib.sha256(f"{TensorType(tuple(data.shape), data.dtype)}:".encode())
    content = tensor_bytes(data)  # kept while its memory is read
    digest.update(content_buffer(content))
    return digest.hexdigest()[:16]


def read_data(parser: _Parser, type: Type, target: str, constants: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Read what ``format_data`` wrote for a tensor of ``type``.

    Raises:
        ParseError: It does not fit the type, or ``constants`` lacks the tensor or has another one.
    """
    if not isinstance(type, TensorType):
        raise parser.fail(f"{type} is no tensor type: it has no content")
    if parser.token.kind == "hash":
        wanted = parser.advance().text.removeprefix("sha256:")
        if target not in constants:
            raise parser.fail(
                f"the content of constant {target!r} is not in the text", fix="pass it: parse_ir(text, constants={...})"
            )
        data = constants[target].detach()
        if content_hash(data) != wanted or not type.same_shape_and_dtype(TensorType.of(data)):
            raise parser.fail(f"the tensor passed for constant {target!r} is not the one the text names")
        return _with_strides(data, type)
    try:
        if parser.accept("bytes"):
            parser.expect("(")
            raw = bytearray.fromhex(parser.string())
            parser.expect(")")
            flat = torch.frombuffer(raw, dtype=torch.uint8) if raw else torch.empty(0, dtype=torch.uint8)
            return _with_strides(flat.view(type.dtype).reshape(type.shape), type)
        return _from_items(parser.literal(), type)
    except (RuntimeError, TypeError, ValueError) as error:
        raise parser.fail(f"the content of constant {target!r} is no {type}") from error


def _from_items(items: list[object], type: TensorType) -> torch.Tensor:
    return _with_strides(torch.tensor(items, dtype=type.dtype, device="cpu").reshape(type.shape), type)


def _with_strides(data: torch.Tensor, type: TensorType) -> torch.Tensor:
    if TensorType.of(data).strides == type.strides:
        return data
    strided = data.contiguous() if type.strides is None else torch.empty_strided(type.shape, type.strides, dtype=type.dtype)
    return strided.copy_(data)

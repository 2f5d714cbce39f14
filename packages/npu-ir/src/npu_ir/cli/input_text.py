"""Values of ``--input``, such as ``x=float32[1, 3]`` and ``mask=@mask.npy``, and of ``--size``."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from npu_ir.core.literals import Literal
from npu_ir.core.structure import LEAF_STRUCTURE, Structure
from npu_ir.core.types import TensorType
from npu_ir.errors import NpuError, ParseError, UsageError
from npu_ir.text.reader import Reader, Tree

_NAMED = re.compile(r"([A-Za-z_]\w*(?:\.\w+)*)\s*=\s*(.*)", re.DOTALL)
_MAX_BYTES = 2**63 - 1  # PyTorch counts in int64
_LOWER_CASE = {"true": True, "false": False, "none": None}

HELP = """\
inputs:
  --input VALUE is a positional argument of the model, --input NAME=VALUE a keyword argument:
    float32[1,3,224,224]           a tensor, by dtype and shape; f32, bf16, i64, ... for short;
                                   float32[] is 0-d
    f32[1,3,8,8]@channels_last     the same in another memory format
    2.0   7   true   none   "text" a Python value
    @x.npy   @x.pt   @x.safetensors[#NAME]
                                   from a file; .pt may hold nested lists, tuples and dicts of tensors
    [f32[2,3], 1]   (...)   {"a": f32[2]}
                                   a list, tuple or dict of these
"""
_SIZE = re.compile(r"([A-Za-z_]\w*)=(-?\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class FileReference:
    """A tensor, or nested tensors, in a file; ``key`` is the name of a tensor in it, or ""."""

    path: Path
    key: str = ""


@dataclass(frozen=True, slots=True)
class Input:
    """One argument of the model on the command line."""

    name: str  # "" for a positional argument
    structure: Structure
    leaves: tuple[Any, ...]  # types of tensors, references to files, and literals


def parse_inputs(texts: Sequence[str]) -> list[Input]:
    """Parse the inputs, in order; none may be malformed, nor a name be given twice."""
    inputs = [parse_input(text) for text in texts]
    names = [item.name for item in inputs if item.name]
    for name in names:
        if names.count(name) > 1:
            raise UsageError(f"--input {name}=... is given twice")
    return inputs


def parse_input(text: str) -> Input:
    """Parse one input; a malformed one is a `UsageError`."""
    named = _NAMED.fullmatch(text.strip())
    name, value = named.groups() if named else ("", text.strip())
    if value.startswith("@"):
        path, _, key = value[1:].partition("#")
        if not path:
            raise UsageError(f"--input {text}: no file is named after '@'")
        return Input(name, LEAF_STRUCTURE, (FileReference(Path(path).expanduser(), key),))
    try:
        parser = _InputParser(value)
        structure, leaves = parser.tree()
        parser.finish()
    except NpuError as error:
        raise UsageError(
            f"--input {text}: {error.message}",
            fix=error.fix or "--help of the command lists what an input may be",
        ) from error
    return Input(name, structure, tuple(leaves))


class _InputParser(Reader):
    """Parser of nested containers in the text form, with types of tensors among their leaves."""

    def tree(self) -> Tree:
        if self.at("@"):
            raise self.fail(
                "a file cannot be part of a list, tuple or dict",
                fix="save all of it to one .pt file: @FILE.pt",
            )
        structure, leaves = super().tree()
        if structure.kind == "dict" and any(isinstance(key, list) for key in structure.context):
            raise self.fail("a list cannot be a key of a dict")
        return structure, leaves

    def literal(self) -> Literal:
        start = self.token
        if start.kind != "word":
            return super().literal()
        if self.is_followed_by("["):
            return self.tensor_type()
        if start.text in _LOWER_CASE:
            self.advance()
            return _LOWER_CASE[start.text]
        return self.python_value(start.text)

    def tensor_type(self) -> TensorType:
        type = self.value_type()
        assert isinstance(type, TensorType), "a type with a shape is one of a tensor"
        if type.symbols:
            raise self.fail(
                f"{type} has no sizes yet",
                fix="give the sizes of an example: --dynamic tells extract which stay open",
            )
        if type.numel * type.dtype.itemsize > _MAX_BYTES:
            raise self.fail(f"there are no tensors of type {type}: they would have more than 2**63 bytes")
        return type

    def python_value(self, word: str) -> Literal:
        try:
            literal = super().literal()
        except ParseError as error:
            raise self.fail(
                f"{word!r} is not a value", fix=f"put a string in quotes: '\"{word}\"'"
            ) from error
        if isinstance(literal, torch.dtype):
            raise self.fail(f"{word} has no shape", fix=f"write {word}[2, 3], or {word}[] for a 0-d tensor")
        return literal


def parse_sizes(texts: Sequence[str]) -> dict[str, int]:
    """Parse the values of symbols; none may be malformed, nor a symbol be given twice."""
    sizes: dict[str, int] = {}
    for text in texts:
        match = _SIZE.fullmatch(text.strip())
        if match is None:
            raise UsageError(f"{text!r} is not a size", fix="write SYMBOL=NUMBER, such as batch=8")
        if match[1] in sizes:
            raise UsageError(f"the size {match[1]!r} is given twice")
        sizes[match[1]] = int(match[2])
    return sizes


def sizes_text(sizes: Mapping[str, int], given: Collection[str]) -> str:
    """Return the sizes of generated inputs, with a hint how to change those that were not given."""
    defaults = [name for name in sizes if name not in given]
    note = f" (--size {defaults[0]}=N for another one)" if defaults else ""
    return ", ".join(f"{name}={size}" for name, size in sizes.items()) + note

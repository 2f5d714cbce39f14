"""Types: dtype names, strides, memory formats, and what a Python object's type is."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given

from npu_ir import ParseError, ScalarType, TensorType
from npu_ir.core.types import (
    contiguous_strides,
    dtype_name,
    is_dtype_name,
    memory_format_strides,
    parse_dtype,
    type_of,
)
from npu_ir.serial.parser import parse_type
from tests.support.random_graphs import DTYPES, types
from tests.support.rows import each_row

# dtypes


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_has_a_short_and_a_long_name(dtype: torch.dtype) -> None:
    long_name = str(dtype).removeprefix("torch.")

    assert parse_dtype(dtype_name(dtype)) is dtype
    assert parse_dtype(long_name) is dtype


def test_short_names_are_unique() -> None:
    assert len({dtype_name(dtype) for dtype in DTYPES}) == len(DTYPES)


def test_other_names_of_one_dtype_are_the_same_dtype() -> None:
    assert dtype_name(torch.half) == "f16"
    assert dtype_name(torch.cfloat) == "c64"
    assert not is_dtype_name("half")


def test_an_unknown_dtype_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ParseError, match=r"unknown dtype 'f31'[\s\S]*fix: use one of .*bf16, .*f32"):
        parse_dtype("f31")


# Strides


@each_row(
    "shape, strides",
    {
        "scalar": ((), ()),
        "vector": ((5,), (1,)),
        "3d": ((2, 3, 4), (12, 4, 1)),
        "empty": ((2, 0, 4), (4, 4, 1)),
        "ones": ((1, 1), (1, 1)),
    },
)
def test_contiguous_strides_are_those_of_a_new_tensor(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    assert contiguous_strides(shape) == strides == torch.empty(shape).stride()


@each_row(
    "shape, memory_format",
    {
        "channels_last": ((2, 3, 4, 5), torch.channels_last),
        "channels_last_3d": ((2, 3, 4, 5, 6), torch.channels_last_3d),
        "empty": ((0, 3, 0, 5), torch.channels_last),
        "ones": ((1, 1, 1, 1), torch.channels_last),
        "contiguous": ((2, 3), torch.contiguous_format),
    },
)
def test_memory_format_strides_are_those_of_a_new_tensor(
    shape: tuple[int, ...], memory_format: torch.memory_format
) -> None:
    assert (
        memory_format_strides(shape, memory_format)
        == torch.empty(shape, memory_format=memory_format).stride()
    )


@each_row(
    "shape, memory_format",
    {
        "rank": ((2, 3), torch.channels_last),
        "rank_3d": ((2, 3, 4, 5), torch.channels_last_3d),
        "preserve": ((2, 3), torch.preserve_format),
    },
)
def test_a_shape_without_strides_in_a_memory_format_is_refused(
    shape: tuple[int, ...], memory_format: torch.memory_format
) -> None:
    with pytest.raises(ParseError, match=r"a tensor of shape \[2, 3.* has no strides in torch\."):
        memory_format_strides(shape, memory_format)


# Tensor types


@each_row(
    "tensor, text",
    {
        "scalar": (torch.empty(()), "f32[]"),
        "contiguous": (torch.empty(2, 3), "f32[2, 3]"),
        "transposed": (torch.empty(2, 3).t(), "f32[3, 2]@[1, 3]"),
        "expanded": (torch.empty(1).expand(4), "f32[4]@[0]"),
        "channels_last": (
            torch.empty(2, 3, 4, 5, memory_format=torch.channels_last),
            "f32[2, 3, 4, 5]@channels_last",
        ),
        "empty_is_contiguous": (torch.empty(0, 3).t(), "f32[3, 0]"),
        "meta": (torch.empty(2, 3, device="meta", dtype=torch.bfloat16), "bf16[2, 3]"),
    },
)
def test_the_type_of_a_tensor_prints_as_dtype_shape_and_strides(tensor: torch.Tensor, text: str) -> None:
    assert str(TensorType.of(tensor)) == text
    assert parse_type(text) == TensorType.of(tensor)


@given(types)
def test_every_type_is_parsed_back_from_its_text(type: TensorType | ScalarType) -> None:
    assert parse_type(str(type)) == type


def test_a_type_knows_its_size() -> None:
    type = TensorType((2, 3, 4), torch.complex128)

    assert (type.rank, type.numel, type.nbytes) == (3, 24, 384)
    assert TensorType((), torch.int8).numel == 1
    assert TensorType((7, 0), torch.int8).nbytes == 0


def test_a_type_knows_its_memory_format() -> None:
    assert TensorType((2, 3), torch.float32).memory_format is torch.contiguous_format
    assert TensorType((2, 3, 4, 5), torch.float32, (60, 1, 15, 3)).memory_format is torch.channels_last
    assert (
        TensorType((1, 2, 3, 4, 5), torch.float32, (120, 1, 40, 10, 2)).memory_format
        is torch.channels_last_3d
    )
    assert TensorType((2, 3), torch.float32, (1, 2)).memory_format is None


def test_types_that_differ_in_strides_only_have_the_same_shape_and_dtype() -> None:
    type = TensorType((2, 3), torch.float32)

    assert type.same_shape_and_dtype(TensorType((2, 3), torch.float32, (1, 2)))
    assert not type.same_shape_and_dtype(TensorType((2, 3), torch.float64))
    assert not type.same_shape_and_dtype(TensorType((3, 2), torch.float32))
    assert not type.same_shape_and_dtype(ScalarType("float"))


# What has a type


@each_row(
    "value, text",
    {
        "bool": (True, "bool"),
        "int": (3, "int"),
        "float": (3.0, "float"),
        "none": (None, "none"),
        "tensor": (torch.empty(2), "f32[2]"),
    },
)
def test_tensors_numbers_and_none_have_a_type(value: object, text: str) -> None:
    assert str(type_of(value)) == text


@pytest.mark.parametrize("value", ["text", 1j, [1], object()], ids=["str", "complex", "list", "object"])
def test_anything_else_has_no_type(value: object) -> None:
    with pytest.raises(ParseError, match="a value of type .* has no type in the graph"):
        type_of(value)


@each_row(
    "text, message",
    {
        "no_shape": ("f32", "'f32' is not a type"),
        "scalar_with_shape": ("float[2]", "unknown dtype 'float'"),
        "open": ("f32[2", "expected ',', got the end of the text"),
        "more": ("f32[2] f32", "expected the end of the text, got 'f32'"),
        "negative": ("f32[-1]", r"expected an integer from 0 to 2\*\*63 - 1, got -1"),
        "huge": ("f32[9223372036854775808]", "expected an integer from 0"),
        "float": ("f32[1.0]", "expected an integer from 0"),
        "open_strides": ("f32[2]@[", "expected a word, got the end of the text"),
        "format": ("f32[2]@sideways", "'sideways' is not a memory format"),
        "rank": ("f32[2]@channels_last", r"a tensor of shape \[2\] has no strides in torch.channels_last"),
        "no_dtype": ("[2]", r"expected a word, got '\['"),
    },
)
def test_text_that_is_no_type_is_refused_with_line_and_column(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=rf"{message}.*\n  at: line 1, column \d+"):
        parse_type(text)

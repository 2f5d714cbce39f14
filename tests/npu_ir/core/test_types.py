"""Types and memory of values."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from torch import Tensor, zeros

from npu_ir import GraphError, ParseError, ScalarType, TensorType
from npu_ir.core.storage import (
    address_range,
    element_span,
    flat_view,
    has_overlapping_elements,
    is_dense,
    may_self_overlap,
    ranges_overlap,
    shares_memory,
    shares_storage_address,
    span_bytes,
    storage_address,
    storage_key,
    storage_range,
)
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

# Types: dtype names, strides, memory formats, and what a Python object's type is.


@pytest.mark.smoke
def test_every_dtype_has_a_short_and_a_long_name_of_its_own() -> None:
    for dtype in DTYPES:
        assert parse_dtype(dtype_name(dtype)) is parse_dtype(str(dtype).removeprefix("torch.")) is dtype
    assert len({dtype_name(dtype) for dtype in DTYPES}) == len(DTYPES)
    assert (dtype_name(torch.half), dtype_name(torch.cfloat)) == ("f16", "c64")
    assert not is_dtype_name("half")


@each_row("arguments, given", {
    "swapped": ((torch.float32, (2, 3)), r"not torch\.float32, \(2, 3\)\n  fix: .*in this order"),
    "a size": ((2, torch.float32), r"not 2, torch\.float32"),
    "a list of sizes": (([2], torch.float32), r"not \[2\], torch\.float32"),
    "a stride": (((2,), torch.float32, 1), r"not \(2,\), torch\.float32, 1"),
})  # fmt: skip
def test_a_type_of_something_else_is_refused(arguments: tuple[Any, ...], given: str) -> None:
    with pytest.raises(GraphError, match=f"a tensor has a tuple of sizes and a dtype, {given}"):
        TensorType(*arguments)


def test_an_unknown_dtype_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ParseError, match=r"unknown dtype 'f31'[\s\S]*fix: use one of .*bf16, .*f32"):
        parse_dtype("f31")


@each_row("shape, memory_format", {
    "scalar": ((), torch.contiguous_format),
    "3d": ((2, 3, 4), torch.contiguous_format),
    "empty": ((2, 0, 4), torch.contiguous_format),
    "ones": ((1, 1), torch.contiguous_format),
    "channels_last": ((2, 3, 4, 5), torch.channels_last),
    "channels_last_3d": ((2, 3, 4, 5, 6), torch.channels_last_3d),
    "empty channels_last": ((0, 3, 0, 5), torch.channels_last),
    "ones in channels_last": ((1, 1, 1, 1), torch.channels_last),
})  # fmt: skip
def test_strides_are_those_of_a_new_tensor(
    shape: tuple[int, ...], memory_format: torch.memory_format
) -> None:
    strides = torch.empty(shape, memory_format=memory_format).stride()

    assert memory_format_strides(shape, memory_format) == strides
    if memory_format is torch.contiguous_format:
        assert contiguous_strides(shape) == strides


@each_row("shape, memory_format", {
    "rank": ((2, 3), torch.channels_last),
    "rank_3d": ((2, 3, 4, 5), torch.channels_last_3d),
    "preserve": ((2, 3), torch.preserve_format),
})  # fmt: skip
def test_a_shape_without_strides_in_a_memory_format_is_refused(
    shape: tuple[int, ...], memory_format: torch.memory_format
) -> None:
    with pytest.raises(ParseError, match=r"a tensor of shape \[2, 3.* has no strides in torch\."):
        memory_format_strides(shape, memory_format)


@each_row("tensor, text", {
    "scalar": (torch.empty(()), "f32[]"),
    "contiguous": (torch.empty(2, 3), "f32[2, 3]"),
    "transposed": (torch.empty(2, 3).t(), "f32[3, 2]@[1, 3]"),
    "expanded": (torch.empty(1).expand(4), "f32[4]@[0]"),
    "channels_last": (torch.empty(2, 3, 4, 5, memory_format=torch.channels_last),
        "f32[2, 3, 4, 5]@channels_last"),
    "empty_is_contiguous": (torch.empty(0, 3).t(), "f32[3, 0]"),
    "meta": (torch.empty(2, 3, device="meta", dtype=torch.bfloat16), "bf16[2, 3]"),
})  # fmt: skip
def test_the_type_of_a_tensor_prints_as_dtype_shape_and_strides(tensor: torch.Tensor, text: str) -> None:
    assert str(TensorType.of(tensor)) == text
    assert parse_type(text) == TensorType.of(tensor)


@given(types)
def test_every_type_is_parsed_back_from_its_text(type: TensorType | ScalarType) -> None:
    assert parse_type(str(type)) == type


def test_a_type_knows_its_size_and_memory_format() -> None:
    type = TensorType((2, 3, 4), torch.complex128)

    assert (type.rank, type.numel, type.nbytes) == (3, 24, 384)
    assert TensorType((), torch.int8).numel == 1
    assert TensorType((7, 0), torch.int8).nbytes == 0
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


def test_tensors_numbers_and_none_have_a_type() -> None:
    found = [str(type_of(value)) for value in (True, 3, 3.0, None, torch.empty(2))]

    assert found == ["bool", "int", "float", "none", "f32[2]"]


@pytest.mark.parametrize("value", ["text", 1j, [1], object()], ids=["str", "complex", "list", "object"])
def test_anything_else_has_no_type(value: object) -> None:
    with pytest.raises(ParseError, match="a value of type .* has no type in the graph"):
        type_of(value)


@each_row("text, message", {
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
})  # fmt: skip
def test_text_that_is_no_type_is_refused_with_line_and_column(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=rf"{message}.*\n  at: line 1, column \d+"):
        parse_type(text)


# Spans, identity and overlap of the memory of tensors.


LAYOUTS = [
    pytest.param((2, 3), (3, 1), id="contiguous"),
    pytest.param((2, 3), (1, 2), id="transposed"),
    pytest.param((2, 3), (8, 2), id="with gaps"),
    pytest.param((4, 3), (1, 1), id="windows"),
    pytest.param((2, 3), (0, 1), id="expanded"),
    pytest.param((1, 3), (99, 1), id="an axis of size 1 with any stride"),
    pytest.param((), (), id="a scalar"),
    pytest.param((0, 3), (3, 1), id="empty"),
]


def offsets_of(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return the offset of every element, one by one."""
    return [sum(i * stride for i, stride in zip(index, strides, strict=True)) for index in np.ndindex(*shape)]


@each_row(("shape", "strides"), LAYOUTS)
def test_layouts_are_judged_by_the_offsets_of_their_elements(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    offsets = offsets_of(shape, strides)
    span = max(offsets) + 1 if offsets else 0
    is_repeated = len(set(offsets)) < len(offsets)

    assert element_span(shape, strides) == span
    assert may_self_overlap(shape, strides) == is_repeated
    if offsets:
        assert is_dense(shape, strides) == (len(offsets) == span and not is_repeated)


@each_row(("shape", "strides"), LAYOUTS)
def test_the_ranges_of_a_tensor_are_those_of_its_flat_view(
    shape: tuple[int, ...], strides: tuple[int, ...]
) -> None:
    item = zeros(40).as_strided(shape, strides, 5)
    flat, size = flat_view(item), element_span(shape, strides) * 4

    assert flat.nbytes == span_bytes(TensorType.of(item)) == size
    assert storage_range(item) == ((20, 20 + size) if size else (0, 0))
    assert address_range(item) == ((item.data_ptr(), item.data_ptr() + size) if size else (0, 0))


def test_a_flat_view_keeps_lazy_conjugation_and_negation() -> None:
    item = torch.arange(6).to(torch.complex64).mul(1j)

    assert flat_view(item.conj()).is_conj()
    assert torch.equal(flat_view(item.conj()), item.conj())
    assert flat_view(item.conj().imag).is_neg()


def test_numbers_have_no_memory() -> None:
    assert span_bytes(ScalarType("int")) == 0
    assert not has_overlapping_elements(ScalarType("int"))
    assert storage_key(2) is None
    assert storage_address(2) is None


def test_a_sparse_tensor_shares_memory_with_itself_alone() -> None:
    x = torch.eye(2).to_sparse()

    assert shares_memory(x, x)
    assert not shares_memory(x, x.clone())
    assert storage_address(x) is None


def test_storages_of_one_foreign_memory_share_the_address_only() -> None:
    memory, x = np.zeros(4), zeros(4)
    left, right = torch.from_numpy(memory), torch.from_numpy(memory)

    assert shares_storage_address(left, right)
    assert not shares_memory(left, right)
    assert shares_memory(x[:2], x[2:])
    assert storage_key(x[:2]) == storage_key(x[2:]) != storage_key(x.clone())


@each_row("item", {"empty": zeros(0), "meta": zeros(2, device="meta")})
def test_without_data_there_is_no_address(item: Tensor) -> None:
    assert storage_address(item) is None
    assert not shares_storage_address(item, item)
    assert shares_memory(item, item)


@each_row("left, right, expected", {
    "adjacent": ((0, 4), (4, 8), False),
    "one byte": ((0, 5), (4, 8), True),
    "nested": ((0, 8), (2, 4), True),
    "empty": ((0, 0), (0, 8), False),
})  # fmt: skip
def test_ranges_overlap_in_common_bytes(
    left: tuple[int, int], right: tuple[int, int], expected: bool
) -> None:
    assert ranges_overlap(left, right) is expected
    assert ranges_overlap(right, left) is expected

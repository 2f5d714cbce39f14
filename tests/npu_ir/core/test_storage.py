"""Spans, identity and overlap of the memory of tensors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
import torch
from torch import Tensor, zeros

from npu_ir import TensorType
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
from npu_ir.core.types import ScalarType
from tests.support.rows import each_row

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


def test_views_share_memory_and_copies_do_not() -> None:
    x = zeros(4)

    assert shares_memory(x[:2], x[2:])
    assert storage_key(x[:2]) == storage_key(x[2:])
    assert not shares_memory(x, x.clone())
    assert storage_key(x) != storage_key(x.clone())


def test_a_sparse_tensor_shares_memory_with_itself_alone() -> None:
    x = torch.eye(2).to_sparse()

    assert shares_memory(x, x)
    assert not shares_memory(x, x.clone())
    assert storage_address(x) is None


def test_storages_of_one_foreign_memory_share_the_address_only() -> None:
    memory = np.zeros(4)
    left, right = torch.from_numpy(memory), torch.from_numpy(memory)

    assert shares_storage_address(left, right)
    assert not shares_memory(left, right)


@each_row(
    "item",
    {
        "empty": zeros(0),
        "meta": zeros(2, device="meta"),
    },
)
def test_without_data_there_is_no_address(item: Tensor) -> None:
    assert storage_address(item) is None
    assert not shares_storage_address(item, item)
    assert shares_memory(item, item)


@each_row(
    "left, right, expected",
    {
        "adjacent": ((0, 4), (4, 8), False),
        "one byte": ((0, 5), (4, 8), True),
        "nested": ((0, 8), (2, 4), True),
        "empty": ((0, 0), (0, 8), False),
    },
)
def test_ranges_overlap_in_common_bytes(
    left: tuple[int, int], right: tuple[int, int], expected: bool
) -> None:
    assert ranges_overlap(left, right) is expected
    assert ranges_overlap(right, left) is expected

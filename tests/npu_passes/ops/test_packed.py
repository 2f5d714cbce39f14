"""Panels of matrices: the same whichever way they are copied, and of the types that passes state."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from npu_ir import TensorType
from npu_passes.ops import packed
from npu_passes.ops.packed import panels_type, product_type
from tests.support.rows import each_row


def as_defined(matrix: Tensor, width: int) -> Tensor:
    padded = F.pad(matrix, (0, -matrix.shape[1] % width))
    return torch.stack(padded.split(width, 1))


def layouts(rows: int, columns: int) -> list[Tensor]:
    wide = torch.rand(rows, 2 * columns)
    return [torch.rand(rows, columns), torch.rand(columns, rows).t(), wide[:, ::2], wide[:, columns:]]


@each_row(
    "rows, columns, width",
    {
        "small": (5, 40, 16),
        "one panel": (7, 64, 64),
        "large": (512, 256, 64),
        "large with a rest": (512, 300, 64),
        "large in one panel": (1 << 12, 50, 64),
    },
)
def test_panels_have_the_columns_in_order_and_memory_of_their_own(
    rows: int, columns: int, width: int
) -> None:
    for matrix in layouts(rows, columns):
        panels = torch.ops.npu.pack_matrix(matrix, width)

        assert torch.equal(panels, as_defined(matrix, width))
        assert TensorType.of(panels) == panels_type(TensorType.of(matrix), width)
        assert panels.data_ptr() != matrix.data_ptr()


def test_many_threads_copy_all_panels_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    matrix = torch.rand(256, 1024).t()
    one_by_one = torch.ops.npu.pack_matrix(matrix, 64)
    monkeypatch.setattr(packed, "_FEW_THREADS", 0)

    at_once = torch.ops.npu.pack_matrix(matrix, 64)

    assert torch.equal(at_once, one_by_one)


def test_a_large_matrix_is_packed_under_autograd_and_vmap() -> None:
    matrix = torch.rand(512, 300, requires_grad=True)

    torch.ops.npu.pack_matrix(matrix, 64).sum().backward()
    many = torch.func.vmap(lambda item: torch.ops.npu.pack_matrix(item, 64))(torch.rand(2, 512, 300))

    assert matrix.grad is not None
    assert torch.equal(matrix.grad, torch.ones(512, 300))
    assert many.shape == (2, 5, 512, 64)


@each_row(
    "shape, columns, bias",
    {
        "rows": ((3, 8), 20, True),
        "batches": ((2, 3, 8), 20, False),
        "many": ((2, 1, 3, 8), 64, True),
    },
)
def test_a_product_has_the_type_that_is_stated(shape: tuple[int, ...], columns: int, bias: bool) -> None:
    given = torch.rand(shape)
    panels = torch.ops.npu.pack_matrix(torch.rand(8, columns), 16)

    for x in (given, given.transpose(0, -2)):
        made = torch.ops.npu.packed_linear(x, panels, torch.rand(columns) if bias else None, columns)

        assert TensorType.of(made) == product_type(TensorType.of(x), columns)


@each_row("shape, width", [((70, 8), 64), ((6, 3, 5), 16), ((6, 3, 3, 2), 16), ((128, 64, 5, 5), 64)])
def test_filters_are_packed_as_the_matrix_of_their_taps(shape: Any, width: Any) -> None:
    weight = torch.randn(shape)

    panels = torch.ops.npu.pack_filters(weight, width)

    taps = weight.flatten(2).unbind(2) if len(shape) > 2 else [weight]
    assert torch.equal(panels, as_defined(torch.cat([tap.t() for tap in taps]), width))

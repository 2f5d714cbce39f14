"""Attention under masks that hide whole blocks of keys, on the host."""

from typing import Any

import pytest
import torch
from torch import Tensor, randn
from torch.nn import functional as F

from npu_cuda.backend import HostBackend
from npu_ir import extract_ir
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function
from tests.support.corpus.comparison import assert_same

QUERIES, KEYS = 150, 500
_PLACES = torch.arange(KEYS), torch.arange(QUERIES)[:, None]
MASKS: dict[str, Tensor] = {
    "a cache that is longer than its content": _PLACES[0] <= _PLACES[1],
    "a window": (_PLACES[0] <= _PLACES[1] + 300) & (_PLACES[0] > _PLACES[1] + 250),
    "padding": (_PLACES[0] >= 230).expand(QUERIES, KEYS),
    "the first block, but for one query": (_PLACES[0] >= 96) | (_PLACES[1] == 149),
    "by chance": torch.rand(QUERIES, KEYS, generator=torch.Generator().manual_seed(0)) > 0.98,
    "per head": torch.stack([_PLACES[0] <= _PLACES[1], _PLACES[0] > _PLACES[1] + 200]),
}


def attend(q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, attn_mask=mask)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("adds", [False, True], ids=["bool", "numbers"])
@pytest.mark.parametrize("name", MASKS)
def test_results_are_those_of_eager(name: str, adds: bool, dtype: torch.dtype) -> None:
    mask: Any = MASKS[name]
    mask = torch.zeros(mask.shape, dtype=dtype).masked_fill(~mask, -torch.inf) if adds else mask
    q, k, v = (
        randn(1, 2, QUERIES, 20).to(dtype),
        randn(1, 2, KEYS, 20).to(dtype),
        randn(1, 2, KEYS, 12).to(dtype),
    )
    executor = IRExecutor(
        extract_ir(Function(attend), (q, k, v, mask)), backend=HostBackend(), passes="default"
    )

    found = executor(q, k, v, mask)

    assert [item.backend for item in executor.instructions] == ["host"]
    expected = attend(q.double(), k.double(), v.double(), mask.double() if adds else mask)
    # A query without a key has no weights; PyTorch gives zeros for it, too.
    tolerance = 1e-5 if dtype is torch.float32 else 2e-2
    assert_same(found.double(), expected.nan_to_num(), "the result", tolerance=tolerance)


@pytest.mark.parametrize("queries", [255, 256, 512])
def test_masks_of_rows_that_would_be_pages_apart_are_read_right(queries: int) -> None:
    args = (*(randn(1, 2, size, 8) for size in (queries, 100, 100)), randn(1, 1, queries, 100))
    executor = IRExecutor(extract_ir(Function(attend), args), backend=HostBackend(), passes=None)

    found = executor(*args)

    assert_same(found.double(), attend(*(item.double() for item in args)), "the result", tolerance=1e-5)


@pytest.mark.parametrize("backend", ["host", "aten"])
@pytest.mark.parametrize(("queries", "keys"), [(1, 20), (5, 5), (40, 300)])
def test_a_number_of_the_mask_that_is_not_one_makes_its_row_nan(
    backend: str, queries: int, keys: int
) -> None:
    mask = torch.zeros(queries, keys)
    mask[0] = torch.nan
    mask[-1, 1:] = -torch.inf
    args = (*(randn(1, 2, size, 8) for size in (queries, keys, keys)), mask)
    executor = IRExecutor(extract_ir(Function(attend), args), backend=backend, passes=None)

    found = executor(*args)

    rows = mask.isnan().any(-1)
    assert torch.equal(found.isnan().all(-1), rows.expand(1, 2, queries))
    assert torch.equal(found.isnan().any(-1), rows.expand(1, 2, queries))


def differentiate(grad: Tensor, q: Tensor, k: Tensor, v: Tensor, mask: Tensor) -> Any:
    ops = torch.ops.aten
    o, lse = ops._scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, False, attn_mask=mask)
    return ops._scaled_dot_product_flash_attention_for_cpu_backward(
        grad, q, k, v, o, lse, 0.0, False, attn_mask=mask
    )


@pytest.mark.parametrize("name", ["a cache that is longer than its content", "a window", "padding"])
def test_gradients_are_those_of_autograd(name: str) -> None:
    mask = torch.zeros(QUERIES, KEYS).masked_fill(~MASKS[name], -torch.inf)
    args = (randn(1, 2, QUERIES, 20), *(randn(1, 2, size, 20) for size in (QUERIES, KEYS, KEYS)))
    executor = IRExecutor(
        extract_ir(Function(differentiate), (*args, mask)), backend=HostBackend(), passes="default"
    )

    found = executor(*args, mask)

    assert [item.backend for item in executor.instructions] == ["host"]
    grad, *leaves = (item.double().requires_grad_() for item in args)
    expected = torch.autograd.grad(attend(*leaves, mask.double()), leaves, grad)
    for item, wanted in zip(found, expected, strict=True):
        assert_same(item.double(), wanted, "a gradient", tolerance=1e-4)

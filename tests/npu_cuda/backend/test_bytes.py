"""Logic, sums and differences of bytes are those of PyTorch, however operands lie and broadcast."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from npu_cuda.backend import HostBackend
from npu_ir import extract_ir
from npu_runtime import IRExecutor
from tests.support.corpus.case import Function
from tests.support.rows import each_row

HOST = HostBackend()
Pair = Callable[[torch.dtype], tuple[Tensor, Tensor]]


def numbers(dtype: torch.dtype, *shape: int) -> Tensor:
    return torch.randint(0, 2 if dtype is torch.bool else 256, shape).to(dtype)


PAIRS: dict[str, Pair] = {
    "one row": lambda dtype: (numbers(dtype, 5000), numbers(dtype, 5000)),
    "a number": lambda dtype: (numbers(dtype, 1), numbers(dtype, 9001)),
    "a row": lambda dtype: (numbers(dtype, 130), numbers(dtype, 40, 130)),
    "a column": lambda dtype: (numbers(dtype, 40, 1), numbers(dtype, 40, 130)),
    "a column of long rows": lambda dtype: (numbers(dtype, 3, 9001), numbers(dtype, 3, 1)),
    "masks of an attention": lambda dtype: (numbers(dtype, 4, 1, 1, 65), numbers(dtype, 1, 1, 64, 65)),
    "a row and a column": lambda dtype: (numbers(dtype, 1, 128), numbers(dtype, 64, 1)),
    "parts": lambda dtype: (numbers(dtype, 40, 200)[:, 3:103], numbers(dtype, 80, 100)[::2]),
    "short rows": lambda dtype: (numbers(dtype, 1000, 1), numbers(dtype, 1000, 7)),
    "another order": lambda dtype: (numbers(dtype, 130, 40).t(), numbers(dtype, 40, 130)),
    "what threads share": lambda dtype: (numbers(dtype, 600, 1), numbers(dtype, 600, 1001)),
    "nothing": lambda dtype: (numbers(dtype, 0, 9), numbers(dtype, 1, 9)),
}


def logic(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    both = torch.logical_and(x, y), torch.logical_or(x, y), torch.logical_xor(x, y)
    return (*both, x & y, x | y, x ^ y, torch.logical_not(x), ~y)


def arithmetic(x: Tensor, y: Tensor) -> tuple[Tensor, ...]:
    return x + y, x - y, torch.add(x, y, alpha=3)


@each_row("make", PAIRS)
@pytest.mark.parametrize(("function", "dtype"), [
    (logic, torch.bool), (logic, torch.int8), (logic, torch.uint8),
    (arithmetic, torch.int8), (arithmetic, torch.uint8),
])  # fmt: skip
@pytest.mark.parametrize("threads", [1, 2])
def test_bytes_are_computed_as_in_pytorch(
    make: Pair, function: Any, dtype: torch.dtype, threads: int
) -> None:
    torch.manual_seed(0)
    pair = make(dtype)
    executor = IRExecutor(extract_ir(Function(function), pair), {}, backend=HOST, threads=threads)

    torch.testing.assert_close(executor(*pair), function(*pair), rtol=0, atol=0)

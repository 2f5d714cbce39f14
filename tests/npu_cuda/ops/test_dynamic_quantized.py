"""Products of rows that are rounded to integers: exact integers, special values, and rows one by one."""

import os
import subprocess
import sys

import pytest
import torch
from torch import Tensor

import npu_cuda
from npu_cuda import _C
from tests.support.integer_products import products
from tests.support.rows import each_row

FLOATS = (torch.float32, torch.bfloat16, torch.float16)


def compute(x: Tensor, integers: Tensor, scales: Tensor, block: int = 32) -> Tensor:
    found = torch.empty(len(x), len(integers), dtype=x.dtype)
    kind = npu_cuda.kinds()["DynamicQuantizedGemm"]
    npu_cuda.op_call(kind, [x, integers, scales], [found], *npu_cuda.attrs("DQGM", block=block))
    return found


def test_integers_are_multiplied_and_rounded_exactly() -> None:
    for name, found, expected in products():
        assert torch.equal(found.double(), expected), name


@pytest.mark.parametrize("vector_bytes", [16, 32, 64])
def test_each_instruction_set_gives_the_same_integers(vector_bytes: int) -> None:
    if vector_bytes > _C.vector_bytes():
        pytest.skip("this processor has no such vectors")
    command = [sys.executable, "-m", "tests.support.integer_products"]
    environment = {**os.environ, "NPU_CUDA_VECTOR_BYTES": str(vector_bytes)}

    made = subprocess.run(command, check=False, capture_output=True, text=True, env=environment)

    assert made.returncode == 0, made.stderr[-2000:]


@each_row("dtype", FLOATS)
@each_row("bits", [8, 4])
@each_row("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_makes_all_results_of_its_row_nan(
    wrong: float, bits: int, dtype: torch.dtype
) -> None:
    for length, group in ((256, 32), (256, 256), (66, 22)):  # of whole vectors, and of any size
        integers, scales = torch.ops.npu.quantize_weight(torch.randn(9, length), bits, group)
        scales[3] = 0
        x = torch.randn(6, length).to(dtype)
        expected = compute(x, integers, scales)
        x[4, length // 2] = wrong

        found = compute(x, integers, scales)

        assert found[4].isnan().all()
        assert torch.equal(found[[0, 1, 2, 3, 5]], expected[[0, 1, 2, 3, 5]])


@each_row("bits", [8, 4])
def test_tiny_and_huge_numbers_are_those_of_the_definition(bits: int) -> None:
    integers, scales = torch.ops.npu.quantize_weight(torch.randn(9, 128) / 1e3, bits, 32)
    x = torch.randn(5, 128) * torch.tensor([1e-45, 1e-44, 1e-42, 1e-38, 1e30])[:, None]
    x[:, 32:64] = 0

    found = compute(x, integers, scales)

    expected = torch.ops.npu.dynamic_quantized_linear(x, integers, scales, None)
    error = (found.double() - expected.double()).abs().amax(1)
    assert (error <= 1e-5 * expected.abs().double().amax(1) + 2.0**-140).all()


@each_row("form", [(256, 32), (768, 768), (66, 22), (288, 288)])
@each_row("bits", [8, 4])
@each_row("count", [7, 70])
def test_a_row_does_not_depend_on_the_others(count: int, bits: int, form: tuple[int, int]) -> None:
    length, group = form
    integers, scales = torch.ops.npu.quantize_weight(torch.randn(37, length), bits, group)
    x = torch.randn(count, length)

    together = compute(x, integers, scales)

    for shift in range(1, count, count // 7):
        assert torch.equal(compute(x.roll(shift, 0), integers, scales), together.roll(shift, 0)), shift


@each_row("form", [(256, 32), (768, 768), (66, 22), (1104, 1104)])
@each_row("bits", [8, 4])
def test_many_rows_are_as_few_but_for_rounding(bits: int, form: tuple[int, int]) -> None:
    length, group = form
    integers, scales = torch.ops.npu.quantize_weight(torch.randn(37, length), bits, group)
    x = torch.randn(150, length)

    together = compute(x, integers, scales)

    alone = torch.cat([compute(row[None], integers, scales) for row in x])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-6 * alone.abs().max().item())

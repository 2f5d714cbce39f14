"""Linear layers whose inputs are rounded to int8, against their definition."""

import numpy as np
import pytest
import torch
from torch import Tensor

from npu_passes.errors import PassError
from npu_passes.ops.dynamic_quantized import dequantize_activations, round_activations
from npu_passes.ops.quantized import dequantize
from tests.support.rows import each_row

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def define(row: Tensor, group: int, block: int) -> tuple[list[int], list[float]]:
    """Return integers and scales of a row of float32, element by element."""
    integers, scales = [], []
    for start in range(0, len(row), group):
        for at in range(start, start + group, block):
            items = row[at : min(at + block, start + group)].numpy()
            scale = np.abs(items).max() / np.float32(127)
            scales.append(float(scale))
            integers += [round(float(item / scale)) if scale else 0 for item in items]  # to even at ties
    return integers, scales


@pytest.mark.smoke
@each_row("form", [(64, 32), (32, 32), (16, 32), (48, 32), (96, 7), (96, 1), (96, 96)])
def test_integers_and_scales_are_those_of_the_definition(form: tuple[int, int]) -> None:
    group, block = form
    x = torch.randn(3, 192 if group != 48 else 144)
    x[1, :48] = 0

    integers, scales = round_activations(x, group, block)

    assert integers.dtype == torch.int8
    for row, found, found_scales in zip(x, integers, scales, strict=True):
        expected, expected_scales = define(row, group, block)
        assert found.tolist() == expected
        assert found_scales.flatten().tolist() == expected_scales


def test_halves_are_rounded_to_even_and_the_largest_is_127() -> None:
    integers, scales = round_activations(torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -126.5]]), 6, 6)

    assert scales.tolist() == [[[1.0]]]
    assert integers.tolist() == [[127, 0, 2, 2, 0, -126]]


def test_numbers_near_the_smallest_are_clamped_or_zero() -> None:
    tiny = 2.0**-149

    integers, scales = round_activations(torch.tensor([[190 * tiny, tiny, 5 * tiny, tiny]]), 4, 2)

    assert integers.tolist() == [[127, 1, 0, 0]]
    assert scales.tolist() == [[[tiny, 0.0]]]


@each_row("dtype", FLOATS)
@each_row("bits", [8, 4])
def test_a_product_is_that_of_both_as_they_are_rounded(bits: int, dtype: torch.dtype) -> None:
    integers, scales = torch.ops.npu.quantize_weight(torch.randn(9, 96), bits, 48)
    x, bias = torch.randn(2, 3, 96, dtype=torch.float64).to(dtype), torch.randn(9).to(dtype)

    found = torch.ops.npu.dynamic_quantized_linear(x, integers, scales, bias, 32)

    wide = torch.promote_types(dtype, torch.float32)
    rounded = dequantize_activations(*round_activations(x.to(wide), 48, 32), 32).double()
    exact = rounded @ dequantize(integers, scales, torch.float64).T + bias.double()
    assert found.dtype == dtype
    unit = max(torch.finfo(dtype).eps, 1e-6)
    assert (found.double() - exact).abs().max() <= unit * exact.abs().max()


@each_row("dtype", FLOATS)
def test_an_element_differs_by_half_a_scale_at_most(dtype: torch.dtype) -> None:
    x = (torch.randn(16, 64, dtype=torch.float64) * torch.logspace(-4, 3, 16)[:, None]).to(dtype)
    wide = x.to(torch.promote_types(dtype, torch.float32))

    integers, scales = round_activations(wide, 64, 16)

    error = (dequantize_activations(integers, scales, 16) - wide).abs().reshape(16, 1, 4, 16)
    assert (error <= scales[..., None] * (0.5 + 1e-5)).all()


@each_row("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_makes_all_results_of_its_row_nan(wrong: float) -> None:
    integers, scales = torch.ops.npu.quantize_weight(torch.randn(5, 64), 8, 64)
    integers[2] = 0
    x = torch.randn(3, 64)
    expected = torch.ops.npu.dynamic_quantized_linear(x, integers, scales, None)
    x[1, 40] = wrong

    found = torch.ops.npu.dynamic_quantized_linear(x, integers, scales, None)

    assert found[1].isnan().all()
    assert torch.equal(found[::2], expected[::2])


def test_gradients_are_those_of_the_product_with_exact_numbers() -> None:
    integers, scales = torch.ops.npu.quantize_weight(torch.randn(9, 64), 8, 64)
    x = torch.randn(3, 64, requires_grad=True)

    result = torch.ops.npu.dynamic_quantized_linear(x, integers, scales, None)
    result.sum().backward()

    torch.testing.assert_close(x.grad, dequantize(integers, scales, torch.float32).sum(0).expand(3, -1))
    with torch.no_grad():
        assert torch.equal(result, torch.ops.npu.dynamic_quantized_linear(x, integers, scales, None))


@each_row("bits", [8, 4])
def test_a_number_of_rows_that_is_left_open_is_exported(bits: int) -> None:
    integers, scales = torch.ops.npu.quantize_weight(torch.randn(9, 64), bits, 32)

    class Layer(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = torch.ops.npu.dynamic_quantized_linear(x, integers, scales, None)
            return found

    rows = torch.export.Dim("rows")
    exported = torch.export.export(Layer(), (torch.randn(3, 64),), dynamic_shapes=({0: rows},)).module()

    x = torch.randn(5, 64)
    torch.testing.assert_close(exported(x), Layer()(x))


@each_row(
    "wrong",
    {
        "none": (8, 0, "a block has 0 elements, not 1 to 1024"),
        "many": (8, 1025, "a block has 1025 elements, not 1 to 1024"),
        "odd": (4, 3, "a block has 3 elements, an odd number, and a byte has two of 4 bits"),
    },
)
def test_other_blocks_are_refused(wrong: tuple[int, int, str]) -> None:
    bits, block, match = wrong
    integers, scales = torch.ops.npu.quantize_weight(torch.ones(2, 8), bits, 8)

    with pytest.raises(PassError, match=match):
        torch.ops.npu.dynamic_quantized_linear(torch.ones(2, 8), integers, scales, None, block)


@each_row("shape", [(0, 8), (3, 0)])
def test_an_empty_weight_gives_empty_results_or_zeros(shape: tuple[int, int]) -> None:
    made = torch.ops.npu.quantize_weight(torch.ones(shape), 8, 8)

    found = torch.ops.npu.dynamic_quantized_linear(torch.ones(2, shape[1]), *made, None)

    assert found.tolist() == [[0.0] * shape[0]] * 2

"""Weights of 8 and 4 bits, against their definition in float64."""

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from torch import Tensor

from npu_passes.errors import PassError
from npu_passes.ops.quantized import dequantize, pack_nibbles, unpack_nibbles
from tests.support.rows import each_row

FLOATS = [torch.float32, torch.bfloat16, torch.float16, torch.float64]


def define(weight: Tensor, bits: int, group: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Return integers and scales element by element."""
    most = 2 ** (bits - 1) - 1
    rows, length = weight.shape
    integers, scales = np.zeros((rows, length), np.int64), np.zeros((rows, length // group))
    for row in range(rows):
        for first in range(0, length, group):
            items = weight[row, first : first + group].double().numpy()
            scale = float(np.float32(np.abs(items).max() / most))
            scales[row, first // group] = scale
            for place, item in enumerate(items):
                integers[row, first + place] = round(item / scale) if scale else 0  # to even at ties
    return integers, scales


@pytest.mark.smoke
@each_row("dtype", FLOATS)
@each_row("form", [(8, 48), (8, 16), (8, 3), (4, 48), (4, 16), (4, 2)])
def test_integers_and_scales_are_those_of_the_definition(form: tuple[int, int], dtype: torch.dtype) -> None:
    bits, group = form
    weight = torch.randn(5, 48, dtype=torch.float64).to(dtype)
    weight[2, :16] = 0
    expected, expected_scales = define(weight, bits, group)

    integers, scales = torch.ops.npu.quantize_weight(weight, bits, group)

    assert scales.dtype == torch.float32
    assert scales.shape == (5, 48 // group)
    np.testing.assert_allclose(scales.double().numpy(), expected_scales, rtol=1e-6)
    found = integers if bits == 8 else unpack_nibbles(integers)
    assert integers.dtype == (torch.int8 if bits == 8 else torch.uint8)
    assert np.abs(found.numpy() - expected).max() <= (0 if dtype is not torch.float64 else 1)


@each_row("bits", [8, 4])
@each_row("dtype", FLOATS)
def test_a_weight_differs_by_half_a_scale_at_most(bits: int, dtype: torch.dtype) -> None:
    weight = (torch.randn(16, 64, dtype=torch.float64) * torch.logspace(-4, 3, 16)[:, None]).to(dtype)

    integers, scales = torch.ops.npu.quantize_weight(weight, bits, 32)

    error = (dequantize(integers, scales, torch.float64) - weight.double()).abs().reshape(16, 2, 32)
    assert (error <= scales.double()[..., None] * (0.5 + 1e-5)).all()


def test_halves_are_rounded_to_even() -> None:
    weight = torch.tensor([[127.0, 0.5, 1.5, 2.5, -0.5, -1.5]])

    integers, scales = torch.ops.npu.quantize_weight(weight, 8, 6)

    assert scales.tolist() == [[1.0]]
    assert integers.tolist() == [[127, 0, 2, 2, 0, -2]]


def test_a_byte_has_an_element_of_even_place_and_the_next_one() -> None:
    integers = torch.tensor([[-7, 7, 0, -1, 7, -7]], dtype=torch.int8)

    bytes = pack_nibbles(integers)

    assert bytes.tolist() == [[16 * 7 - 7, 256 - 16, 256 - 16 * 7 + 7]]
    assert torch.equal(unpack_nibbles(bytes), integers)


def test_what_is_not_finite_spreads_over_its_group_alone() -> None:
    weight = torch.ones(1, 6)
    weight[0, 0], weight[0, 2] = float("inf"), float("nan")

    integers, scales = torch.ops.npu.quantize_weight(weight, 8, 2)
    found = dequantize(integers, scales, torch.float32)

    assert not found[0, :4].isfinite().any()
    assert found[0, 4:].tolist() == [1, 1]


@each_row("dtype", FLOATS)
@each_row("bits", [8, 4])
def test_a_product_is_that_of_the_weight_that_integers_stand_for(bits: int, dtype: torch.dtype) -> None:
    integers, scales = torch.ops.npu.quantize_weight(torch.randn(9, 64), bits, 16)
    x, bias = torch.randn(2, 3, 64, dtype=torch.float64).to(dtype), torch.randn(9).to(dtype)

    found = torch.ops.npu.quantized_linear(x, integers, scales, bias)

    exact = x.double() @ dequantize(integers, scales, torch.float64).T + bias.double()
    assert found.dtype == dtype
    unit = max(torch.finfo(dtype).eps, 1e-6)
    assert (found.double() - exact).abs().max() <= unit * exact.abs().max()


def test_a_product_is_differentiated_by_its_input() -> None:
    integers, scales = torch.ops.npu.quantize_weight(torch.randn(9, 64), 8, 64)
    x = torch.randn(3, 64, requires_grad=True)

    torch.ops.npu.quantized_linear(x, integers, scales, None).sum().backward()

    torch.testing.assert_close(x.grad, dequantize(integers, scales, torch.float32).sum(0).expand(3, -1))


@each_row(
    "wrong",
    {
        "bits": ((2, 6), 3, 6, "integers have 8 or 4 bits, not 3"),
        "group": ((2, 6), 8, 4, "a row of 6 elements is not made up of groups of 4"),
        "no group": ((2, 6), 8, 0, "a row of 6 elements is not made up of groups of 0"),
        "odd": ((2, 6), 4, 3, "a group has 3 elements, an odd number, and a byte has two of 4 bits"),
    },
)
def test_other_forms_are_refused(wrong: tuple[tuple[int, int], int, int, str]) -> None:
    shape, bits, group, match = wrong

    with pytest.raises(PassError, match=match):
        torch.ops.npu.quantize_weight(torch.ones(shape), bits, group)


@each_row("shape", [(0, 8), (3, 0)])
def test_an_empty_weight_is_quantized(shape: tuple[int, int]) -> None:
    made = torch.ops.npu.quantize_weight(torch.ones(shape), 8, 8)

    assert (
        torch.ops.npu.quantized_linear(torch.ones(2, shape[1]), *made, None).tolist()
        == [[0.0] * shape[0]] * 2
    )


@each_row("bits", [8, 4])
def test_blocks_of_rows_give_the_same(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    weight = torch.randn(37, 48)
    expected = torch.ops.npu.quantize_weight(weight, bits, 16)
    monkeypatch.setattr("npu_passes.ops.quantized._ELEMENTS_AT_ONCE", 5 * 48)

    found = torch.ops.npu.quantize_weight(weight, bits, 16)

    assert all(map(torch.equal, found, expected))


@each_row("bits", [8, 4])
def test_a_large_weight_takes_little_memory_besides_its_integers(bits: int) -> None:
    weight = torch.randn(4096, 4096)

    with torch.profiler.profile(profile_memory=True) as profiler:
        torch.ops.npu.quantize_weight(weight, bits, 32)

    held = peak = 0
    for event in profiler.profiler.kineto_results.events():
        if event.name() == "[memory]":
            held += event.nbytes()
            peak = max(peak, held)
    results = weight.numel() * bits // 8 + weight.numel() // 32 * 4
    assert results < peak < 2 * results + 10 * 2**22, "parts, the whole, and some blocks of a million floats"

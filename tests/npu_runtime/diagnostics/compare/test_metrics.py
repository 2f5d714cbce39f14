"""Metrics of the difference of two values."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from npu_runtime.diagnostics.compare.metrics import Difference, Error, measure, measure_error, ulp_distance

FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e5m2)


def steps_up(number: torch.Tensor, count: int) -> torch.Tensor:
    bits = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[number.itemsize]
    return (number.view(bits) + count).view(number.dtype)


def negative(number: torch.Tensor) -> torch.Tensor:
    return (-number.double()).to(number.dtype)


def test_ulp_counts_floats_of_the_dtype() -> None:
    for dtype in FLOATS:
        one = torch.ones(2).to(dtype)
        for count in (0, 1, 3):
            assert ulp_distance(steps_up(one, count), one) == count, f"{dtype}, {count} steps"
            assert ulp_distance(negative(steps_up(one, count)), negative(one)) == count, f"{dtype}, {count}"


def test_ulp_counts_across_zero() -> None:
    for dtype in FLOATS:
        zero = torch.zeros(1, dtype=dtype)
        least = steps_up(zero, 1)
        assert ulp_distance(least, negative(least)) == 2, str(dtype)
        assert ulp_distance(zero, negative(zero)) == 0, str(dtype)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 40))
def test_ulp_agrees_with_stepping_one_by_one(number: float, count: int) -> None:
    low = high = torch.tensor([number], dtype=torch.float32)
    for _ in range(count):
        high = torch.nextafter(high, torch.tensor(math.inf))

    assert ulp_distance(high, low) == (count if bool(high.isfinite().all()) else 0)


def test_ulp_of_the_largest_distance_is_an_integer() -> None:
    largest = torch.tensor([torch.finfo(torch.float64).max], dtype=torch.float64)

    assert ulp_distance(largest, -largest) == torch.iinfo(torch.int64).max


@pytest.mark.smoke
def test_a_difference_is_told_in_all_measures() -> None:
    expected, actual = torch.tensor([3.0, 4.0]), torch.tensor([3.0, 4.5])

    found = measure(actual, expected)

    assert found == Difference(
        max_abs=0.5,
        rms=pytest.approx(math.sqrt(0.125)),
        max_rel=0.125,
        ulp=2**20,
        snr_db=pytest.approx(20.0),
        unlike=0,
        count=2,
    )


def test_equal_values_have_no_difference() -> None:
    x = torch.tensor([0.0, -0.0, math.nan, math.inf, 1.0])

    assert measure(x, x.clone()) == Difference(ulp=0, count=5)


def test_nan_and_infinities_on_one_side_are_counted_and_left_out() -> None:
    found = measure(
        torch.tensor([math.nan, math.inf, math.inf, 1.0, 2.5]),
        torch.tensor([1.0, -math.inf, math.inf, 1.0, 2.0]),
    )

    assert (found.unlike, found.max_abs) == (2, 0.5)


def test_numbers_too_large_to_square_have_a_signal_to_noise_ratio() -> None:
    expected = torch.tensor([1e300, 1e300], dtype=torch.float64)

    assert measure(expected * 1.001, expected).snr_db == pytest.approx(60.0, abs=0.1)
    assert measure(torch.ones(1), torch.zeros(1)).snr_db == -math.inf


@pytest.mark.parametrize(("actual", "expected", "max_abs"), [
    pytest.param(torch.tensor([1, 5]), torch.tensor([1, 2]), 3.0, id="integers"),
    pytest.param(torch.tensor([True, False]), torch.tensor([True, True]), 1.0, id="truth_values"),
    pytest.param(torch.tensor([3 + 4j]), torch.tensor([0j]), 5.0, id="complex"),
    pytest.param(3, 5, 2.0, id="python_numbers"),
    pytest.param(torch.empty(0), torch.empty(0), 0.0, id="empty"),
    pytest.param(torch.eye(2).to_sparse(), torch.zeros(2, 2).to_sparse(), 1.0, id="sparse"),
])  # fmt: skip
def test_every_kind_of_number_is_measured(actual: object, expected: object, max_abs: float) -> None:
    assert measure(actual, expected).max_abs == max_abs


def test_what_is_no_number_cannot_be_measured() -> None:
    assert math.isnan(measure(None, 1.0).max_abs)
    assert math.isnan(measure(torch.ones(2), torch.ones(3)).max_abs)
    assert measure_error(None, 1.0) is None


def test_errors_leave_out_what_is_not_finite() -> None:
    actual, exact = torch.tensor([1.0, math.inf, 3.0]), torch.tensor([1.0, 1e39, 4.0], dtype=torch.float64)

    assert measure_error(actual, exact) == Error(1.0, pytest.approx(math.sqrt(0.5)))
    assert measure_error(torch.tensor([math.inf]), torch.tensor([1.0])) == Error(0.0, 0.0)

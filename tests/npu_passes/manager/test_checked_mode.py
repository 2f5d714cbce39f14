"""Comparing results before and after a pass: exact, or within a tolerance of the largest magnitude."""

import re
from typing import Any

import pytest
import torch
from torch import inf, nan, tensor

from npu_passes import EXACT, Checked, PassError, within
from npu_passes.manager.checked_mode import find_first_difference, relative_error
from tests.support.rows import each_row


def difference(actual: Any, expected: Any, rtol: float = 0.0) -> str | None:
    return find_first_difference(
        [{"result": actual}], [{"result": expected}], within(rtol) if rtol else EXACT
    )


def test_equal_results_are_exact(subtests: pytest.Subtests) -> None:
    rows = {
        "nan": (tensor([1.0, nan]), tensor([1.0, nan])),
        "signed zero": (tensor([-0.0]), tensor([0.0])),
        "infinity": (tensor([inf, -inf]), tensor([inf, -inf])),
        "empty": (torch.zeros(0), torch.zeros(0)),
        "large integers": (tensor([2**60]), tensor([2**60])),
        "complex": (tensor([1 + 2j]), tensor([1 + 2j])),
        "number": (3, 3),
        "none": (None, None),
        "sparse": (torch.eye(2).to_sparse(), torch.eye(2).to_sparse()),
    }
    for case, (actual, expected) in rows.items():
        with subtests.test(case):
            assert difference(actual, expected) is None


def test_other_results_are_said_to_differ(subtests: pytest.Subtests) -> None:
    rows = [
        (tensor([1.0]), tensor([1.0 + 1e-7]), "result differs by 1.19e-07 of its"),
        (tensor([1.0]), tensor([nan]), "differs by inf"),
        (tensor([1.0]), tensor([inf]), "differs by inf"),
        (tensor([1.0]), tensor([1.0], dtype=torch.float64), r"is f32\[1\]"),
        (tensor([1.0]), tensor([[1.0]]), r"and was f32\[1, 1\]"),
        (tensor([2**60]), tensor([2**60 + 1]), "differs in 1 of 1 elements"),
        (3, 3.0, "result is 3, and was 3.0"),
        (tensor(3), 3, r"result is i64\[\], and was 3"),
        (torch.eye(2).to_sparse(), torch.ones(2, 2).to_sparse(), "differs by 1"),
    ]
    for actual, expected, message in rows:
        with subtests.test(actual=actual, expected=expected, message=message):
            problem = difference(actual, expected)

            assert re.search(message, problem)


def test_a_tolerance_is_of_the_largest_magnitude() -> None:
    expected = tensor([1000.0, 0.0])

    assert difference(tensor([1000.0, 0.009]), expected, 1e-5) is None
    assert difference(tensor([1000.0, 0.02]), expected, 1e-5) is not None


@each_row(
    "dtype, allowed",
    [(torch.float64, 1e-5), (torch.float32, 1e-5), (torch.float16, 0.0156), (torch.bfloat16, 0.125)],
)
def test_coarse_dtypes_may_differ_by_some_of_their_rounding_units(dtype: Any, allowed: float) -> None:
    assert within(1e-5).allowed_difference(dtype) == pytest.approx(allowed, rel=0.01)
    assert EXACT.allowed_difference(dtype) == 0


def test_a_wrong_factor_is_seen_in_every_dtype() -> None:
    for dtype in (torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2):
        assert difference(tensor([1.5]).to(dtype), tensor([1.0]).to(dtype), 1e-4) is not None


def test_parts_of_complex_numbers_are_compared_one_by_one() -> None:
    assert difference(tensor([complex(nan, 1)]), tensor([complex(nan, 1)])) is None
    assert difference(tensor([complex(nan, 1)]), tensor([complex(nan, 2)])) is not None


def test_where_nothing_but_zero_is_expected_the_difference_itself_counts() -> None:
    assert relative_error(tensor([1e-6]), tensor([0.0])) == pytest.approx(1e-6)


def test_results_of_other_names_differ() -> None:
    assert find_first_difference([{"a": 1}], [{"b": 1}], EXACT) == "the results are a, and were b"


def quantized(*numbers: float, scale: float = 0.5, zero_point: int = 0) -> torch.Tensor:
    return torch.quantize_per_tensor(tensor(numbers), scale, zero_point, torch.qint8)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantized_results_are_compared_by_the_numbers_they_stand_for() -> None:
    assert difference(quantized(1.0, 2.0), quantized(1.0, 2.0)) is None
    assert difference(quantized(1.0, 2.0), quantized(1.0, 2.0, zero_point=3)) is None
    assert difference(quantized(1.0, 2.0), quantized(1.0, 2.5)) is not None
    assert difference(quantized(1.0, 2.0, scale=1.0), quantized(2.0, 4.0, scale=2.0)) is not None


@each_row("calls", {
    "no keyword arguments": [(tensor(1.0),)],
    "a tensor": (tensor([1.0]),),
    "a tensor for the list": tensor([1.0]),
    "a tensor for the arguments": [(tensor(1.0), {})],
    "None for keyword arguments": [((tensor(1.0),), None)],
    "a number": 3,
})  # fmt: skip
def test_a_call_is_a_pair_of_arguments_and_keyword_arguments(calls: Any) -> None:
    with pytest.raises(
        PassError, match=r"a call is a pair .*, not [\s\S]*fix: Checked\(calls=\[\(\(x, y\), {}\)"
    ):
        Checked(calls=calls)


def test_calls_that_are_generated_are_kept_for_all_runs() -> None:
    data = Checked(calls=(((tensor(1.0),), {}) for _ in range(2)))  # type: ignore[arg-type]

    assert len(data.calls) == len(list(data.calls)) == 2


def test_weights_are_no_module() -> None:
    with pytest.raises(PassError, match="a mapping or the path of a file, not Linear"):
        Checked(weights=torch.nn.Linear(1, 1))  # type: ignore[arg-type]

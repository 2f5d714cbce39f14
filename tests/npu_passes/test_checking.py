"""Comparing results before and after a pass: exact, or within a tolerance of the largest magnitude."""

from __future__ import annotations

import re
from typing import Any

import pytest
import torch
from torch import inf, nan, tensor

from npu_passes import EXACT, within
from npu_passes.checking import first_difference, relative_error


def difference(actual: Any, expected: Any, rtol: float = 0.0) -> str | None:
    return first_difference([{"result": actual}], [{"result": expected}], within(rtol) if rtol else EXACT)


@pytest.mark.parametrize(
    ("actual", "expected"),
    [
        pytest.param(tensor([1.0, nan]), tensor([1.0, nan]), id="nan"),
        pytest.param(tensor([-0.0]), tensor([0.0]), id="signed zero"),
        pytest.param(tensor([inf, -inf]), tensor([inf, -inf]), id="infinity"),
        pytest.param(torch.zeros(0), torch.zeros(0), id="empty"),
        pytest.param(tensor([2**60]), tensor([2**60]), id="large integers"),
        pytest.param(tensor([1 + 2j]), tensor([1 + 2j]), id="complex"),
        pytest.param(3, 3, id="number"),
        pytest.param(None, None, id="none"),
        pytest.param(torch.eye(2).to_sparse(), torch.eye(2).to_sparse(), id="sparse"),
    ],
)
def test_equal_results_are_exact(actual: Any, expected: Any) -> None:
    assert difference(actual, expected) is None


@pytest.mark.parametrize(
    ("actual", "expected", "message"),
    [
        pytest.param(tensor([1.0]), tensor([1.0 + 1e-7]), "result differs by 1.19e-07 of its", id="one unit"),
        pytest.param(tensor([1.0]), tensor([nan]), "differs by inf", id="nan"),
        pytest.param(tensor([1.0]), tensor([inf]), "differs by inf", id="infinity"),
        pytest.param(
            tensor([1.0]), tensor([1.0], dtype=torch.float64), r"is a tensor of shape \[1\] and float32", id="dtype"
        ),
        pytest.param(tensor([1.0]), tensor([[1.0]]), r"and was a tensor of shape \[1, 1\]", id="shape"),
        pytest.param(tensor([2**60]), tensor([2**60 + 1]), "differs in 1 of 1 elements", id="integers"),
        pytest.param(3, 3.0, "result is 3, and was 3.0", id="kind of number"),
        pytest.param(tensor(3), 3, "result is a tensor", id="tensor and number"),
        pytest.param(torch.eye(2).to_sparse(), torch.ones(2, 2).to_sparse(), "differs by 1", id="sparse"),
    ],
)
def test_other_results_are_said_to_differ(actual: Any, expected: Any, message: str) -> None:
    problem = difference(actual, expected)

    assert problem is not None
    assert re.search(message, problem)


def test_a_tolerance_is_of_the_largest_magnitude() -> None:
    expected = tensor([1000.0, 0.0])

    assert difference(tensor([1000.0, 0.009]), expected, 1e-5) is None
    assert difference(tensor([1000.0, 0.02]), expected, 1e-5) is not None


def test_half_precision_gets_the_tolerance_in_its_own_units() -> None:
    expected = tensor([1.0], dtype=torch.float16)

    assert difference(expected + 0.001, expected, 2e-7) is None
    assert difference(expected + 0.01, expected, 2e-7) is not None


def test_where_nothing_but_zero_is_expected_the_difference_itself_counts() -> None:
    assert relative_error(tensor([1e-6]), tensor([0.0])) == pytest.approx(1e-6)


def test_results_of_other_names_differ() -> None:
    assert first_difference([{"a": 1}], [{"b": 1}], EXACT) == "the results are a, and were b"

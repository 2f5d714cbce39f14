"""Cost of verification: verify_ir compares every parameter, and hardly ever does one change."""

from __future__ import annotations

import torch
from torch.profiler import ProfilerActivity, profile

from npu_ir.verify import compare


def calls_of_compare(actual: torch.Tensor, expected: torch.Tensor) -> set[str]:
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        assert compare("weight", actual, expected).ok
    return {event.key for event in profiler.key_averages()}


def test_equal_tensors_are_compared_without_a_copy() -> None:
    weight = torch.tensor([1.0, float("nan"), -0.0])

    calls = calls_of_compare(weight.clone(), weight)

    assert "aten::equal" in calls
    assert not calls & {"aten::copy_", "aten::sub"}


def test_nearly_equal_tensors_are_compared_in_float64() -> None:
    weight = torch.ones(3)

    calls = calls_of_compare(weight + 1e-7, weight)

    assert {"aten::copy_", "aten::sub"} <= calls

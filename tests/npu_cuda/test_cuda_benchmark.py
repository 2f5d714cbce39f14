"""The report of the benchmark of native calls."""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.support.scripts import forgotten, imported


@pytest.fixture
def cuda() -> Iterator[ModuleType]:
    with forgotten():
        yield imported("cuda")


CALLS = [
    {"title": "torch.add(out=)", "ns": 1000.0, "most_ns": None},
    {"title": "op_call, tensors of torch", "ns": 300.04, "most_ns": 300},
]


def test_the_page_shows_what_calls_take_and_no_bars(cuda: ModuleType) -> None:
    machine = {"cpu": "a processor", "torch": "2", "python": "3", "date": "2026-01-01"}
    results: dict[str, Any] = {"machine": machine, "calls": CALLS, "kernels": [], "builds": []}
    results["instructions"] = {"torch.add(out=)": 5000.25}

    page = cuda.report({**results, "cuda_absence": "no driver"})

    assert "| op_call, tensors of torch | 300.0 | 0.300 |\n" in page
    assert "| torch.add(out=) | 5000 |\n" in page
    assert "there is no GPU on this machine (no driver)" in page
    assert "at most" not in page


def test_calls_that_take_too_long_are_missed(cuda: ModuleType) -> None:
    (bar,) = cuda.bars(CALLS)

    assert (bar.verdict, bar.missed) == ("missed", ["op_call, tensors of torch 300.04"])

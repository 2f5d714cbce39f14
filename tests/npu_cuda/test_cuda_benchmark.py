"""The report of the benchmark of native calls."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest

from tests.support.scripts import forgotten, imported


@pytest.fixture
def native() -> Iterator[ModuleType]:
    with forgotten():
        yield imported("native")


CALLS = [
    {"title": "torch.add(out=)", "ns": 1000.0, "most_ns": None},
    {"title": "op_call, tensors of torch", "ns": 300.04, "most_ns": 300},
]
OPS = [{"title": "tanh", "ratios": {"f32 1k": 0.25, "f32 4M": None}}]
CHAINS = [{"title": "arithmetic", "eager": 0.3, "compiled": 1.25}]
PRODUCTS = [
    {"title": "1 x 16 x 16", "us": 0.25, "ratios": {"torch.mm(out=)": 0.1, "ONNX Runtime": 0.25}},
    {"title": "64 x 64 x 64", "us": 4.0, "ratios": {"torch.mm(out=)": 0.5, "ONNX Runtime": 1.0}},
]


def test_the_page_shows_what_calls_take_and_no_bars(native: ModuleType) -> None:
    machine = {"cpu": "a processor", "torch": "2", "python": "3", "date": "2026-01-01"}
    results: dict[str, Any] = {
        "machine": machine, "calls": CALLS, "ops": OPS, "chains": CHAINS, "products": PRODUCTS,
        "kernels": [], "builds": [],
    }  # fmt: skip
    results["instructions"] = {"torch.add(out=)": 5000.25}

    page = native.report({**results, "cuda_absence": "no driver"})

    assert "| op_call, tensors of torch | 300.0 | 0.300 |\n" in page
    assert "| | f32 1k | f32 4M |\n|---|---:|---:|\n| tanh | 0.25 | - |\n" in page
    assert "| arithmetic | 0.30 | 1.25 |\n" in page
    assert "| 1 x 16 x 16 | 0.25 | 0.10 | 0.25 |\n" in page
    assert "| torch.add(out=) | 5000 |\n" in page
    assert "there is no GPU on this machine (no driver)" in page
    assert "at most" not in page


def test_calls_that_take_too_long_are_missed(native: ModuleType) -> None:
    (bar,) = native.bars(CALLS)

    assert (bar.verdict, bar.missed) == ("missed", ["op_call, tensors of torch 300.04"])


def test_products_are_compared_with_the_best_of_the_others(native: ModuleType) -> None:
    each, mean = native.host_gemm.bars(PRODUCTS)

    assert (each.verdict, each.missed) == ("missed", ["64 x 64 x 64 1"])
    assert (mean.verdict, mean.value) == ("met", 0.5)


def test_ops_and_chains_that_are_too_slow_are_missed(native: ModuleType) -> None:
    found = native.host_ops.bars(OPS, CHAINS)

    assert [(bar.text, bar.verdict) for bar in found] == [
        ("time of an op over PyTorch's, f32 1k", "met"),
        ("chains over eager PyTorch", "met"),
        ("chains over torch.compile", "missed"),
    ]

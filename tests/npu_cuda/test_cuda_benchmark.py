"""The report of the benchmark of native calls."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from tests.support.scripts import forgotten, imported


@pytest.fixture
def native() -> Iterator[ModuleType]:
    with forgotten():
        yield imported("native")


@pytest.fixture
def gpu() -> Iterator[ModuleType]:
    with forgotten():
        yield imported("gpu_page")


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
        "builds": [],
    }  # fmt: skip
    results["instructions"] = {"torch.add(out=)": 5000.25}

    page = native.report(results)

    assert "| op_call, tensors of torch | 300.0 | 0.300 |\n" in page
    assert "| | f32 1k | f32 4M |\n|---|---:|---:|\n| tanh | 0.25 | - |\n" in page
    assert "| arithmetic | 0.30 | 1.25 |\n" in page
    assert "| 1 x 16 x 16 | 0.25 | 0.10 | 0.25 |\n" in page
    assert "| torch.add(out=) | 5000 |\n" in page
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


def test_the_page_of_a_gpu_names_it(gpu: ModuleType, tmp_path: Path) -> None:
    rows = [
        {
            "title": "add, 64M f32", "kernels": ["add"], "us": 300.0, "floor_us": 270.0, "torch_us": 150.0,
            "compiled_us": 600.0, "refusal": "slow",
        },
        {
            "title": "sum", "kernels": ["a", "b"], "us": 2.0, "floor_us": 0.5, "torch_error": "no memory",
            "wrong": "result 0 is off by 0.1",
        },
        {"title": "sort", "error": "BackendError: 3 | 4"},
    ]  # fmt: skip
    found = {
        "gpu": "H100", "cuda": "13.0", "machine": {"torch": "2.11", "date": "2026-01-02"},
        "bytes_per_second": 2.5e12, "fusion_absence": "", "rows": rows,
    }  # fmt: skip

    rows_of_models = {"a model, training": {"eager": 2.5, "cuda": 1.25, "aten": "it failed"}}
    (tmp_path / "kernels.json").write_text(json.dumps(found))
    (tmp_path / "models.json").write_text(json.dumps({**found, "rows": rows_of_models}))
    (tmp_path / "report.md").write_text("| tests | passed |\n")

    page = gpu.page(tmp_path)

    assert "| tests | passed |" in page
    assert "| a model, training | 2.50 | 1.25 | failed |\n" in page
    assert "On H100, with PyTorch 2.11 for CUDA 13.0, on 2026-01-02" in page
    assert "2.50 TB/s" in page
    assert "| add, 64M f32 (left to PyTorch) | 1 | 300.00 | 270.00 | 90% | 2.00 | 0.50 |\n" in page
    assert "| sum **WRONG**: result 0 is off by 0.1 | 2 | 2.00 | 0.50 | 25% | - | - |\n" in page
    assert "| sort: BackendError: 3 / 4 | - | - | - | - | - | - |\n" in page


def test_a_measured_case_has_a_row(gpu: ModuleType) -> None:
    kernels, cpu = gpu.cuda_kernels, torch.device("cpu")
    found = kernels.start(cpu)

    kernels.add_rows(found, cpu, time.monotonic() + 60, "^relu, 16K")

    assert [row["title"] for row in found["rows"]] == ["relu, 16K f32"]
    assert not {"wrong", "error", "torch_error"} & set(found["rows"][0])


def test_results_off_by_more_than_rounding_are_said_to_be(gpu: ModuleType) -> None:
    kernels, x = gpu.cuda_kernels, torch.arange(4.0)

    assert kernels.difference([x], [x], is_random=False) == ""
    assert kernels.difference([x], [x + 0.1], is_random=False) == "result 0 is off by 0.032"
    assert kernels.difference([x * torch.nan], [x], is_random=False) == "result 0 is off by nan"
    assert "torch.float32 [4], not torch.int64 [4]" in kernels.difference([x], [x.long()], is_random=False)


def test_a_case_that_ended_the_process_is_not_tried_again(gpu: ModuleType) -> None:
    kernels, cpu = gpu.cuda_kernels, torch.device("cpu")
    found = {"bytes_per_second": 1e9, "rows": [], "running": "relu, 16K f32"}

    kernels.add_rows(found, cpu, time.monotonic() + 60, "^relu, 16K")

    assert [row["error"] for row in found["rows"]] == ["it ended the process, or the context of the GPU"]

"""What the benchmark of running graphs makes of its measurements."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any
from xml.dom import minidom

import pytest

from tests.npu_runtime.bench_modules import forgotten, imported


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    with forgotten():
        yield


@pytest.fixture(scope="module")
def report() -> ModuleType:
    return imported("runtime_report")


def measured(seconds: float, compile_seconds: float | None = None, **more: Any) -> dict[str, Any]:
    return {
        "seconds": seconds,
        "compile_seconds": compile_seconds,
        "peak_bytes": 1000,
        "difference": 0.0,
        **more,
    }


def case(model: str, threads: int, **contenders: dict[str, Any]) -> dict[str, Any]:
    named = {name.replace("_", "-"): result for name, result in contenders.items()}
    return {"model": model, "threads": threads, "nodes": 3, "contenders": named}


RESULTS: dict[str, Any] = {
    "cpu": "a processor",
    "torch": "2",
    "python": "3",
    "date": "2026-01-01",
    "cases": [
        case(
            "mlp-1",
            1,
            eager=measured(10.0),
            compile=measured(8.0, 100.0),
            compile_freezing={"error": "fails"},
            executor=measured(4.0, 1.0, overhead_us=0.4, steps=3),
        ),
        case(
            "resnet18",
            2,
            eager=measured(10.0),
            compile=measured(20.0, 100.0),
            compile_freezing=measured(5.0, 100.0),
            executor=measured(6.0, 10.0),
        ),
    ],
}


def complete_results() -> dict[str, Any]:
    """Return the results, with a freezing torch.compile that runs everywhere."""
    first, second = RESULTS["cases"]
    contenders = {**first["contenders"], "compile-freezing": measured(9.0, 100.0)}
    return {**RESULTS, "cases": [{**first, "contenders": contenders}, {**second}]}


def test_bars_are_met_or_missed_by_the_worst_case_or_the_mean(report: ModuleType) -> None:
    best, mean, eager, compiled, overhead, memory = report.bars(complete_results(), "executor")

    assert best.values == {"MLP 64x16, batch 1, 1 thread": 0.5, "ResNet-18, 224x224, 2 threads": 1.2}
    assert (best.value, best.verdict) == (1.2, "missed")
    assert best.missed == ["ResNet-18, 224x224, 2 threads 1.2"]
    assert mean.value == pytest.approx((0.5 * 1.2) ** 0.5)
    assert (mean.verdict, mean.missed) == ("met", [])
    assert eager.values == {"MLP 64x16, batch 1, 1 thread": 0.4}, "where overhead counts"
    assert (compiled.value, compiled.verdict) == (0.1, "missed")
    assert (overhead.value, overhead.verdict) == (0.4, "missed")
    assert (memory.value, memory.verdict) == (1.0, "met")


def test_what_was_not_measured_is_neither_met_nor_missed(report: ModuleType) -> None:
    assert {bar.verdict for bar in report.bars(RESULTS, "executor-cpu")} == {"not measured"}


def test_a_case_that_one_of_the_others_cannot_run_is_left_out_and_named(report: ModuleType) -> None:
    best, mean, *_ = report.bars(RESULTS, "executor")

    assert best.values == mean.values == {"ResNet-18, 224x224, 2 threads": 1.2}
    assert best.missed == ["ResNet-18, 224x224, 2 threads 1.2", "MLP 64x16, batch 1, 1 thread not measured"]
    assert mean.missed == ["MLP 64x16, batch 1, 1 thread not measured"]


def test_a_bar_is_not_met_where_ours_cannot_run_a_case(report: ModuleType) -> None:
    results = complete_results()
    results["cases"][1]["contenders"] = {
        **results["cases"][1]["contenders"],
        "executor": {"error": "wrong result, by nan"},
    }

    best, *_ = report.bars(results, "executor")

    assert (best.value, best.verdict) == (0.5, "not measured")
    assert best.missed == ["ResNet-18, 224x224, 2 threads not measured"]


def test_the_overview_has_a_row_per_case_and_the_means(report: ModuleType) -> None:
    columns, first, second, mean = report.overview(RESULTS)

    assert columns[1:] == [
        "eager, inference_mode",
        "torch.compile",
        "torch.compile, freezing",
        "IRExecutor",
    ]
    assert first == ["MLP 64x16, batch 1, 1 thread", "1.00", "0.80", "-", "0.40"]
    assert second[1:] == ["1.00", "2.00", "0.50", "0.60"]
    assert mean[1:] == ["1.00", "1.26", "0.50", "0.49"]


def test_the_page_tells_what_cannot_run_and_why(tmp_path: Path) -> None:
    imported("runtime_page").write_page(RESULTS, tmp_path / "page.md")

    page = (tmp_path / "page.md").read_text()
    assert "on a processor, with PyTorch 2 and Python 3, on 2026-01-01" in page
    assert "(page.svg)" in page
    assert "| torch.compile, freezing | - |  |  |  | fails |" in page
    assert "| IRExecutor | 4 s | 0.40x | 1 s | 1 KB | 0 |" in page


def test_the_plot_has_a_dot_per_contender_and_case(tmp_path: Path) -> None:
    imported("runtime_page").write_page(RESULTS, tmp_path / "page.md")

    drawing = minidom.parse(str(tmp_path / "page.svg"))
    titles = [item.firstChild.data for item in drawing.getElementsByTagName("title")]
    dots = [item for item in drawing.getElementsByTagName("circle") if item.getElementsByTagName("title")]
    assert titles == [
        "torch.compile: 0.80x",
        "IRExecutor: 0.40x",
        "torch.compile: 2.00x",
        "torch.compile, freezing: 0.50x",
        "IRExecutor: 0.60x",
    ]
    places = {title: float(dot.getAttribute("cx")) for title, dot in zip(titles, dots, strict=True)}
    assert (
        places["IRExecutor: 0.40x"] < places["torch.compile, freezing: 0.50x"] < places["IRExecutor: 0.60x"]
    )

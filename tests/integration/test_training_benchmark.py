"""The benchmark of training steps: it runs, judges what it measures, and writes its page."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from tests.support.scripts import BENCHMARKS, forgotten, imported


@pytest.fixture
def report() -> Iterator[ModuleType]:
    with forgotten():
        yield imported("train_report")


def case(**contenders: Any) -> dict[str, Any]:
    facts = {"difference": 0.0, "first_seconds": 1.0, "compile_seconds": None}
    found = {name.replace("_", "-"): {**facts, **result} for name, result in contenders.items()}
    return {"model": "mlp-8", "optimizer": "adam", "contenders": found}


def results(*cases: dict[str, Any]) -> dict[str, Any]:
    return {"cases": list(cases), "depths": []}


@pytest.mark.exhaustive
@pytest.mark.skipif(sys.platform != "linux", reason="contenders are forked")
def test_the_benchmark_measures_ours_beside_eager_and_writes_a_page(tmp_path: Path) -> None:
    command = [sys.executable, str(BENCHMARKS / "train.py"), "--quick", "--models", "mlp-8"]
    command += ["--optimizers", "sgd", "--contenders", "eager,ours", "--depths", "1,2,3"]
    command += ["--json", str(tmp_path / "results.json"), "--page", str(tmp_path / "page.md")]

    finished = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )

    assert finished.returncode == 0, finished.stdout + finished.stderr
    found = json.loads((tmp_path / "results.json").read_text())
    contenders = found["cases"][0]["contenders"]
    assert contenders["eager"]["difference"] == 0
    assert contenders["ours"]["difference"] < 1e-3
    assert contenders["ours"]["arena_bytes"] >= contenders["ours"]["lower_bound_bytes"] > 0
    assert [row["layers"] for row in found["depths"]] == [1, 2, 3]
    page = (tmp_path / "page.md").read_text()
    assert "| time to eager | TrainStep |\n|---|---:|\n| MLP 64x8x8x8, SGD with momentum | 0." in page
    assert "at most" not in page
    assert "tracing time of a layer, deep to shallow" in finished.stdout


def test_the_best_of_the_compiled_contenders_is_what_ours_is_compared_with(report: ModuleType) -> None:
    measured = results(
        case(
            eager={"seconds": 4.0},
            compile_parts={"seconds": 3.0},
            compile_gradients={"seconds": 2.0},
            ours={"seconds": 2.5},
        )
    )

    bars = {bar.text: bar for bar in report.bars(measured, "ours")}

    assert bars["time to the best of torch.compile"].value == 1.25
    assert bars["time to the best of torch.compile"].verdict == "missed"
    assert bars["time to eager: MLP 64x8x8x8"].missed == ["MLP 64x8x8x8, Adam 0.625"]


def test_what_could_not_be_measured_is_no_bar_that_is_met(report: ModuleType) -> None:
    measured = results(case(eager={"seconds": 4.0}, ours={"error": "it failed"}))

    verdicts = {bar.verdict for bar in report.bars(measured, "ours")}

    assert verdicts == {"not measured"}
    assert ("TrainStep", "-", "", "", "", "", "it failed") in list(report.rows(measured["cases"][0]))


def test_tracing_is_linear_where_a_deep_layer_costs_what_a_shallow_one_does(report: ModuleType) -> None:
    for seconds, verdict in (([1.5, 2.0, 3.0, 5.0], "met"), ([1.5, 2.0, 4.0, 12.0], "missed")):
        layers = zip([6, 12, 24, 48], seconds, strict=True)
        depths = [{"layers": count, "nodes": 1, "seconds": taken} for count, taken in layers]

        assert report.depth_bar({"depths": depths}).verdict == verdict

"""The benchmark of running graphs: its measurements, and its report."""

import math
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import convert_exported_program, extract_ir
from npu_runtime import IRExecutor
from tests.support.rows import each_row
from tests.support.scripts import forgotten, imported

QUICK_TO_PREPARE = (
    "eager-no-grad", "eager", "exported", "fx", "interpreter", "executor-plain", "executor", "executor-cpu",
)  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    with forgotten():
        yield


def small_model() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval(), (torch.randn(2, 8),)


@each_row("result, expected, wanted", {
    "equal": ([1.0, 2.0], [1.0, 2.0], 0.0),
    "zeros": ([0.0, 0.0], [0.0, 0.0], 0.0),
    "relative to the largest": ([1.0, 2.5], [1.0, 2.0], 0.25),
    "shape": ([1.0], [1.0, 2.0], math.inf),
    "dtype": ([1, 2], [1.0, 2.0], math.inf),
    "nan": ([1.0, math.nan], [1.0, 2.0], math.nan),
})  # fmt: skip
def test_a_difference_is_relative_to_the_largest_value(result: Any, expected: Any, wanted: float) -> None:
    found = imported("runtime_worker").difference(torch.tensor(result), torch.tensor(expected))

    assert found == pytest.approx(wanted, nan_ok=True)


def test_what_is_wrong_is_not_ranked_and_what_is_right_or_fails_stays_as_it_is() -> None:
    judged = imported("runtime").judged

    for difference, text in ((0.5, "5.0e-01"), (math.inf, "inf"), (math.nan, "nan")):
        found = judged({"seconds": 1.0, "difference": difference})
        assert found == {"error": f"wrong result, by {text}"}
    for result in ({"seconds": 1.0, "difference": 1e-6}, {"error": "fails"}):
        assert judged(result) == result


def test_the_peak_is_intermediates_and_results() -> None:
    x = torch.zeros(1 << 18)

    # Numbers become tensors of a few bytes on the way.
    peak_bytes = imported("runtime_worker").peak_bytes
    assert peak_bytes(lambda x: (x + 1).mul_(2), (x,)) == pytest.approx(x.nbytes, rel=1e-3)
    assert peak_bytes(lambda x: (x + 1) * 2, (x,)) == pytest.approx(2 * x.nbytes, rel=1e-3)


def test_the_kernel_calls_of_an_executor_are_those_of_its_steps() -> None:
    model, args = small_model()
    executor = IRExecutor(extract_ir(model, args), model.state_dict(), passes=None)

    sequence, count = imported("runtime_overhead").kernel_calls(executor, args)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        sequence()

    called = {event.key: event.count for event in profiler.key_averages()}
    assert count == len(executor.instructions) == 3
    assert called["aten::linear"] == 2
    assert called.keys() & {"aten::relu", "aten::relu_"}


@pytest.mark.parametrize("name", [*QUICK_TO_PREPARE, "onnxruntime", "openvino"])
def test_a_contender_gives_what_eager_gives(name: str) -> None:
    contenders = imported("runtime_contenders")
    contender = contenders.CONTENDERS[name]
    if contender.missing():
        pytest.skip(contender.missing())
    model, args = small_model()
    program = torch.export.export(model, args)
    case = contenders.Case(model, args, program, convert_exported_program(program), 1)

    with contender.mode():
        result = contender.prepare(case)()(*args)

    with torch.inference_mode():
        torch.testing.assert_close(result, model(*args))


@pytest.fixture(scope="module")
def report() -> ModuleType:
    return imported("runtime_report")


def measured(seconds: float, compile_seconds: float | None = None, **more: Any) -> dict[str, Any]:
    known = {"seconds": seconds, "compile_seconds": compile_seconds, "peak_bytes": 1000, "difference": 0.0}
    return {**known, **more}


def case(model: str, threads: int, **contenders: dict[str, Any]) -> dict[str, Any]:
    named = {name.replace("_", "-"): result for name, result in contenders.items()}
    return {"model": model, "threads": threads, "nodes": 3, "contenders": named}


def results_of(freezing: dict[str, Any]) -> dict[str, Any]:
    """Return the results of two cases, with these of ``torch.compile, freezing`` in the first."""
    first = case(
        "mlp-1", 1,
        eager=measured(10.0),
        compile=measured(8.0, 100.0),
        compile_freezing=freezing,
        executor=measured(4.0, 1.0, overhead_us=0.4, steps=3),
    )  # fmt: skip
    second = case(
        "resnet18", 2,
        eager=measured(10.0),
        compile=measured(20.0, 100.0),
        compile_freezing=measured(5.0, 100.0),
        executor=measured(6.0, 10.0),
    )  # fmt: skip
    return {"cpu": "a processor", "torch": "2", "python": "3", "date": "2026-01-01", "cases": [first, second]}


RESULTS = results_of(freezing={"error": "fails"})


def test_bars_are_met_or_missed_by_the_worst_case_or_the_mean(report: ModuleType) -> None:
    bars = report.bars(results_of(measured(9.0, 100.0)), "executor")
    best, mean, *of_all, eager, compiled, overhead, memory = bars

    assert best.values == {"MLP 64x16, batch 1, 1 thread": 0.5, "ResNet-18, 224x224, 2 threads": 1.2}
    assert (best.value, best.verdict) == (1.2, "missed")
    assert best.missed == ["ResNet-18, 224x224, 2 threads 1.2"]
    assert mean.value == pytest.approx((0.5 * 1.2) ** 0.5)
    assert (mean.verdict, mean.missed) == ("met", [])
    assert [bar.verdict for bar in of_all] == ["not measured"] * 2, "without ONNX Runtime and OpenVINO"
    assert eager.values == {"MLP 64x16, batch 1, 1 thread": 0.4}, "where overhead counts"
    assert (compiled.value, compiled.verdict) == (0.1, "missed")
    assert (overhead.value, overhead.verdict) == (0.4, "missed")
    assert (memory.value, memory.verdict) == (1.0, "met")


def test_a_case_that_one_of_the_others_cannot_run_is_left_out_and_named(report: ModuleType) -> None:
    best, mean, *_ = report.bars(RESULTS, "executor")

    assert best.values == mean.values == {"ResNet-18, 224x224, 2 threads": 1.2}
    assert best.missed == ["ResNet-18, 224x224, 2 threads 1.2", "MLP 64x16, batch 1, 1 thread not measured"]
    assert mean.missed == ["MLP 64x16, batch 1, 1 thread not measured"]
    assert {bar.verdict for bar in report.bars(RESULTS, "executor-cpu")} == {"not measured"}


@each_row("value, limit, text", {
    "below": (0.12345, 1.0, "0.123"),
    "above": (2.0, 1.0, "2"),
    "equal": (1.0, 1.0, "1"),
    "just above": (1.0000123, 1.0, "1.00001"),
    "the next number": (1.0 + 2**-52, 1.0, "1.0000000000000002"),
    "just below": (0.29996, 0.3, "0.29996"),
})  # fmt: skip
def test_a_value_has_the_digits_that_tell_it_from_its_limit(value: float, limit: float, text: str) -> None:
    assert imported("bars").value_text(value, limit) == text


def test_every_contender_but_the_measure_is_in_one_table_of_the_page() -> None:
    page, contenders = imported("runtime_page"), imported("runtime_contenders")

    shown = [name for names in page.TABLES.values() for name in names]

    assert sorted(shown) == sorted(contenders.CONTENDERS.keys() - {"eager"})


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "page.md"
    imported("runtime_page").write_page(RESULTS, path)
    return path


def test_the_page_shows_results_and_what_cannot_run_and_no_bars(page: Path) -> None:
    text = page.read_text()

    assert "on a processor, with PyTorch 2 and Python 3, on 2026-01-01" in text
    assert "(page.svg)" in text
    assert "| time to eager | IRExecutor, passes default | torch.compile, freezing | torch.compile |" in text
    assert "| torch.compile, freezing | - |  |  |  | fails |" in text
    assert "| IRExecutor, passes default | 4 s | 0.40x | 1 s | 1 KB | 0 |" in text
    assert "as it is" not in text
    assert "at most" not in text
    assert "missed" not in text

"""The benchmark of running graphs: times, memory, differences, and contenders equal to eager."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import nn

from npu_ir import convert_exported_program, extract_ir
from npu_runtime import IRExecutor
from tests.support.scripts import forgotten, imported

QUICK_TO_PREPARE = (
    "eager-no-grad",
    "eager",
    "exported",
    "fx",
    "interpreter",
    "executor-plain",
    "executor",
    "executor-cpu",
)


@pytest.fixture(scope="module", autouse=True)
def _forget() -> Iterator[None]:
    with forgotten():
        yield


def small_model() -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4)).eval(), (torch.randn(2, 8),)


@pytest.mark.parametrize(
    ("result", "expected", "wanted"),
    [
        pytest.param([1.0, 2.0], [1.0, 2.0], 0.0, id="equal"),
        pytest.param([0.0, 0.0], [0.0, 0.0], 0.0, id="zeros"),
        pytest.param([1.0, 2.5], [1.0, 2.0], 0.25, id="relative_to_the_largest"),
        pytest.param([1.0], [1.0, 2.0], math.inf, id="shape"),
        pytest.param([1, 2], [1.0, 2.0], math.inf, id="dtype"),
        pytest.param([1.0, math.nan], [1.0, 2.0], math.nan, id="nan"),
    ],
)
def test_a_difference_is_relative_to_the_largest_value(result: Any, expected: Any, wanted: float) -> None:
    found = imported("runtime_worker").difference(torch.tensor(result), torch.tensor(expected))

    assert found == pytest.approx(wanted, nan_ok=True)


@pytest.mark.parametrize(
    ("difference", "message"),
    [
        pytest.param(0.5, "wrong result, by 5.0e-01", id="wrong"),
        pytest.param(math.inf, "wrong result, by inf", id="shape"),
        pytest.param(math.nan, "wrong result, by nan", id="nan"),
    ],
)
def test_what_is_wrong_is_not_ranked(difference: float, message: str) -> None:
    judged = imported("runtime").judged({"seconds": 1.0, "difference": difference})

    assert judged == {"error": message}


@pytest.mark.parametrize("result", [{"seconds": 1.0, "difference": 1e-6}, {"error": "fails"}])
def test_what_is_right_and_what_fails_stays_as_it_is(result: dict[str, Any]) -> None:
    assert imported("runtime").judged(result) == result


def test_a_burst_is_the_time_of_one_call() -> None:
    calls: list[int] = []

    def call(seconds: float) -> None:
        calls.append(1)
        time.sleep(seconds)

    found = imported("runtime_worker").burst(call, (0.002,))

    assert len(calls) > 3
    assert 0.002 <= found < 0.02


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


@pytest.mark.parametrize("name", QUICK_TO_PREPARE)
def test_a_contender_gives_what_eager_gives(name: str) -> None:
    contenders = imported("runtime_contenders")
    model, args = small_model()
    program = torch.export.export(model, args)
    case = contenders.Case(model, args, program, convert_exported_program(program), 1)
    contender = contenders.CONTENDERS[name]

    with contender.mode():
        result = contender.prepare(case)()(*args)

    with torch.inference_mode():
        torch.testing.assert_close(result, model(*args))

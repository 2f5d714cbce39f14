"""A sample of PyTorch's operators on the executor and its native backend; ``nox -s ops`` runs them all."""

import pytest

from npu_runtime import IRExecutor
from tests.ops.cases import FUNCTION, Budget, calls_of, operators
from tests.ops.on_the_executor import verdict_of
from tests.ops.on_the_host import problem_of
from tests.support.coverage_runs.outcomes import Outcome
from tests.support.tiers import thin

BUDGET = Budget(main={FUNCTION: 1}, other={}, dtypes=1)
SAMPLE = sorted(operators())[::5]


@pytest.mark.parametrize("name", thin(SAMPLE, 30))
def test_an_operator_on_the_executor_gives_eager_bits(name: str) -> None:
    verdicts = [verdict_of(call) for call in calls_of(operators()[name], BUDGET)]

    assert [verdict for verdict in verdicts if verdict.outcome is Outcome.FAIL] == []


@pytest.mark.parametrize("name", ["nn.functional.conv2d", "sum", "topk"])
def test_an_operator_on_the_native_backend_gives_what_eager_gives(name: str) -> None:
    problems = [problem_of(call) for call in calls_of(operators()[name], BUDGET)]

    assert set(problems) == {""}


def test_a_wrong_result_of_the_native_backend_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    (call, *_) = calls_of(operators()["sum"], BUDGET)
    right = IRExecutor.run_flat
    monkeypatch.setattr(
        IRExecutor, "run_flat", lambda *args: ([leaf + 1e-2 for leaf in right(*args)[0]], right(*args)[1])
    )

    assert "not close" in str(problem_of(call))

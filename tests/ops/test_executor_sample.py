"""A sample of PyTorch's operators on the executor; ``nox -s ops`` runs them all."""

import pytest

from tests.ops.cases import FUNCTION, Budget, calls_of, operators
from tests.ops.on_the_executor import verdict_of
from tests.support.coverage_runs.outcomes import Outcome
from tests.support.tiers import thin

BUDGET = Budget(main={FUNCTION: 1}, other={}, dtypes=1)
SAMPLE = sorted(operators())[::5]


@pytest.mark.parametrize("name", thin(SAMPLE, 30))
def test_an_operator_on_the_executor_gives_eager_bits(name: str) -> None:
    verdicts = [verdict_of(call) for call in calls_of(operators()[name], BUDGET)]

    assert [verdict for verdict in verdicts if verdict.outcome is Outcome.FAIL] == []

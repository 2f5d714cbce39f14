"""Our steps train as eager does: every optimizer, every model, on everything that runs a step.

Here every optimizer has the first model, and every model one optimizer; `run_all` has all of them with all.
"""

import pytest

from tests.npu_runtime.training.outcomes import Pair, outcome, sample, title
from tests.support.tiers import thin


@pytest.mark.parametrize("pair", thin(sample(), 6, title))
def test_training_goes_as_in_eager_mode(pair: Pair) -> None:
    assert outcome(pair).problems == {}

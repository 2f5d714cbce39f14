"""Small models of every kind through every pipeline, in checked mode."""

from __future__ import annotations

import pytest

from npu_passes import optimize
from tests.pass_models.cases import CASES, Case
from tests.pass_models.measuring import PIPELINES, measure
from tests.support.tiers import thin


@pytest.mark.parametrize("case", thin(CASES, 4, lambda case: case.name))
def test_pipelines_keep_what_a_model_computes(case: Case, subtests: pytest.Subtests) -> None:
    outcomes = {pipeline: measure(case, pipeline, whole=False) for pipeline in PIPELINES}

    for pipeline, outcome in outcomes.items():
        with subtests.test(pipeline):
            assert outcome.result.converged
            assert outcome.error <= 1e-4
            assert outcome.result.after.nodes <= outcome.result.before.nodes
    # Every norm behind a convolution is folded, and a second run changes nothing.
    before, after = outcomes["default"].norms
    assert (bool(before), after) == (bool(case.norms), 0)
    graph = outcomes["default"].result.graph
    assert optimize(graph) == graph

"""Small models of every kind through every pipeline, in checked mode."""

from __future__ import annotations

import functools

import pytest

from npu_passes import optimize
from tests.pass_models.cases import CASES, Case
from tests.pass_models.measuring import PIPELINES, Outcome, measure


@functools.cache
def measured(case: Case, pipeline: str) -> Outcome:
    """Return what a pipeline makes of the small model."""
    return measure(case, pipeline, whole=False)


EACH = pytest.mark.parametrize("case", [pytest.param(case, id=case.name) for case in CASES])


# The pipelines of one model follow each other: it is captured once.
@pytest.mark.parametrize("pipeline", PIPELINES)
@EACH
def test_a_pipeline_keeps_what_a_model_computes(case: Case, pipeline: str) -> None:
    outcome = measured(case, pipeline)

    assert outcome.result.converged
    assert outcome.error <= 1e-4
    assert outcome.result.after.nodes <= outcome.result.before.nodes


@EACH
def test_every_norm_behind_a_convolution_is_folded(case: Case) -> None:
    outcome = measured(case, "default")

    assert outcome.norms[1] == 0
    assert bool(outcome.norms[0]) is bool(case.norms)


@EACH
def test_a_second_run_of_the_default_pipeline_changes_nothing(case: Case) -> None:
    graph = measured(case, "default").result.graph

    assert optimize(graph) == graph

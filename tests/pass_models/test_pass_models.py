"""Small models of every kind through every pipeline, in checked mode: what can be folded or fused, is."""

from collections import Counter

import pytest

from npu_passes import optimize
from tests.pass_models.cases import CASES, FUSED, Case
from tests.pass_models.measuring import PIPELINES, measure
from tests.support.tiers import thin


@pytest.mark.parametrize("case", thin(CASES, 4, lambda case: case.name))
def test_every_pipeline_keeps_what_a_model_computes_and_folds_and_fuses_all_it_can(case: Case) -> None:
    outcomes = {pipeline: measure(case, pipeline, whole=False) for pipeline in PIPELINES}

    for pipeline, outcome in outcomes.items():
        assert outcome.result.converged, pipeline
        assert outcome.error <= 1e-4, pipeline
        assert outcome.result.after.nodes <= outcome.result.before.nodes, pipeline
    norms_before, norms_after = outcomes["default"].norms
    assert norms_after == 0
    assert bool(norms_before) is bool(case.norms)
    fused = Counter(node.op_type for node in outcomes["fuse"].result.graph.nodes)
    assert tuple(fused[op_type] for op_type in FUSED) == case.fused
    assert fused["aten.softmax.int"] == 0
    graph = outcomes["default"].result.graph
    assert optimize(graph) == graph, "a second run changes nothing"

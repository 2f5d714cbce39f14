"""Every model of the corpus gives the same answer on the executor as in eager mode."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from npu_ir import Graph
from npu_ir.core.structure import unflatten
from npu_runtime import IRExecutor
from tests.support.corpus import journey
from tests.support.corpus.case import Case
from tests.support.corpus.tables import all_cases

cases = pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in all_cases()])


def execute(
    graph: Graph,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    weights: Mapping[str, torch.Tensor],
    constants: Mapping[str, torch.Tensor],
    return_mutations: bool,
) -> Any:
    """Run a graph as `npu_ir.execute_ir` does, compiled, and once more node by node: both must agree."""
    assert return_mutations
    executor = IRExecutor(graph, weights, constants=constants, passes=None)
    random_state = torch.get_rng_state()
    leaves, mutations = executor.run_flat(args, kwargs)
    executor.reset()
    after = torch.get_rng_state()
    torch.set_rng_state(random_state)
    run = executor.run(args, kwargs)
    assert torch.equal(torch.get_rng_state(), after)
    results = unflatten(graph.results[0], leaves)
    journey.assert_same(run.results, results, "the result node by node")
    journey.assert_same(dict(run.mutations), mutations, "what is updated node by node")
    return results, mutations


@pytest.mark.captured_once
@cases
def test_the_executor_computes_what_eager_computes(case: Case) -> None:
    expected, graph = journey.eager_and_graph(case)

    journey.check_execution(case, [graph], expected, execute)

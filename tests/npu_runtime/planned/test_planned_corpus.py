"""Every other fixed-size model of the corpus runs twice over planned memory, equal to eager."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
import torch

from npu_ir import Graph, GraphError
from npu_ir.core.node import external_names
from npu_ir.core.structure import unflatten
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs
from npu_runtime.planned import PlannedProgram, plan
from tests.support.corpus import journey
from tests.support.corpus.case import Case
from tests.support.corpus.tables import all_cases

cases = pytest.mark.parametrize("case", [pytest.param(case, id=case.id) for case in all_cases()[::2]])


def fixed(graph: Graph, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Graph:
    """Return the graph with the sizes that a call has."""
    symbols = SymbolValues(graph.symbols)
    bind_inputs(graph, args, kwargs, symbols)
    return graph.specialize({name: size for name, size in symbols.values.items() if name in graph.symbols})


def execute(
    graph: Graph,
    args: Sequence[Any] = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    weights: Mapping[str, torch.Tensor],
    constants: Mapping[str, torch.Tensor],
    return_mutations: bool,
) -> Any:
    assert return_mutations
    kwargs = kwargs or {}
    graph = fixed(graph, args, kwargs) if graph.symbols else graph
    if graph.symbols:
        with pytest.raises(GraphError, match="memory is planned for fixed sizes only"):
            plan(graph)
        pytest.skip("sizes depend on data")
    copies: dict[int, torch.Tensor] = {}
    held = [
        {name: copies.setdefault(id(tensor), _copy(tensor)) for name, tensor in source.items()}
        for source in (weights, constants)
    ]
    program = PlannedProgram(plan(graph), held[0], constants=held[1])
    before = {value: program.state_of(value) for value in graph.updates}
    contents = {value: item.clone() for value, item in before.items()}
    random_state = torch.get_rng_state()
    runs = []
    for _ in range(2):
        torch.set_rng_state(random_state)
        for value, item in before.items():
            item.copy_(contents[value])
        leaves = program.run(*program.load(tuple(args), kwargs))
        results = [item.clone() if isinstance(item, torch.Tensor) else item for item in leaves]
        mutations = {name: item.clone() for value, item in before.items() for name in external_names(value)}
        runs.append((unflatten(graph.results[0], results), mutations))
    journey.assert_same(runs[1], runs[0], "the second run")
    return runs[0]


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().clone() if isinstance(tensor, torch.Tensor) else tensor


@pytest.mark.captured_once
@cases
def test_a_planned_program_computes_what_eager_computes(case: Case) -> None:
    expected, graph = journey.eager_and_graph(case)

    journey.check_execution(case, [graph], expected, execute)

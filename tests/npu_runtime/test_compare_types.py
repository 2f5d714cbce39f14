"""Comparing two sides: dtypes, shapes, strides, NaN, and what kinds of numbers there are."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, execute_ir, extract_ir, parse_ir
from npu_ir.ops import register_executor, unregister_executor
from npu_runtime.diagnostics.compare import compare, float64
from tests.npu_runtime.compare_cases import GELU, SIN, Block, graph_of
from tests.support.corpus.case import Function


@pytest.mark.parametrize(("factor", "is_blamed"), [(1.001, False), (1.05, True)])
def test_bfloat16_is_held_to_its_own_tolerance(factor: float, is_blamed: bool) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU()).to(torch.bfloat16)
    x = torch.randn(4, 8).to(torch.bfloat16)
    graph = extract_ir(model, (x,))
    register_executor(GELU)(lambda inputs, attrs: [torch.nn.functional.gelu(inputs[0]) * factor])
    try:
        found = compare(model, graph, (x,))
    finally:
        unregister_executor(GELU)

    gelu = next(row for row in found.rows if row.name == "gelu")
    assert (gelu.type, gelu.diverges) == ("bf16[4, 8]", is_blamed)
    assert gelu.difference.ulp is not None
    assert gelu.difference.ulp < 20


def test_a_float64_run_tells_how_exact_a_graph_is() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))

    found = compare(graph, float64(graph), (x,), weights=model.state_dict())

    with torch.no_grad():
        expected = model.double()(x.double())
        error = (graph_result := compare_result(graph, model, x)) - expected
    result = found.rows[-1]
    assert graph_result.dtype == torch.float32
    assert result.difference.max_abs == pytest.approx(float(error.abs().max()), rel=1e-6)
    assert result.noise_floor is None
    assert found.b == "float64 run of 'Block'"


def compare_result(graph: Graph, model: nn.Module, x: Tensor) -> Tensor:
    weights = {name: item.float() for name, item in model.state_dict().items()}
    result: Tensor = execute_ir(graph, (x,), weights=weights)
    return result


def test_integers_and_truth_values_are_exact() -> None:
    def counted(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x > 0).sum(), x > 0

    x = torch.randn(8)
    register_executor("aten.gt.Scalar")(lambda inputs, attrs: [inputs[0] >= -100])
    try:
        found = compare(Function(counted), graph_of(counted, x), (x,))
    finally:
        unregister_executor("aten.gt.Scalar")

    assert found.first_divergence is not None
    assert found.first_divergence.name.startswith("gt")
    assert found.first_divergence.type == "bool[8]"
    assert "elements differ" in str(found.first_divergence.problem)


def test_complex_numbers_are_compared() -> None:
    def turned(x: Tensor) -> Tensor:
        return torch.fft.fft(x) * 2

    x = torch.randn(8)
    graph = graph_of(turned, x)
    wrong = parse_ir(str(graph).replace("{other=2}", "{other=2.002}"))

    assert compare(Function(turned), graph, (x,)).ok
    found = compare(graph, wrong, (x,))
    assert found.first_divergence is not None
    assert found.first_divergence.type == "c64[8]"
    assert found.first_divergence.difference.max_rel == pytest.approx(1e-3, rel=0.1)


def test_a_nan_on_one_side_is_a_divergence_whatever_the_tolerance() -> None:
    graph = graph_of(lambda x: x.sin() + 1, torch.ones(4))
    register_executor(SIN)(
        lambda inputs, attrs: [inputs[0].sin().index_fill(0, torch.tensor([1]), torch.nan)]
    )
    try:
        found = compare(Function(lambda x: x.sin() + 1), graph, (torch.ones(4),), rtol=1e9, atol=1e9)
    finally:
        unregister_executor(SIN)

    assert found.first_divergence is not None
    assert found.first_divergence.name == "sin"
    assert found.first_divergence.problem == "1 of 4 elements are NaN or infinite on one side only"
    json.dumps(found.to_dict(), allow_nan=False)


def test_the_same_nan_on_both_sides_agrees() -> None:
    x = torch.tensor([1.0, -1.0])

    assert compare(Function(lambda x: x.log()), graph_of(lambda x: x.log(), x), (x,)).ok


def test_other_strides_than_both_graphs_state_are_a_divergence() -> None:
    x = torch.randn(3, 4)
    graph = graph_of(lambda x: x.sin() * 2, x)
    calls: list[int] = []

    def sin(inputs: Any, attrs: Any) -> Any:
        calls.append(1)
        return [inputs[0].sin() if len(calls) == 1 else inputs[0].t().contiguous().sin().t()]

    register_executor(SIN)(sin)
    try:
        found = compare(graph, graph, (x,))
    finally:
        unregister_executor(SIN)

    assert found.first_divergence is not None
    assert found.first_divergence.name == "sin"
    assert found.first_divergence.problem == "b gave strides [1, 3], a [4, 1]"


def test_a_module_promises_no_strides() -> None:
    class TwoFaced(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sin() if torch.compiler.is_exporting() else x.t().contiguous().sin().t()

    x = torch.randn(3, 4)

    assert compare(TwoFaced(), extract_ir(TwoFaced(), (x,)), (x,)).ok


def test_another_shape_in_a_result_is_a_divergence_at_once() -> None:
    x = torch.randn(4)

    found = compare(graph_of(lambda x: x + 1, x), graph_of(lambda x: (x + 1)[None], x), (x,))

    assert found.first_divergence is not None
    assert found.first_divergence.problem == "b gave f32[1, 4], a f32[4]"


def test_memory_that_nothing_has_filled_is_not_compared() -> None:
    def filled(x: Tensor) -> Tensor:
        made = x.new_empty(3, 4)
        made[:2] = x
        made[2] = 0
        return made + 1

    x = torch.randn(2, 4)
    graph = graph_of(filled, x)
    assert any("empty" in node.op_type for node in graph.nodes)

    found = compare(Function(filled), graph, (x,))

    assert found.ok, str(found)
    assert not any("empty" in row.op or "scatter" in row.op for row in found.values)
    assert any(row.name.startswith("add") for row in found.values)


def test_sparse_results_are_compared() -> None:
    x = torch.eye(3)
    graph = graph_of(lambda x: (x * 2).to_sparse(), x)

    assert compare(Function(lambda x: (x * 2).to_sparse()), graph, (x,)).ok
    found = compare(Function(lambda x: (x * 3).to_sparse()), graph, (x,))
    assert found.first_divergence is not None
    assert found.first_divergence.difference.max_abs == 1.0

"""Comparisons: the first divergence, refusals, types and strides."""

import copy
import json
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import TensorType, VerificationError, WeightError, execute_ir, extract_ir, parse_ir
from npu_passes import PassManager, optimize
from npu_runtime.diagnostics.compare import compare, float64
from npu_runtime.diagnostics.compare.sides import ModuleSide
from npu_runtime.executor.executor import IRExecutor
from tests.npu_runtime.diagnostics.compare.cases import (
    GELU,
    SIN,
    Block,
    Counting,
    ReluToNeg,
    divergence,
    graph_of,
)
from tests.support.corpus.case import Function


@pytest.mark.parametrize("runs_compiled", [False, True], ids=["interpreter", "executor"])
def test_a_wrong_executor_is_named_with_its_line_though_later_values_differ_more(
    runs_compiled: bool, register: Any
) -> None:
    register(GELU, lambda inputs, attrs: [torch.nn.functional.gelu(inputs[0]) * 1.001])
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))

    found = compare(
        model, IRExecutor(graph, model.state_dict(), passes="default") if runs_compiled else graph, (x,)
    )

    first = divergence(found)
    assert (first.name, first.op) == ("gelu", GELU)
    assert "compare/cases.py:" in first.source
    assert first.difference.max_rel == pytest.approx(1e-3, rel=0.1)
    later = {row.name: row.difference.max_abs for row in found.rows}
    assert later["sin"] > 10 * later["gelu"]
    assert "first divergence: %gelu, aten.gelu.default, in " in str(found)
    assert re.search(r"\na and b differ in \d of 5 values, 1 of 1 result\n", str(found)), str(found)


def test_a_wrong_rewrite_is_named_on_either_side() -> None:
    graph, x = graph_of(lambda x: (x.sin().relu() * 100).cos(), torch.randn(8)), (torch.randn(8),)
    wrong = PassManager([ReluToNeg]).run(graph).graph

    found, turned = compare(graph, wrong, x), compare(wrong, graph, x)

    first = divergence(found)
    assert (first.name, first.counterpart, first.counterpart_op) == ("relu", "neg", "aten.neg.default")
    assert "(b: %neg, aten.neg.default)" in str(found)
    assert [row.name for row in found.rows if row.diverges] == ["relu", "mul", "cos", "result"]
    assert (divergence(turned).name, divergence(turned).counterpart) == ("neg", "relu")


def test_what_differs_only_downstream_of_the_tolerance_is_said_to_begin_earlier(register: Any) -> None:
    register(SIN, lambda inputs, attrs: [inputs[0].sin() + 5e-6])

    found = compare(
        Function(lambda x: x.sin() * 1000),
        graph_of(lambda x: x.sin() * 1000, torch.ones(4)),
        (torch.ones(4),),
    )

    assert divergence(found).name == "mul"
    assert "within the tolerance, but beyond rounding, before: %sin" in str(found)


def test_a_module_whose_graph_departs_from_it_is_said_so() -> None:
    def two_faced(x: Tensor) -> Tensor:
        return x + 1 if torch.compiler.is_exporting() else x + 2

    x = torch.randn(4)

    found = compare(Function(two_faced), graph_of(two_faced, x), (x,))

    assert [row.kind for row in found.rows if row.diverges] == ["result"]
    assert "eager Function is not what its captured graph computes: result" in str(found)


def test_the_report_is_json_data() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))

    data = compare(model, optimize(graph, "fuse"), (x,)).to_dict()

    assert json.loads(json.dumps(data, allow_nan=False)) == data
    assert data["ok"] is True
    assert data["first_divergence"] is None
    assert {"name", "ulp", "max_abs", "max_rel", "snr_db", "noise_floor"} <= data["rows"][0].keys()


def failing(x: Tensor) -> Tensor:
    if not torch.compiler.is_exporting():
        raise ValueError("not today")
    return x + 1


@pytest.mark.parametrize(("given", "message"), [
    ({"b": "executor"}, r"side b is str.*\n.*give an nn.Module, a Graph, an IRExecutor"),
    ({"b": Function(failing)}, "the model fails on these inputs: ValueError: not today"),
    ({"b": graph_of(lambda x: (x + 1, x), torch.ones(4))}, r"gives result, .* result\[0\], result\[1\]"),
    ({"inputs": (torch.ones(5),)}, r"interpreter of 'Function' does not take these inputs: .*f32\[5\]"),
    ({"inputs": {}}, "the positional arguments are a tuple, not dict"),
    ({"inputs": torch.ones(4)}, "the positional arguments are a tuple, not Tensor"),
    ({"rtol": -1.0}, "rtol is a number from 0 on, not -1"),
    ({"atol": float("nan")}, "atol is a number from 0 on, not nan"),
])  # fmt: skip
def test_what_cannot_be_compared_is_refused(given: dict[str, Any], message: str) -> None:
    graph = graph_of(lambda x: x + 1, torch.randn(4))

    with pytest.raises(VerificationError, match=message):
        compare(**{"a": graph, "b": graph, "inputs": (torch.randn(4),), **given})


def test_a_model_that_lacks_a_layer_of_the_weights_is_told_so() -> None:
    deep, shallow = (torch.nn.Sequential(*(torch.nn.Linear(4, 4) for _ in range(count))) for count in (2, 1))
    x = torch.randn(1, 4)

    with pytest.raises(
        VerificationError, match=r"fix: the model has no 1\.weight: give a model of these weights"
    ):
        compare(shallow, extract_ir(deep, (x,)), (x,), weights=deep.state_dict())


def test_weights_that_no_side_knows_are_refused() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))

    with pytest.raises(WeightError, match="unexpected: other"):
        compare(graph, graph, (x,), weights={**model.state_dict(), "other": x})
    with pytest.raises(WeightError, match=r"missing: linear.weight"):
        compare(graph, graph, (x,))


def test_an_update_that_the_model_has_no_name_for_is_refused() -> None:
    model, x = Counting(), torch.rand(2)
    side = ModuleSide(model, (x,), {}, {})
    side.graph.set_update(side.graph.buffers["count"], None)
    unknown = side.graph.add_buffer("unknown", TensorType.of(x))
    side.graph.set_update(unknown, side.graph.outputs[0])

    with pytest.raises(
        VerificationError,
        match=(
            r"updates 'unknown', and the model has no parameter or buffer .*\n"
            r".*eager Counting\n.*read the tensor from"
        ),
    ):
        side.run((x,), {}, None)


@pytest.mark.parametrize(("factor", "is_blamed"), [(1.001, False), (1.05, True)])
def test_bfloat16_is_held_to_its_own_tolerance(factor: float, is_blamed: bool, register: Any) -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU()).to(torch.bfloat16)
    x = torch.randn(4, 8).to(torch.bfloat16)
    graph = extract_ir(model, (x,))
    register(GELU, lambda inputs, attrs: [torch.nn.functional.gelu(inputs[0]) * factor])

    found = compare(model, graph, (x,))

    gelu = next(row for row in found.rows if row.name == "gelu")
    assert (gelu.type, gelu.diverges) == ("bf16[4, 8]", is_blamed)
    assert gelu.difference.ulp is not None
    assert gelu.difference.ulp < 20


def test_a_float64_run_tells_how_exact_a_graph_is() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph, weights = extract_ir(model, (x,)), copy.deepcopy(model.state_dict())

    found = compare(graph, float64(graph), (x,), weights=weights)

    single: Tensor = execute_ir(graph, (x,), weights=weights)
    error = (single - model.double()(x.double()).detach()).abs().max()
    result = found.rows[-1]
    assert single.dtype == torch.float32
    assert result.difference.max_abs == pytest.approx(float(error), rel=1e-6)
    assert result.noise_floor is None
    assert found.b == "float64 run of 'Block'"


def test_integers_and_truth_values_are_exact(register: Any) -> None:
    def counted(x: Tensor) -> tuple[Tensor, Tensor]:
        return (x > 0).sum(), x > 0

    x = torch.randn(8)
    register("aten.gt.Scalar", lambda inputs, attrs: [inputs[0] >= -100])

    found = compare(Function(counted), graph_of(counted, x), (x,))

    first = divergence(found)
    assert first.name.startswith("gt")
    assert first.type == "bool[8]"
    assert "elements differ" in str(first.problem)


def test_complex_numbers_are_compared() -> None:
    def turned(x: Tensor) -> Tensor:
        return torch.fft.fft(x) * 2

    x = torch.randn(8)
    graph = graph_of(turned, x)
    wrong = parse_ir(str(graph).replace("{other=2}", "{other=2.002}"))

    assert compare(Function(turned), graph, (x,)).ok
    found = compare(graph, wrong, (x,))
    first = divergence(found)
    assert first.type == "c64[8]"
    assert first.difference.max_rel == pytest.approx(1e-3, rel=0.1)


def test_a_nan_on_one_side_is_a_divergence_whatever_the_tolerance(register: Any) -> None:
    graph = graph_of(lambda x: x.sin() + 1, torch.ones(4))
    register(SIN, lambda inputs, attrs: [inputs[0].sin().index_fill(0, torch.tensor([1]), torch.nan)])

    found = compare(Function(lambda x: x.sin() + 1), graph, (torch.ones(4),), rtol=1e9, atol=1e9)

    first = divergence(found)
    assert first.name == "sin"
    assert first.problem == "1 of 4 elements are NaN or infinite on one side only"
    json.dumps(found.to_dict(), allow_nan=False)


def test_other_strides_than_both_graphs_state_are_a_divergence(register: Any) -> None:
    x = torch.randn(3, 4)
    graph = graph_of(lambda x: x.sin() * 2, x)
    calls: list[int] = []

    def sin(inputs: Any, attrs: Any) -> Any:
        calls.append(1)
        return [inputs[0].sin() if len(calls) == 1 else inputs[0].t().contiguous().sin().t()]

    register(SIN, sin)

    found = compare(graph, graph, (x,))

    first = divergence(found)
    assert first.name == "sin"
    assert first.problem == "b gave strides [1, 3], a [4, 1]"


def test_a_module_promises_no_strides() -> None:
    def two_faced(x: Tensor) -> Tensor:
        return x.sin() if torch.compiler.is_exporting() else x.t().contiguous().sin().t()

    x = torch.randn(3, 4)

    assert compare(Function(two_faced), graph_of(two_faced, x), (x,)).ok


def test_another_shape_in_a_result_is_a_divergence_at_once() -> None:
    x = torch.randn(4)

    found = compare(graph_of(lambda x: x + 1, x), graph_of(lambda x: (x + 1)[None], x), (x,))

    assert divergence(found).problem == "b gave f32[1, 4], a f32[4]"


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
    assert divergence(found).difference.max_abs == 1.0

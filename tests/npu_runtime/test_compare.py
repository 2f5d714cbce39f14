"""Comparing two sides: what is blamed, what is left to rounding, and what cannot be compared."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, VerificationError, WeightError, execute_ir, extract_ir, parse_ir
from npu_ir.ops import register_executor, unregister_executor
from npu_passes import Pass, PassManager, optimize
from npu_runtime.comparing import after_pass, compare, float64
from npu_runtime.executor import IRExecutor

GELU, SIN, RELU = "aten.gelu.default", "aten.sin.default", "aten.relu.default"


class Block(nn.Module):
    """A linear layer, an activation whose result is small, and a factor that makes differences large."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.nn.functional.gelu(self.linear(x))
        return (hidden * 1000).sin() + hidden


class Counting(nn.Module):
    """Has a buffer that each call changes, and takes an argument that it changes."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.register_buffer("secret", torch.ones(2), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        self.count.add_(x.relu())
        self.secret.mul_(2.0)
        return self.count + x + self.secret


class Function(nn.Module):
    """A module of a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def graph_of(function: Callable[..., Any], *args: Any) -> Graph:
    return extract_ir(Function(function), args)


class ReluToNeg(Pass):
    """Change what a graph computes."""

    name = "relu-to-neg"

    def run(self, graph: Graph) -> bool:
        found = list(graph.nodes_of(RELU))
        for node in found:
            with self.rewrite(graph, "to-neg", node) as edit:
                edit.replace(node.outputs[0], edit.call("aten.neg.default", node.inputs[0]))
        return bool(found)


@pytest.fixture
def wrong_gelu() -> Iterator[None]:
    """Register an executor of gelu that is off by a thousandth."""
    register_executor(GELU)(lambda inputs, attrs: [torch.nn.functional.gelu(inputs[0]) * 1.001])
    yield
    unregister_executor(GELU)


# What is blamed


@pytest.mark.usefixtures("wrong_gelu")
@pytest.mark.parametrize("make", [Graph.clone, IRExecutor], ids=["interpreter", "executor"])
def test_a_wrong_executor_is_named_with_its_line_though_later_values_differ_more(make: Any) -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))
    other = make(graph) if make is Graph.clone else make(graph, model.state_dict())

    found = compare(model, other, (x,))

    first = found.first_divergence
    assert first is not None
    assert (first.name, first.op) == ("gelu", GELU)
    assert first.source.startswith("test_compare.py:") or "test_compare.py:" in first.source
    assert first.difference.max_rel == pytest.approx(1e-3, rel=0.1)
    later = {row.name: row.difference.max_abs for row in found.rows}
    assert later["sin"] > 10 * later["gelu"]
    assert "first divergence: %gelu, aten.gelu.default, in " in str(found)


def test_a_wrong_rewrite_is_named() -> None:
    graph = graph_of(lambda x: (x.sin().relu() * 100).cos(), torch.randn(8))

    found = compare(graph, PassManager([ReluToNeg]).run(graph).graph, (torch.randn(8),))

    first = found.first_divergence
    assert first is not None
    assert (first.name, first.counterpart, first.counterpart_op) == ("relu", "neg", "aten.neg.default")
    assert "(b: %neg, aten.neg.default)" in str(found)
    assert [row.name for row in found.rows if row.diverges] == ["relu", "mul", "cos", "result"]


def test_what_differs_only_downstream_of_the_tolerance_is_said_to_begin_earlier() -> None:
    register_executor(SIN)(lambda inputs, attrs: [inputs[0].sin() + 5e-6])
    try:
        found = compare(
            Function(lambda x: x.sin() * 1000),
            graph_of(lambda x: x.sin() * 1000, torch.ones(4)),
            (torch.ones(4),),
        )
    finally:
        unregister_executor(SIN)

    assert found.first_divergence is not None
    assert found.first_divergence.name == "mul"
    assert "within the tolerance, but beyond rounding, before: %sin" in str(found)


def test_the_side_that_is_wrong_may_be_either() -> None:
    graph = graph_of(lambda x: x.relu() + 1, torch.randn(8))
    wrong = PassManager([ReluToNeg]).run(graph).graph

    found = compare(wrong, graph, (torch.randn(8),))

    assert found.first_divergence is not None
    assert (found.first_divergence.name, found.first_divergence.counterpart) == ("neg", "relu")


# What is left to rounding


def other_order(x: Tensor) -> Tensor:
    """Return sums of rows in another order than PyTorch's."""
    return x.flip(-1).cumsum(-1)[..., -1].contiguous()


def test_a_cancellation_is_not_blamed() -> None:
    # Sums of 4096 numbers around 1 cancel up to rounding: each side keeps other digits of the noise.
    def cancelled(x: Tensor) -> Tensor:
        return x.sum(-1) * 1000 - x.flip(-1).sum(-1) * 1000

    x = torch.rand(64, 4096)
    register_executor("aten.sum.dim_IntList")(lambda inputs, attrs: [other_order(inputs[0])])
    try:
        found = compare(Function(cancelled), graph_of(cancelled, x), (x,))
    finally:
        unregister_executor("aten.sum.dim_IntList")

    noisy = {row.name: row for row in found.rows if row.is_noise}
    assert found.ok, str(found)
    assert "sub" in noisy
    assert noisy["sub"].difference.max_rel > 0.1
    assert noisy["sub"].noise_floor is not None
    assert noisy["sub"].noise_floor.max > 1e-4
    assert "rounding explains them" in str(found)


def test_a_real_error_behind_a_cancellation_is_blamed() -> None:
    def cancelled(x: Tensor) -> Tensor:
        return ((x + 1000) - 1000).sin()

    x = torch.rand(64)
    register_executor(SIN)(lambda inputs, attrs: [inputs[0].sin() + 0.01])
    try:
        found = compare(Function(cancelled), graph_of(cancelled, x), (x,))
    finally:
        unregister_executor(SIN)

    assert found.first_divergence is not None
    assert found.first_divergence.name == "sin"


def test_the_variance_of_a_huge_mean_is_not_blamed() -> None:
    def spread(x: Tensor) -> Tensor:
        return (x * x).mean(-1) - x.mean(-1) ** 2

    def spread_in_other_order(inputs: Any, attrs: Any) -> Any:
        return [other_order(inputs[0]) / inputs[0].shape[-1]]

    x = torch.rand(32, 1000) + 300
    register_executor("aten.mean.dim")(spread_in_other_order)
    try:
        found = compare(Function(spread), graph_of(spread, x), (x,))
    finally:
        unregister_executor("aten.mean.dim")

    assert found.ok, str(found)
    assert any(row.is_noise for row in found.rows)


def test_without_the_float64_run_the_same_difference_is_blamed() -> None:
    def noisy(x: Tensor) -> Tensor:
        return (x.sum(-1) * 1000).to(torch.float32).view(torch.int32).view(torch.float32)

    x = torch.rand(64, 4096)
    register_executor("aten.sum.dim_IntList")(lambda inputs, attrs: [other_order(inputs[0])])
    try:
        found = compare(Function(noisy), graph_of(noisy, x), (x,))
    finally:
        unregister_executor("aten.sum.dim_IntList")

    assert found.first_divergence is not None
    assert found.first_divergence.op == "aten.view.dtype"
    assert "reads the bits of floats" in str(found)


# Dtypes, patterns, types


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


# What is compared


def test_sides_that_share_no_value_are_compared_in_their_results() -> None:
    x = torch.rand(8)

    found = compare(graph_of(lambda x: x.exp().log(), x), graph_of(lambda x: x * 1, x), (x,))

    assert found.ok
    assert [row.kind for row in found.rows] == [
        "value",
        "result",
    ]  # what both return is the one value they share
    alone = compare(graph_of(lambda x: x.exp() + 1, x), graph_of(lambda x: x, x), (x,))
    assert [row.kind for row in alone.rows] == ["result"]
    assert alone.first_divergence is not None


def test_inputs_may_be_nested_and_given_by_name() -> None:
    def mixed(pair: dict[str, Any], *, scale: Tensor) -> dict[str, Tensor]:
        return {"sum": pair["x"] + pair["rest"][0], "scaled": pair["x"] * scale}

    inputs = ({"x": torch.randn(4), "rest": [torch.randn(4)]},)
    kwargs = {"scale": torch.randn(4)}
    model = Function(mixed)

    found = compare(model, extract_ir(model, inputs, kwargs), inputs, kwargs)

    assert found.ok
    assert [row.name for row in found.rows if row.kind == "result"] == ["result['sum']", "result['scaled']"]


def test_buffers_that_change_are_compared_and_stay_as_they_are() -> None:
    model, x = Counting(), torch.tensor([1.0, -1.0])
    graph = extract_ir(model, (x,))
    executor = IRExecutor(graph, model.state_dict())
    executor(x)
    before = {name: item.clone() for name, item in executor.state_dict().items()}
    secret = {value.name: item.clone() for value, item in executor.weights().items()}

    found = compare(graph, executor, (x,))

    assert found.ok, str(found)
    assert [row.name for row in found.rows if row.kind == "update"] == ["count", "secret"]
    assert all(torch.equal(before[name], item) for name, item in executor.state_dict().items())
    assert all(torch.equal(secret[value.name], item) for value, item in executor.weights().items())
    assert torch.equal(model.count, torch.zeros(2))


def test_a_wrong_update_is_blamed() -> None:
    model, x = Counting(), torch.tensor([1.0, -1.0])
    graph = extract_ir(model, (x,))

    found = compare(model, PassManager([ReluToNeg]).run(graph).graph, (x,))

    assert [row.name for row in found.rows if row.diverges and row.kind == "update"] == ["count"]


def test_what_only_one_side_updates_is_a_divergence() -> None:
    model, x = Counting(), torch.tensor([1.0, -1.0])
    graph = extract_ir(model, (x,))
    other = graph.clone()
    other.set_update(other.buffers["count"], None)

    found = compare(model, other, (x,))

    assert [(row.name, row.problem) for row in found.rows if row.diverges] == [("count", "only a updates it")]


def test_nodes_with_several_outputs_are_compared_in_each() -> None:
    def halves(x: Tensor) -> Tensor:
        left, right = x.split(2)
        values, order = x.sort()
        return left + right + values[:2] + order[:2]

    x = torch.randn(4)

    found = compare(Function(halves), IRExecutor(graph_of(halves, x)), (x,))

    names = [row.name for row in found.values]
    assert found.ok, str(found)
    assert len([name for name in names if name.startswith("split")]) == 2
    assert len([name for name in names if name.startswith("sort")]) == 2


def test_dropout_draws_the_same_on_both_sides_and_the_random_state_stays() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.ReLU()), torch.randn(4, 8)
    graph = extract_ir(model, (x,))
    state = torch.get_rng_state()

    found = compare(model, IRExecutor(graph, model.state_dict()), (x,))

    assert found.ok, str(found)
    assert torch.equal(torch.get_rng_state(), state)
    relu = next(row for row in found.rows if row.op == RELU)
    assert relu.noise_floor is not None


def test_two_executors_are_compared_with_each_other() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))
    executors = [IRExecutor(graph, model.state_dict(), passes=passes) for passes in ("fuse", None)]

    found = compare(*executors, (x,))

    assert found.ok, str(found)
    assert found.a == "executor of 'Block'"


def test_an_executor_as_side_a_is_what_differences_are_relative_to() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))
    wrong = parse_ir(str(graph).replace("other=1000", "other=2000"))

    found = compare(IRExecutor(graph, model.state_dict()), wrong, (x,))

    assert found.first_divergence is not None
    assert found.first_divergence.difference.max_rel == pytest.approx(1.0)
    assert (found.a, found.b) == ("executor of 'Block'", "interpreter of 'Block'")


# Sides after passes


def test_the_graph_after_so_many_passes_is_a_side() -> None:
    graph = graph_of(lambda x: (x + 0).relu() + 1, torch.randn(4))
    x = (torch.randn(4),)
    passes = ["elim-identity", ReluToNeg]

    assert compare(graph, after_pass(graph, passes, 0), x).ok
    assert compare(graph, after_pass(graph, passes, 1), x).ok
    assert not compare(graph, after_pass(graph, passes, 2), x).ok
    assert not compare(graph, after_pass(graph, passes), x).ok
    assert after_pass(graph, passes, 1).name == f"{graph.name} after elim-identity, run 1"


def test_a_state_that_is_never_reached_is_refused() -> None:
    graph = graph_of(lambda x: x + 1, torch.randn(4))

    with pytest.raises(VerificationError, match=r"no state after 9 runs of passes.*\n.*\n.*in order: cse"):
        after_pass(graph, "cse", 9)
    with pytest.raises(VerificationError, match="no state after -1 runs"):
        after_pass(graph, "cse", -1)


# What cannot be compared


def test_what_is_no_side_is_refused() -> None:
    graph = graph_of(lambda x: x + 1, torch.randn(4))

    with pytest.raises(
        VerificationError, match=r"side b is str.*\n.*give an nn.Module, a Graph, an IRExecutor"
    ):
        compare(graph, "executor", (torch.randn(4),))


def test_other_inputs_than_a_side_takes_are_refused_before_anything_runs() -> None:
    graph = graph_of(lambda x: x + 1, torch.randn(4))
    other = graph_of(lambda x: x + 1, torch.randn(5))

    with pytest.raises(
        VerificationError, match=r"interpreter of 'Function' does not take these inputs: .*f32\[5\]"
    ):
        compare(graph, other, (torch.randn(4),))


def test_other_numbers_of_results_are_refused() -> None:
    graph = graph_of(lambda x: x + 1, torch.randn(4))
    other = graph_of(lambda x: (x + 1, x), torch.randn(4))

    with pytest.raises(VerificationError, match=r"gives result, .* result\[0\], result\[1\]"):
        compare(graph, other, (torch.randn(4),))


def test_inputs_that_are_no_sequence_are_refused() -> None:
    graph = graph_of(lambda x: x + 1, torch.randn(4))

    with pytest.raises(
        VerificationError, match="inputs are positional arguments, in a tuple or list, not dict"
    ):
        compare(graph, graph, {"x": torch.randn(4)})  # type: ignore[arg-type]
    assert compare(graph, graph, torch.randn(4)).ok  # type: ignore[arg-type]


def test_a_model_that_fails_is_named() -> None:
    def failing(x: Tensor) -> Tensor:
        if not torch.compiler.is_exporting():
            raise ValueError("not today")
        return x + 1

    x = torch.randn(4)

    with pytest.raises(VerificationError, match="the model fails on these inputs: ValueError: not today"):
        compare(Function(failing), graph_of(failing, x), (x,))


def test_weights_that_no_side_knows_are_refused() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))

    with pytest.raises(WeightError, match="unexpected: other"):
        compare(graph, graph, (x,), weights={**model.state_dict(), "other": x})
    with pytest.raises(WeightError, match=r"missing: linear.weight"):
        compare(graph, graph, (x,))


def test_a_graph_gets_the_weights_of_the_other_side() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))

    assert compare(model, graph, (x,)).ok
    assert compare(IRExecutor(graph, model.state_dict()), graph, (x,)).ok
    other = {name: item * 2 for name, item in model.state_dict().items()}
    assert compare(model, graph, (x,), weights=other).ok


# What is said


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


def test_a_module_that_is_there_twice_stays_as_it_is() -> None:
    norm = nn.BatchNorm2d(3)
    model, x = nn.Sequential(norm, nn.ReLU(), norm), torch.randn(2, 3, 4, 4)
    before = {name: id(item) for name, item in model.named_parameters(remove_duplicate=False)}
    content = {name: item.clone() for name, item in model.state_dict().items()}

    found = compare(model, extract_ir(model, (x,)), (x,))

    assert found.ok, str(found)
    assert len([row for row in found.rows if row.kind == "update"]) == 3
    assert {name: id(item) for name, item in model.named_parameters(remove_duplicate=False)} == before
    assert all(torch.equal(content[name], item) for name, item in model.state_dict().items())

"""The float64 run and the noise floor."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import Graph, Value, VerificationError, extract_ir, parse_ir
from npu_ir.core.symbol_values import SymbolValues
from npu_ir.graph.binding import bind_inputs, bind_weights
from npu_passes import Pass
from npu_runtime.diagnostics.compare import compare, float64
from npu_runtime.diagnostics.compare.float64_run import Float64Run, Missing, is_random_or_discontinuous
from npu_runtime.executor.executor import IRExecutor
from tests.npu_runtime.diagnostics.compare.cases import SIN, divergence, graph_of
from tests.support.corpus.case import Function
from tests.support.registration import registered

CPU = torch.device("cpu")


@torch.library.custom_op("npu_compare_tests::single_only", mutates_args=())
def single_only(x: Tensor) -> Tensor:
    """An op that refuses float64."""
    if x.dtype != torch.float32:
        raise ValueError("only float32 is supported")
    return x * 2


@single_only.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


def run_of(graph: Graph, *args: Any, weights: Mapping[str, Tensor] | None = None, **more: Any) -> Float64Run:
    bound = {**bind_weights(graph, weights), **bind_inputs(graph, args, {}, SymbolValues(graph.symbols))}
    names = [value.name for node in graph.nodes for value in node.outputs]
    return Float64Run(graph, bound, names, CPU, **more)


def result_of(function: Callable[..., Any], *args: Any, **more: Any) -> Any:
    graph = extract_ir(Function(function), args)
    return run_of(graph, *args, **more).take(graph.outputs[0])


def test_it_is_what_the_model_gives_in_float64() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3), nn.Softmax(-1))
    x = torch.randn(4, 8)
    graph = extract_ir(model, (x,))
    weights = {name: item.clone() for name, item in model.state_dict().items()}

    result = run_of(graph, x, weights=weights).take(graph.outputs[0])

    with torch.no_grad():
        assert torch.equal(result, model.double()(x.double()))


@pytest.mark.parametrize(("function", "expected"), [
    pytest.param(lambda x: x.to(torch.bfloat16) + 0, lambda x: x, id="to"),
    pytest.param(lambda x: x.half().float() * 1, lambda x: x, id="half_and_back"),
    pytest.param(lambda x: x + torch.full((3,), 0.1), lambda x: x + 0.1, id="full"),
    pytest.param(lambda x: x + torch.arange(3) / 7, lambda x: x + torch.arange(3).double() / 7,
        id="division"),
    pytest.param(lambda x: x.sum(dtype=torch.float32), lambda x: x.sum(), id="sum"),
    pytest.param(lambda x: x.to(torch.complex64) * 1j, lambda x: x * 1j, id="complex"),
    pytest.param(lambda x: x.to(torch.int32) + 1, lambda x: x.to(torch.int32) + 1, id="integer"),
    pytest.param(lambda x: x + torch.tensor([0.5, 1, 2]), lambda x: x + torch.tensor([0.5, 1, 2]),
        id="constant"),
])  # fmt: skip
def test_dtypes_that_a_graph_states_are_promoted(function: Any, expected: Any) -> None:
    x = torch.tensor([0.1, 2.7, -1.3])

    result, wanted = result_of(function, x), expected(x.double())

    assert result.dtype == wanted.dtype
    assert torch.equal(result, wanted)


def test_regions_run_in_float64_too() -> None:
    def chosen(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda x: x.sin() / 3, lambda x: x.cos(), (x,))[0] + 1

    x = torch.rand(4)

    assert torch.equal(result_of(chosen, x), (x.double().sin() / 3)[0] + 1)


def test_an_op_that_refuses_float64_is_named_and_what_depends_on_it_too() -> None:
    x = torch.randn(4)
    graph = extract_ir(Function(lambda x: (single_only(x) + 1, x.sin())), (x,))
    run = run_of(graph, x)

    lost, known = (run.take(value) for value in graph.outputs)

    assert isinstance(lost, Missing)
    assert "node 'single_only'" in lost.reason
    assert "fails in float64: " in lost.reason
    assert "only float32 is supported" in lost.reason
    assert set(run.missing) == {"single_only", "add"}
    assert torch.equal(known, x.double().sin())


def test_a_comparison_goes_without_the_noise_floor_there_and_says_so() -> None:
    x = torch.randn(4)
    model = Function(lambda x: single_only(x).sin())

    found = compare(model, extract_ir(model, (x,)), (x,))

    assert found.ok
    assert [row.noise_floor for row in found.rows] == [None, None, None]
    assert "no noise floor for 2 of the values: node 'single_only'" in str(found)


class ToSingle(Pass):
    """Put an op that refuses float64 in place of products."""

    name = "to-single"

    def run(self, graph: Graph) -> bool:
        found = list(graph.nodes_of("aten.mul.Tensor"))
        for node in found:
            with self.rewrite(graph, "single", node) as edit:
                edit.replace(
                    node.outputs[0], edit.call("npu_compare_tests.single_only.default", *node.inputs)
                )
        return bool(found)


@pytest.mark.parametrize("is_executor_first", [True, False])
def test_the_graph_that_passes_have_changed_least_runs_in_float64(is_executor_first: bool) -> None:
    x = torch.randn(4)
    graph = extract_ir(Function(lambda x: (x * 2).sin()), (x,))
    sides = [graph, IRExecutor(graph, passes=[ToSingle])]

    found = compare(*(reversed(sides) if is_executor_first else sides), (x,))

    assert found.ok
    assert found.notes == ()
    assert [row.name for row in found.rows if row.noise_floor is None] == []


def test_random_numbers_are_those_of_a_side() -> None:
    x = torch.randn(4)
    graph = extract_ir(Function(lambda x: torch.rand_like(x) + x), (x,))

    assert isinstance(run_of(graph, x).take(graph.outputs[0]), Missing)
    drawn = torch.rand(4)
    result = run_of(graph, x, given={"rand_like": drawn}).take(graph.outputs[0])
    assert torch.equal(result, drawn.double() + x.double())


def test_decisions_are_those_of_a_side() -> None:
    x = torch.tensor([0.1, -0.1])
    graph = extract_ir(Function(lambda x: torch.where(x > 0, x, x + 1) + x.round()), (x,))
    decided = {node.name for node in graph.nodes if is_random_or_discontinuous(node)}
    assert decided == {"gt", "round_1"}

    given = {"gt": torch.tensor([False, False]), "round_1": torch.tensor([1.0, 0.0])}
    result = run_of(graph, x, given=given).take(graph.outputs[0])

    assert torch.equal(result, x.double() + 1 + torch.tensor([1.0, 0.0]))


def test_the_bits_of_floats_are_not_known() -> None:
    lost = result_of(lambda x: x.view(torch.int32) + 1, torch.randn(3))

    assert isinstance(lost, Missing)
    assert "reads the bits of floats" in lost.reason


OWN = """
graph own {
  input %x: f32[2]
  %own: f32[2] = my_own_op(%x) {dtype=f32}
  %sin: f32[2] = aten.sin.default(%own)
  return %sin
}
"""


def test_a_registered_executor_runs_only_where_there_is_no_operator() -> None:
    graph, given = parse_ir(OWN), torch.tensor([1.0, 2.0])

    with (
        registered("my_own_op", lambda inputs, attrs: [inputs[0].to(attrs["dtype"]) / 3]),
        registered("aten.sin.default", lambda inputs, attrs: [inputs[0] * 0]),
    ):
        result = run_of(graph, given).take(graph.outputs[0])
    lost = run_of(graph, given).take(graph.outputs[0])

    assert torch.equal(result, (given.double() / 3).sin())
    assert isinstance(lost, Missing)
    assert "there is no operator my_own_op" in lost.reason


def test_rounding_moves_values_by_units_in_the_last_place() -> None:
    x = torch.rand(1000) + 1
    graph = extract_ir(Function(lambda x: (x * 3) - (x * 3 + 1000) + 1000), (x,))
    exact = run_of(graph, x).take(graph.outputs[0])
    rounded = run_of(graph, x, rounding=torch.Generator().manual_seed(0)).take(graph.outputs[0])

    error = (rounded - exact).abs()

    # A float32 around 1000 has units of 6e-5.
    assert 3e-5 < float(error.max()) < 2e-4


def test_a_float64_side_without_a_result_is_refused() -> None:
    x = torch.randn(4)
    model = Function(lambda x: single_only(x))
    graph = extract_ir(model, (x,))

    with pytest.raises(
        VerificationError, match=r"float64 run of 'Function' has no result: node 'single_only'"
    ):
        compare(graph, float64(graph), (x,))


def test_values_are_forgotten_when_nothing_needs_them_any_more() -> None:
    x = torch.randn(4)

    def many(x: Tensor) -> Tensor:
        for _ in range(50):
            x = x.sin()
        return x

    graph = extract_ir(Function(many), (x,))
    most = 0

    class Watched(Float64Run):
        def _release(self, values: Any) -> None:
            super()._release(values)
            nonlocal most
            most = max(most, len(self._values))

    run = Watched(graph, bind_inputs(graph, (x,), {}, SymbolValues({})), (), CPU)
    run.run_remaining(None)

    assert isinstance(run.take(graph.outputs[0]), Tensor)
    assert most <= 3


def test_a_value_that_was_not_wanted_is_not_there() -> None:
    x = torch.randn(4)
    graph = extract_ir(Function(lambda x: x.sin().cos()), (x,))
    run = Float64Run(graph, bind_inputs(graph, (x,), {}, SymbolValues({})), (), CPU)
    value: Value = graph.value("sin")
    run.run_remaining(None)

    assert run.take(value) == Missing("%sin was not kept")


def other_order(x: Tensor) -> Tensor:
    """Return sums of rows in another order than PyTorch's."""
    return x.flip(-1).cumsum(-1)[..., -1].contiguous()


def test_a_cancellation_is_not_blamed(register: Any) -> None:
    # Sums of 4096 numbers around 1 cancel up to rounding: each side keeps other digits of the noise.
    def cancelled(x: Tensor) -> Tensor:
        return x.sum(-1) * 1000 - x.flip(-1).sum(-1) * 1000

    x = torch.rand(64, 4096)
    register("aten.sum.dim_IntList", lambda inputs, attrs: [other_order(inputs[0])])

    found = compare(Function(cancelled), graph_of(cancelled, x), (x,))

    noisy = {row.name: row for row in found.rows if row.is_noise}
    assert found.ok, str(found)
    assert "sub" in noisy
    assert noisy["sub"].difference.max_rel > 0.1
    assert noisy["sub"].noise_floor is not None
    assert noisy["sub"].noise_floor.max > 1e-4
    assert "rounding explains them" in str(found)


def test_a_real_error_behind_a_cancellation_is_blamed(register: Any) -> None:
    def cancelled(x: Tensor) -> Tensor:
        return ((x + 1000) - 1000).sin()

    x = torch.rand(64)
    register(SIN, lambda inputs, attrs: [inputs[0].sin() + 0.01])

    found = compare(Function(cancelled), graph_of(cancelled, x), (x,))

    assert divergence(found).name == "sin"


def test_without_the_float64_run_the_same_difference_is_blamed(register: Any) -> None:
    def noisy(x: Tensor) -> Tensor:
        return (x.sum(-1) * 1000).to(torch.float32).view(torch.int32).view(torch.float32)

    x = torch.rand(64, 4096)
    register("aten.sum.dim_IntList", lambda inputs, attrs: [other_order(inputs[0])])

    found = compare(Function(noisy), graph_of(noisy, x), (x,))

    assert divergence(found).op == "aten.view.dtype"
    assert "reads the bits of floats" in str(found)

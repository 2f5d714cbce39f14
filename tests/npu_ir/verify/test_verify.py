"""Verification: what counts as equal, what a report says, and which node is blamed."""

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.profiler import ProfilerActivity, profile

from npu_ir import Graph, VerificationError, VerificationReport, WeightError, extract_ir, verify_ir
from npu_ir.core.tensor_bytes import same_data
from npu_ir.verify import Comparison, compare
from tests.support.corpus.case import Function
from tests.support.corpus.observation import appearance
from tests.support.random_graphs import DTYPES, random_bits
from tests.support.registration import registered
from tests.support.rows import each_row

INF, NAN = math.inf, math.nan
X = torch.tensor([[1.0, -2.0]])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_quantized_tensors_are_equal_where_the_numbers_are() -> None:
    def quantized(first: float, scale: float = 0.5) -> torch.Tensor:
        return torch.quantize_per_tensor(torch.tensor([first, 2.0]), scale, 0, torch.quint8)

    assert compare("x", quantized(1.0), quantized(1.0)).ok
    assert "1 of 2 elements differ" in str(compare("x", quantized(1.5), quantized(1.0)).problem)
    assert same_data(quantized(1.0), quantized(1.0))
    assert not same_data(quantized(1.0), quantized(1.0, scale=1.0))


@each_row("dtype", DTYPES)
def test_equal_bits_are_equal_and_others_differ_in_every_dtype(dtype: torch.dtype) -> None:
    zeros = torch.zeros(24 * dtype.itemsize, dtype=torch.uint8).view(dtype)
    ones = zeros.view(torch.uint8).clone()
    ones[-1] = 1 if dtype is torch.bool else 0x40  # of floats: the exponent

    report = compare("x", ones.view(dtype), zeros)

    assert compare("x", random_bits(dtype, 3), random_bits(dtype, 3)) == Comparison("x")
    assert not report.ok
    assert report.mismatches == 1
    assert "1 of 24 elements differ" in str(report.problem)


@each_row("actual, expected, is_equal", [
    (1.0, 1.0 + 1e-6, True), (1.0, 1.0 + 1e-3, False), (0.0, 5e-6, True), (1e10, 1e10 + 1e4, True),
    (NAN, NAN, True), (-INF, -INF, True), (1.0, NAN, False), (3e38, INF, False), (-INF, INF, False),
    (NAN, INF, False),
])  # fmt: skip
@each_row("dtype", [torch.float32, torch.complex64])
def test_floats_may_differ_a_little(
    actual: float, expected: float, is_equal: bool, dtype: torch.dtype
) -> None:
    got, want = torch.tensor([7.0, actual], dtype=dtype), torch.tensor([7.0, expected], dtype=dtype)

    report = compare("x", got, want)

    assert report.ok is is_equal
    assert report.mismatches == (0 if is_equal else 1)


@pytest.mark.smoke
def test_differences_are_taken_in_float64() -> None:
    large, half = torch.tensor([2.0**53], dtype=torch.float64), torch.tensor([65504.0], dtype=torch.float16)

    assert compare("x", large + 2, large, rtol=0, atol=1).max_abs == 2
    assert not compare("x", large + 2, large, rtol=0, atol=1).ok
    assert compare("x", half, -half).max_abs == 131008


def test_integers_are_exact() -> None:
    large = torch.tensor([2**62, 5])

    report = compare("x", large + torch.tensor([1, 0]), large)

    assert (report.mismatches, report.problem) == (1, "1 of 2 elements differ")
    assert math.isnan(report.max_abs)
    assert not compare("x", large + 1, large, rtol=1e9, atol=1e9).ok


def test_the_tolerance_is_that_of_the_dtype_unless_it_is_stated() -> None:
    ones = torch.ones(1)

    assert compare("x", (ones * 1.01).bfloat16(), ones.bfloat16()).ok
    assert not compare("x", ones * 1.01, ones).ok
    assert compare("x", ones * 1.01, ones, rtol=0.1).ok
    assert compare("x", ones * 1.01, ones, atol=0.1).ok
    assert not compare("x", ones.double() + 1e-6, ones.double()).ok
    assert not compare("x", ones + 1e-7, ones, 0.0, 0.0).ok


def test_a_report_tells_the_largest_differences() -> None:
    report = compare("x", torch.tensor([1.5, 3.0, 0.5]), torch.tensor([1.0, 2.0, 0.0]))

    assert (report.max_abs, report.max_rel, report.mismatches) == (1.0, 0.5, 3)
    assert str(report) == (
        "x: 3 of 3 elements differ by more than 1e-05 + 1.3e-06 * |expected|: max "
        "difference 1 absolute, 0.5 relative"
    )
    assert str(compare("x", torch.ones(1), torch.ones(1) + 1e-7)) == "x: max difference 1.19e-07"
    assert str(compare("x", torch.ones(1), torch.ones(1))) == "x: equal"


@each_row("actual, expected, problem", [
    (torch.ones(2), torch.ones(2).double(), "got f32[2], expected f64[2]"),
    (torch.ones(2), torch.ones(2, 1), "got f32[2], expected f32[2, 1]"),
    (torch.ones(0), torch.ones(0, 2), "got f32[0], expected f32[0, 2]"),
    (1.0, torch.ones(()), "got 1.0, expected f32[]"),
    (torch.ones(()), 1.0, "got f32[], expected 1.0"),
    (1, 1.0, "got 1, expected 1.0"),
    (True, 1, "got True, expected 1"),
    (None, 0, "got None, expected 0"),
    (torch.eye(2).to_sparse(), torch.eye(2), "got f32[2, 2]@sparse_coo, expected f32[2, 2]"),
    ("x" * 200, 0, "got '" + "x" * 79 + ", expected 0"),
])  # fmt: skip
def test_what_is_of_another_type_differs(actual: Any, expected: Any, problem: str) -> None:
    report = compare("x", actual, expected)

    assert report.problem == problem
    assert math.isnan(report.max_abs)


@each_row("value", [1, True, None, NAN, "text", torch.empty(0, 3), torch.arange(6.0).view(2, 3)])
def test_what_is_the_same_is_equal_however_it_is_laid_out(value: Any) -> None:
    other = value.t().contiguous().t() if isinstance(value, torch.Tensor) else value

    assert compare("x", other, value) == Comparison("x")


@given(st.floats(), st.floats())
def test_equality_is_that_of_isclose_for_finite_numbers_and_exact_otherwise(
    actual: float, expected: float
) -> None:
    got, want = torch.tensor([actual], dtype=torch.float64), torch.tensor([expected], dtype=torch.float64)
    wanted = torch.isclose(got, want, rtol=1e-7, atol=1e-7, equal_nan=True)

    assert compare("x", got, want).ok is bool(wanted)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(2, 3)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.5)
        self.last = nn.Linear(3, 2)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor, scale: float = 1.0) -> dict[str, Any]:
        self.count += 1
        return {"y": self.last(self.drop(torch.relu(self.norm(self.first(x))))) * scale, "n": 1}


def test_a_graph_agrees_with_its_model() -> None:
    model, x = Net(), torch.randn(4, 2)
    before, state = appearance(model), torch.get_rng_state()
    graph = extract_ir(model, (x,), {"scale": 2.0})

    report = verify_ir(graph, model, (x,), {"scale": 2.0})

    assert report.ok
    assert str(report) == "graph and model agree: 2 results and 4 mutations, max difference 0"
    assert [item.name for item in report.outputs] == ["result['y']", "result['n']"]
    updated = {"count", "norm.running_mean", "norm.running_var", "norm.num_batches_tracked"}
    assert {item.name for item in report.mutations} == updated
    assert appearance(model) == before
    assert torch.equal(torch.get_rng_state(), state)
    assert model.count == 0


def test_other_weights_take_the_place_of_the_models() -> None:
    model, meta = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2, bias=False)), nn.Linear(2, 2, device="meta")
    model[1].weight = model[0].weight
    graph, bias = extract_ir(model, (X,)), torch.zeros(2)

    for name in ("0.weight", "1.weight"):
        assert verify_ir(graph, model, (X,), weights={name: torch.eye(2), "0.bias": bias}).ok
    assert verify_ir(extract_ir(meta, (X,)), meta, (X,), weights={"weight": torch.eye(2), "bias": bias}).ok
    with pytest.raises(WeightError, match="unexpected: wieght"):
        verify_ir(graph, model, (X,), weights={"wieght": torch.eye(2)})


def test_the_model_of_another_graph_is_refused_with_the_weights_of_both() -> None:
    graph = extract_ir(nn.Sequential(nn.Linear(2, 2)), (X,))

    with pytest.raises(
        WeightError,
        match="captured from another model: it has weights 0.weight, 0.bias; the model has weight, bias",
    ):
        verify_ir(graph, nn.Linear(2, 2), (X,))


@each_row("args", [(), (torch.ones(1, 3),), (None,)])
def test_a_model_that_fails_is_named_with_its_error(args: tuple[Any, ...]) -> None:
    model = nn.Linear(2, 2)

    with pytest.raises(VerificationError, match="the model fails on these arguments: [A-Z][a-zA-Z]+Error: "):
        verify_ir(extract_ir(model, (X,)), model, args)


def test_the_arguments_stay_as_they_were() -> None:
    model, x = Function(lambda x, y: x.add_(y)), torch.ones(2)
    graph = extract_ir(model, (x, x.clone()))

    report = verify_ir(graph, model, (x, torch.ones(2)))

    assert report.ok
    assert [item.name for item in report.mutations] == [graph.inputs[0].name]
    assert torch.equal(x, torch.ones(2))


def edited(model: nn.Module, edit: Callable[[Graph], Any], x: torch.Tensor = X) -> VerificationReport:
    graph = extract_ir(model, (x,))
    edit(graph)
    graph.check()
    return verify_ir(graph, model, (x,))


class Chain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(2, 2), nn.ReLU())

    def forward(self, x: torch.Tensor) -> Any:
        return torch.sigmoid(self.inner(x) + 1)


def test_the_first_wrong_node_is_blamed_with_its_module_and_line() -> None:
    report = edited(Chain(), lambda graph: graph.set_attrs(graph.node("add"), {"other": 2}))

    assert not report.ok
    divergence = report.first_divergence
    assert (divergence.node, divergence.compared) == ("add", 2)
    assert "test_verify.py:" in divergence.place
    assert str(report).startswith(
        "graph and model differ: 1 of 1 result\nresult: 2 of 2 elements differ by more than"
    )
    assert "first diverging node: node 'add', " in str(report)
    assert str(report).endswith("(2 values before it agree)")


@each_row("edit, said", [
    (lambda graph: setattr(graph.node("relu"), "_op_type", "aten.neg.default"), "node 'relu', inner.1, "),
    (lambda graph: graph.set_outputs(graph.value("relu")),
        "every node that could be compared agrees with the exported program"),
    (lambda graph: graph.set_outputs([graph.value("sigmoid")]),
        "the structure differs: expected a list of 1, got one value"),
])  # fmt: skip
def test_a_report_says_what_is_known_of_a_difference(edit: Callable[[Graph], Any], said: str) -> None:
    report = edited(Chain(), edit)

    assert not report.ok
    assert said in str(report)
    assert (report.first_divergence is None) == ("inner.1" not in said)


def test_a_node_that_only_an_executor_gets_wrong_is_blamed() -> None:
    with registered("aten.relu.default", lambda inputs, attrs: [inputs[0] + 0.5]):
        report = edited(Chain(), lambda graph: None)

    assert report.first_divergence.node == "relu"


class Counter(nn.Linear):
    def __init__(self) -> None:
        super().__init__(2, 2)
        self.register_buffer("count", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        self.count += 1
        return super().forward(x)


def negate_bias(graph: Graph) -> None:
    bias = graph.parameters["bias"]
    graph.set_update(bias, graph.insert("aten.neg.default", [bias], types=bias.type).outputs[0])


@each_row("edit, mutations", [
    (lambda graph: graph.set_update(graph.buffers["count"], None), {"count": False}),
    (lambda graph: graph.set_attrs(next(graph.nodes_of("aten.add.Tensor")), {"other": 2}), {"count": False}),
    (lambda graph: graph.set_update(graph.parameters["weight"], graph.parameters["weight"]),
        {"count": True, "weight": True}),
    (negate_bias, {"count": True, "bias": False}),
])  # fmt: skip
def test_mutations_are_those_of_the_model(edit: Callable[[Graph], Any], mutations: dict[str, bool]) -> None:
    report = edited(Counter(), edit)

    assert report.outputs[0].ok
    assert {item.name: item.ok for item in report.mutations} == mutations


def test_the_tolerance_can_be_stated() -> None:
    model = Function(lambda x: x * 2)
    graph = extract_ir(model, (X,))
    graph.set_attrs(graph.node("mul"), {"other": 2.001})

    assert not verify_ir(graph, model, (X,)).ok
    assert verify_ir(graph, model, (X,), rtol=1e-2).ok
    assert verify_ir(graph, model, (X,), atol=1e-2).max_abs == pytest.approx(0.002, rel=1e-3)


def test_randomness_is_the_same_on_both_sides() -> None:
    model = Function(
        lambda x: (torch.rand_like(x), nn.functional.dropout(x, 0.5, training=True), torch.randperm(50))
    )
    x = torch.ones(50)

    report = verify_ir(extract_ir(model, (x,)), model, (x,))

    assert report.ok
    assert report.max_abs == 0


@pytest.mark.filterwarnings("ignore:Sparse CSR")
@each_row("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_results_are_compared_by_their_values(layout: torch.layout) -> None:
    x = torch.tensor([[0.0, 1.0], [2.0, 0.0]])
    graph = extract_ir(Function(lambda x: (x * 2).to_sparse(layout=layout)), (x,))

    same = verify_ir(graph, Function(lambda x: (x + x).to_sparse(layout=layout)), (x,))
    other = verify_ir(graph, Function(lambda x: (x * 3).to_sparse(layout=layout)), (x,))

    assert same.ok
    assert "result: 2 of 4 elements differ" in str(other)


@each_row("wrong, said", [
    ((0, 1), "graph and model differ: 0 of 1 result and 1 of 2 mutations\n"),
    ((1, 0), "graph and model differ: 1 of 1 result and 0 of 2 mutations\n"),
])  # fmt: skip
def test_a_report_says_how_many_of_what_differ(wrong: tuple[int, int], said: str) -> None:
    good, bad = Comparison("good"), Comparison("bad", "got 1, expected 2")
    outputs = (bad if wrong[0] else good,)
    mutations = (good, bad if wrong[1] else good)

    assert str(VerificationReport(outputs, mutations)).startswith(said)


@each_row("copies, other", [
    (set(), torch.tensor([1.0, NAN, -0.0])),
    ({"aten::copy_", "aten::sub"}, torch.tensor([1.0 + 1e-7, NAN, -0.0])),
])  # fmt: skip
def test_tensors_are_copied_to_float64_only_where_they_differ(copies: set[str], other: torch.Tensor) -> None:
    weight = torch.tensor([1.0, NAN, -0.0])

    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        assert compare("weight", other, weight).ok

    calls = {event.key for event in profiler.key_averages()}
    assert "aten::equal" in calls
    assert calls & {"aten::copy_", "aten::sub"} == copies

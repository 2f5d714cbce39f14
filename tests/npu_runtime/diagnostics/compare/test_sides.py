"""Comparing two sides: what of them is compared, and that they stay as they are."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from npu_ir import VerificationError, extract_ir, parse_ir
from npu_passes import PassManager
from npu_runtime.diagnostics.compare import after_pass, compare
from npu_runtime.executor.executor import IRExecutor
from tests.npu_runtime.diagnostics.compare.cases import RELU, Block, Counting, ReluToNeg, divergence, graph_of
from tests.support.corpus.case import Function


def test_sides_that_share_no_value_are_compared_in_their_results() -> None:
    x = torch.rand(8)

    found = compare(graph_of(lambda x: x.exp().log(), x), graph_of(lambda x: x * 1, x), (x,))

    assert found.ok
    assert [row.kind for row in found.rows] == ["result"]
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

    found = compare(Function(halves), IRExecutor(graph_of(halves, x), passes="default"), (x,))

    names = [row.name for row in found.values]
    assert found.ok, str(found)
    assert len([name for name in names if name.startswith("split")]) == 2
    assert len([name for name in names if name.startswith("sort")]) == 2


def test_dropout_draws_the_same_on_both_sides_and_the_random_state_stays() -> None:
    model, x = nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.5), nn.ReLU()), torch.randn(4, 8)
    graph = extract_ir(model, (x,))
    state = torch.get_rng_state()

    found = compare(model, IRExecutor(graph, model.state_dict(), passes="default"), (x,))

    assert found.ok, str(found)
    assert torch.equal(torch.get_rng_state(), state)
    relu = next(row for row in found.rows if row.op == RELU)
    assert relu.noise_floor is not None


def test_an_executor_as_side_a_is_what_differences_are_relative_to() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))
    wrong = parse_ir(str(graph).replace("other=1000", "other=2000"))

    found = compare(IRExecutor(graph, model.state_dict(), passes="default"), wrong, (x,))

    assert divergence(found).difference.max_rel == pytest.approx(1.0)
    assert (found.a, found.b) == ("executor of 'Block'", "interpreter of 'Block'")


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


def test_a_graph_gets_the_weights_of_the_other_side() -> None:
    model, x = Block(), torch.randn(4, 8)
    graph = extract_ir(model, (x,))

    assert compare(model, graph, (x,)).ok
    assert compare(IRExecutor(graph, model.state_dict()), graph, (x,)).ok
    other = {name: item * 2 for name, item in model.state_dict().items()}
    assert compare(model, graph, (x,), weights=other).ok

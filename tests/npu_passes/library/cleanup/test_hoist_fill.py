"""hoist-fill: tensors that are full of one number depend on no other tensor."""

from __future__ import annotations

import pytest
import torch

from npu_ir import Graph, parse_ir
from npu_passes import PassManager, PassResult, parse_passes
from npu_passes.library.cleanup.hoist_fill import HoistFill
from npu_passes.testing import check_pass
from tests.support.passes.training_graphs import data_of, ops, step_graph


def filled(line: str, type: str = "f32[2, 3]") -> Graph:
    """Return a graph that adds what a line makes to its input."""
    return parse_ir(
        f"""
        graph g {{
          input %x: {type}

          %out: {type} = {line}
          %sum: {type} = aten.add.Tensor(self=%x, other=%out)

          return %sum
        }}
        """
    )


def run(graph: Graph) -> PassResult:
    return PassManager([HoistFill]).run(graph)


def test_a_tensor_of_one_number_is_made_by_itself(subtests: pytest.Subtests) -> None:
    rows = [
        "aten.ones_like.default(self=%x)",
        "aten.zeros_like.default(self=%x)",
        "aten.full_like.default(self=%x) {fill_value=2.5}",
        "aten.new_ones.default(self=%x) {size=[2, 3]}",
        "aten.new_zeros.default(self=%x) {size=[2, 3]}",
        "aten.new_full.default(self=%x) {size=[2, 3], fill_value=-1}",
        "aten.fill.Scalar(self=%x) {value=7}",
        "aten.zero.default(self=%x)",
    ]
    for line in rows:
        with subtests.test(line=line):
            graph = filled(line)

            assert check_pass(HoistFill, graph) == 1
            result = run(graph)
            assert ops(result.graph) == ["aten.full.default", "aten.add.Tensor"]
            assert result.graph.nodes[0].inputs == ()


def test_the_type_stays(subtests: pytest.Subtests) -> None:
    for type in ["f64[2, 3]", "f16[]", "i64[4]", "bool[2]"]:
        with subtests.test(type=type):
            line = (
                "aten.ones_like.default(self=%x)" if type != "bool[2]" else "aten.zeros_like.default(self=%x)"
            )

            assert check_pass(HoistFill, filled(line, type)) == 1


def test_what_is_empty_may_be_what_it_is_like() -> None:
    graph = parse_ir(
        """
        graph g {
          input %x: f32[2, 3]

          %empty: f32[2, 3] = aten.empty_like.default(self=%x)
          %mask: f32[2, 3] = aten.bernoulli.p(self=%empty) {p=0.5}
          %out: f32[2, 3] = aten.mul.Tensor(self=%x, other=%mask)

          return %out
        }
        """
    )

    assert check_pass(HoistFill, graph) == 1
    assert ops(run(graph).graph) == ["aten.bernoulli.p", "aten.mul.Tensor"]


def test_what_depends_on_more_stays(subtests: pytest.Subtests) -> None:
    rows = [
        (
            "aten.ones_like.default(self=%x)",
            "f32[2, 3, 4, 5]@channels_last",
            "it is not contiguous: f32[2, 3, 4, 5]@channels_last",
        ),
        ('aten.ones_like.default(self=%x) {device=device("cpu")}', "f32[2]", "it names a device"),
    ]
    for line, type, reason in rows:
        with subtests.test(line=line, type=type, reason=reason):
            graph = filled(line, type)

            assert check_pass(HoistFill, graph) == 0
            assert [item.reason for item in run(graph).journal.refusals] == [reason]


def test_open_sizes_stay() -> None:
    graph = parse_ir(
        """
        graph g {
          symbol s0 in [2, 64]
          input %x: f32[s0]

          %out: f32[s0] = aten.ones_like.default(self=%x)
          %sum: f32[s0] = aten.add.Tensor(self=%x, other=%out)

          return %sum
        }
        """
    )

    assert check_pass(HoistFill, graph) == 0
    assert [item.reason for item in run(graph).journal.refusals] == ["its size is open: f32[s0]"]


def test_a_number_that_the_call_tells_stays() -> None:
    graph = parse_ir(
        """
        graph g {
          input %x: f32[2]
          input %n: float
          call (%x, %n)

          %out: f32[2] = aten.full_like.default(self=%x, fill_value=%n)
          %sum: f32[2] = aten.add.Tensor(self=%x, other=%out)

          return %sum
        }
        """
    )

    reasons = [item.reason for item in run(graph).journal.refusals]

    assert reasons == ["its fill value is known only in a call"]


def test_what_the_graph_returns_is_made_in_each_call(subtests: pytest.Subtests) -> None:
    for op in ["ones_like", "empty_like"]:
        with subtests.test(op=op):
            graph = parse_ir(
                f"""
        graph g {{
          input %x: f32[2]

          %out: f32[2] = aten.{op}.default(self=%x)

          return %out
        }}
        """
            )

            result = run(graph)

            assert ops(result.graph) == [f"aten.{op}.default"]
            assert [item.reason for item in result.journal.refusals] == ["the graph returns it"]


def test_the_gradient_of_a_loss_by_itself_is_computed_once() -> None:
    graph = step_graph("sgd")

    folded = PassManager(parse_passes("hoist-fill,constant-folding")).run(graph).graph

    assert [node.op_type for node in folded.prologue] == ["aten.full.default"]
    assert "aten.ones_like.default" not in ops(folded)
    assert check_pass(HoistFill, graph, data=data_of(graph)) == 1
    assert torch.float32 == folded.prologue[0].outputs[0].tensor_type.dtype

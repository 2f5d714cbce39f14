"""hoist-fill: tensors that are full of one number depend on no other tensor."""

import pytest
import torch

from npu_ir import Graph
from npu_passes import PassManager, PassResult, parse_passes
from npu_passes.library.cleanup.hoist_fill import HoistFill
from npu_passes.testing import check_pass
from tests.support.passes.training_graphs import data_of, ops, step_graph
from tests.support.rows import each_row
from tests.support.small_programs import program


def filled(line: str, type: str = "f32[2, 3]", *declared: str) -> Graph:
    return program("\n".join([
        *declared,
        f"input %x: {type}",
        f"%out: {type} = {line}",
        f"%sum: {type} = aten.add.Tensor(self=%x, other=%out)",
        "return %sum",
    ]))  # fmt: skip


def run(graph: Graph) -> PassResult:
    return PassManager([HoistFill]).run(graph)


@each_row("line, type", [
    ("aten.ones_like.default(self=%x)", "f32[2, 3]"),
    ("aten.zeros_like.default(self=%x)", "f32[2, 3]"),
    ("aten.full_like.default(self=%x) {fill_value=2.5}", "f32[2, 3]"),
    ("aten.new_ones.default(self=%x) {size=[2, 3]}", "f32[2, 3]"),
    ("aten.new_zeros.default(self=%x) {size=[2, 3]}", "f32[2, 3]"),
    ("aten.new_full.default(self=%x) {size=[2, 3], fill_value=-1}", "f32[2, 3]"),
    ("aten.fill.Scalar(self=%x) {value=7}", "f32[2, 3]"),
    ("aten.zero.default(self=%x)", "f32[2, 3]"),
    ("aten.ones_like.default(self=%x)", "f64[2, 3]"),
    ("aten.ones_like.default(self=%x)", "f16[]"),
    ("aten.ones_like.default(self=%x)", "i64[4]"),
    ("aten.zeros_like.default(self=%x)", "bool[2]"),
])  # fmt: skip
def test_a_tensor_of_one_number_is_made_by_itself(line: str, type: str) -> None:
    graph = filled(line, type)

    assert check_pass(HoistFill, graph) == 1
    result = run(graph)
    assert ops(result.graph) == ["aten.full.default", "aten.add.Tensor"]
    assert result.graph.nodes[0].inputs == ()


def test_what_is_empty_may_be_what_it_is_like() -> None:
    graph = program("""
        input %x: f32[2, 3]
        %empty: f32[2, 3] = aten.empty_like.default(self=%x)
        %mask: f32[2, 3] = aten.bernoulli.p(self=%empty) {p=0.5}
        %out: f32[2, 3] = aten.mul.Tensor(self=%x, other=%mask)
        return %out
    """)

    assert check_pass(HoistFill, graph) == 1
    assert ops(run(graph).graph) == ["aten.bernoulli.p", "aten.mul.Tensor"]


def test_what_depends_on_more_stays(subtests: pytest.Subtests) -> None:
    ones = "aten.ones_like.default(self=%x)"
    last = "f32[2, 3, 4, 5]@channels_last"
    returned = "input %x: f32[2]\n%out: f32[2] = aten.{}_like.default(self=%x)\nreturn %out"
    rows = [
        (filled(ones, last), f"it is not contiguous: {last}"),
        (filled('aten.ones_like.default(self=%x) {device=device("cpu")}'), "it names a device"),
        (filled(ones, "f32[s0]", "symbol s0 in [2, 64]"), "its size is open: f32[s0]"),
        (
            filled("aten.full_like.default(self=%x, fill_value=%n)", "f32[2]", "input %n: float"),
            "its fill value is known only in a call",
        ),
        (program(returned.format("ones")), "the graph returns it"),
        (program(returned.format("empty")), "the graph returns it"),
    ]
    for graph, reason in rows:
        with subtests.test(reason=reason):
            result = run(graph)

            assert result.graph == graph
            assert [item.reason for item in result.journal.refusals] == [reason]


def test_the_gradient_of_a_loss_by_itself_is_computed_once() -> None:
    graph = step_graph("sgd")

    folded = PassManager(parse_passes("hoist-fill,constant-folding")).run(graph).graph

    assert [node.op_type for node in folded.prologue] == ["aten.full.default"]
    assert "aten.ones_like.default" not in ops(folded)
    assert check_pass(HoistFill, graph, data=data_of(graph)) == 1
    assert torch.float32 == folded.prologue[0].outputs[0].tensor_type.dtype

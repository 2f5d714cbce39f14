"""cse: what is computed several times is computed once, unless that could be noticed."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim

from npu_ir import Graph, execute_ir, extract_ir
from npu_passes import PassManager
from npu_passes.library.cleanup.cse import Cse
from tests.support.corpus.case import Function
from tests.support.rows import each_row
from tests.support.small_programs import program


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def two(first: str, second: str) -> Graph:
    """Return a graph with two nodes called a and b, whose sum it returns."""
    return program(f"""
        input %x: f32[2, 2]
        input %y: f32[2, 2]
        %a: f32[2, 2] = aten.{first}
        %b: {second if second.startswith("f32") else f"f32[2, 2] = aten.{second}"}
        %both: f32[2, 2] = aten.add.Tensor(self=%a, other=%b)
        return %both
    """)


SAME = [
    ("sin.default(self=%x)", "sin.default(self=%x)"),
    ("add.Tensor(self=%x, other=%y) {alpha=nan}", "add.Tensor(self=%x, other=%y) {alpha=nan}"),
    ("sum.dim_IntList(self=%x) {dim=[0], keepdim=True}", "sum.dim_IntList(self=%x) {keepdim=True, dim=[0]}"),
]
DIFFERENT = [
    ("sin.default(self=%x)", "sin.default(self=%y)"),
    ("sin.default(self=%x)", "f32[2, 2]@[1, 2] = aten.sin.default(self=%x)"),
    ("sub.Tensor(self=%x, other=%y)", "sub.Tensor(self=%y, other=%x)"),
    ("mul.Tensor(self=%x) {other=1}", "mul.Tensor(self=%x) {other=1.0}"),
    ("mul.Tensor(self=%x) {other=1}", "mul.Tensor(self=%x) {other=True}"),
    ("mul.Tensor(self=%x) {other=0.0}", "mul.Tensor(self=%x) {other=-0.0}"),
    ("bernoulli.default(self=%x)", "bernoulli.default(self=%x)"),
]


@pytest.mark.smoke
@each_row("first, second", SAME)
def test_nodes_that_compute_the_same_become_one(first: Any, second: Any) -> None:
    result = PassManager([Cse]).run(two(first, second))

    assert names(result.graph) == ["a", "both"]
    assert [item.nodes for item in result.journal.rewrites] == [("a", "b")]
    assert not Cse().run(result.graph)


@each_row("first, second", DIFFERENT)
def test_nodes_that_differ_stay(first: Any, second: Any) -> None:
    assert not Cse().run(two(first, second))


def test_two_results_of_the_graph_stay_two() -> None:
    graph = program("""
        input %x: f32[2]
        %a: f32[2] = aten.sin.default(self=%x)
        %b: f32[2] = aten.sin.default(self=%x)
        %c: f32[2] = aten.sin.default(self=%x)
        %d: f32[2] = aten.neg.default(self=%c)
        return (%a, %b, %d)
    """)

    result = PassManager([Cse]).run(graph)

    assert names(result.graph) == ["a", "b", "d"]
    assert [(item.node, item.reason) for item in result.journal.refusals] == [
        ("b", "it is a result of the graph, and would share the memory of another, %a")
    ]


def test_views_of_two_results_stay_apart() -> None:
    graph = program("""
        input %x: f32[2, 2]
        %a: f32[2, 2] = aten.sin.default(self=%x)
        %b: f32[2, 2] = aten.sin.default(self=%x)
        %u: f32[4] = aten.view.default(self=%a) {size=[4]}
        %v: f32[4] = aten.view.default(self=%b) {size=[4]}
        return (%u, %v)
    """)

    assert not Cse().run(graph)


def test_small_constants_of_the_same_bits_become_one() -> None:
    graph = program("""
        input %x: f32[2]
        const %c: f32[] = [0.0]
        const %d: f32[] = [0.0]
        const %e: f32[] = [-0.0]
        const %f: i32[] = [0]
        %a: f32[2] = aten.add.Tensor(self=%x, other=%c)
        %b: f32[2] = aten.add.Tensor(self=%a, other=%d)
        %g: f32[2] = aten.add.Tensor(self=%b, other=%e)
        %h: f32[2] = aten.add.Tensor(self=%g, other=%f)
        return %h
    """)

    Cse().run(graph)

    assert [node.inputs[1].name for node in graph.nodes] == ["c", "c", "e", "f"]


def test_a_node_of_the_body_becomes_that_of_the_prologue() -> None:
    graph = program("""
        input %x: f32[2]
        param %w: f32[2]
        prologue {
          %a: f32[2] = aten.sin.default(self=%w)
          %a2: f32[2] = aten.sin.default(self=%w)
          %c: f32[2] = aten.cos.default(self=%a2)
        }
        %b: f32[2] = aten.sin.default(self=%w)
        %d: f32[2] = aten.add.Tensor(self=%x, other=%b)
        %e: f32[2] = aten.add.Tensor(self=%d, other=%c)
        return %e
    """)

    Cse().run(graph)

    assert names(graph) == ["a", "c", "d", "e"]
    assert graph.node("d").inputs[1].name == "a"


def test_sizes_are_read_once_and_sizes_that_data_tells_stay() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = (x > 0).nonzero(), (x > 0).nonzero()
        return first.sum() * x.shape[0], second.sum() * x.shape[0]

    graph = extract_ir(Function(function), (torch.randn(3, 2),), dynamic_shapes=(({0: Dim("n", min=2)},),))

    Cse().run(graph)

    count = [node.op_type for node in graph.nodes].count
    assert count("aten.nonzero.default") == 2
    assert count("aten.gt.Scalar") == 1
    x = torch.randn(5, 2)
    assert all(map(torch.equal, execute_ir(graph, (x,)), function(x)))


def test_regions_are_merged_inside_and_their_nodes_stay() -> None:
    def choose(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda a: a.sin() + a.sin(), torch.cos, (x,))

    graph = extract_ir(Function(lambda x: choose(x) + choose(x)), (torch.ones(3),))

    result = PassManager([Cse]).run(graph).graph

    conds = [node for node in result.nodes if node.regions]
    assert [len(node.regions["true_fn"].nodes) for node in conds] == [2, 2]

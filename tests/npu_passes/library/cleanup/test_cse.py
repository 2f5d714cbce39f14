"""cse: what is computed several times is computed once, unless that could be noticed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.export import Dim

from npu_ir import Graph, execute_ir, extract_ir, parse_ir
from npu_passes import PassManager, PassResult
from npu_passes.library.cleanup.cse import Cse


def merged(text: str) -> PassResult:
    return PassManager([Cse]).run(parse_ir(text))


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def two(first: str, second: str) -> str:
    """Return a graph with two nodes called a and b, whose sum it returns."""
    return f"""
        graph g {{
          input %x: f32[2, 2]
          input %y: f32[2, 2]

          %a: {first}
          %b: {second}
          %both: f32[2, 2] = aten.add.Tensor(self=%a, other=%b)

          return %both
        }}
        """


SAME = [
    ("aten.sin.default(self=%x)", "aten.sin.default(self=%x)"),
    ("aten.add.Tensor(self=%x, other=%y) {alpha=nan}", "aten.add.Tensor(self=%x, other=%y) {alpha=nan}"),
    (
        "aten.sum.dim_IntList(self=%x) {dim=[0], keepdim=True}",
        "aten.sum.dim_IntList(self=%x) {keepdim=True, dim=[0]}",
    ),
]
DIFFERENT = [
    ("aten.sin.default(self=%x)", "aten.sin.default(self=%y)"),
    ("aten.sub.Tensor(self=%x, other=%y)", "aten.sub.Tensor(self=%y, other=%x)"),
    ("aten.mul.Tensor(self=%x) {other=1}", "aten.mul.Tensor(self=%x) {other=1.0}"),
    ("aten.mul.Tensor(self=%x) {other=1}", "aten.mul.Tensor(self=%x) {other=True}"),
    ("aten.mul.Tensor(self=%x) {other=0.0}", "aten.mul.Tensor(self=%x) {other=-0.0}"),
    ("aten.bernoulli.default(self=%x)", "aten.bernoulli.default(self=%x)"),
]


def test_nodes_that_compute_the_same_become_one(subtests: pytest.Subtests) -> None:
    for first, second in SAME:
        with subtests.test(first=first, second=second):
            result = merged(two(f"f32[2, 2] = {first}", f"f32[2, 2] = {second}"))

            assert names(result.graph) == ["a", "both"]
            assert [item.nodes for item in result.journal.rewrites] == [("a", "b")]


def test_nodes_that_differ_stay(subtests: pytest.Subtests) -> None:
    for first, second in DIFFERENT:
        with subtests.test(first=first, second=second):
            result = merged(two(f"f32[2, 2] = {first}", f"f32[2, 2] = {second}"))

            assert names(result.graph) == ["a", "b", "both"]


def test_nodes_of_other_strides_stay() -> None:
    result = merged(
        two(
            "f32[2, 2] = aten.sin.default(self=%x)",
            "f32[2, 2]@[1, 2] = aten.sin.default(self=%x)",
        )
    )

    assert names(result.graph) == ["a", "b", "both"]


def test_what_reads_merged_nodes_is_merged_in_the_same_run() -> None:
    graph = extract_ir(Twice(), (torch.randn(3, 4),))

    result = PassManager([Cse]).run(graph)

    assert [node.op_type for node in result.graph.nodes] == [
        "aten.sin.default",
        "aten.split.Tensor",
        "aten.mul.Tensor",
    ]
    x = torch.randn(3, 4)
    assert torch.equal(execute_ir(result.graph, (x,)), Twice()(x))


class Twice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sin().split(2, -1)[0] * x.sin().split(2, -1)[0]


def test_two_results_of_the_graph_stay_two() -> None:
    result = merged(
        """
        graph g {
          input %x: f32[2]

          %a: f32[2] = aten.sin.default(self=%x)
          %b: f32[2] = aten.sin.default(self=%x)
          %c: f32[2] = aten.sin.default(self=%x)
          %d: f32[2] = aten.neg.default(self=%c)

          return (%a, %b, %d)
        }
        """
    )

    assert names(result.graph) == ["a", "b", "d"]
    assert [(item.node, item.reason) for item in result.journal.refusals] == [
        ("b", "it is a result of the graph, and would share the memory of another, %a")
    ]


def test_views_of_two_results_stay_apart() -> None:
    result = merged(
        """
        graph g {
          input %x: f32[2, 2]

          %a: f32[2, 2] = aten.sin.default(self=%x)
          %b: f32[2, 2] = aten.sin.default(self=%x)
          %u: f32[4] = aten.view.default(self=%a) {size=[4]}
          %v: f32[4] = aten.view.default(self=%b) {size=[4]}

          return (%u, %v)
        }
        """
    )

    assert names(result.graph) == ["a", "b", "u", "v"]


def test_small_constants_of_the_same_bits_become_one() -> None:
    result = merged(
        """
        graph g {
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
        }
        """
    )

    reads = [node.inputs[1].name for node in result.graph.nodes]
    assert reads == ["c", "c", "e", "f"]


def test_a_node_of_the_body_becomes_that_of_the_prologue() -> None:
    result = merged(
        """
        graph g {
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
        }
        """
    )

    assert names(result.graph) == ["a", "c", "d", "e"]
    assert result.graph.node("d").inputs[1].name == "a"


class OpenSizes(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        first, second = (x > 0).nonzero(), (x > 0).nonzero()
        return first.sum() * x.shape[0], second.sum() * x.shape[0]


def test_sizes_are_read_once_and_sizes_that_data_tells_stay() -> None:
    graph = extract_ir(OpenSizes(), (torch.randn(3, 2),), dynamic_shapes={"x": {0: Dim("n", min=2)}})

    result = PassManager([Cse]).run(graph).graph

    count = [node.op_type for node in result.nodes].count
    assert count("aten.nonzero.default") == 2
    assert count("aten.gt.Scalar") == 1
    x = torch.randn(5, 2)
    assert all(map(torch.equal, execute_ir(result, (x,)), OpenSizes()(x)))


class Branches(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        def double(a: Tensor) -> Tensor:
            return a.sin() + a.sin()

        return torch.cond(x.sum() > 0, double, torch.cos, (x,)) + torch.cond(
            x.sum() > 0, double, torch.cos, (x,)
        )


def test_regions_are_merged_inside_and_their_nodes_stay() -> None:
    graph = extract_ir(Branches(), (torch.ones(3),))

    result = PassManager([Cse]).run(graph).graph

    conds = [node for node in result.nodes if node.regions]
    assert [len(node.regions["true_fn"].nodes) for node in conds] == [2, 2]
    assert torch.equal(execute_ir(result, (torch.ones(3),)), Branches()(torch.ones(3)))


@pytest.mark.smoke
def test_a_second_run_changes_nothing() -> None:
    graph = parse_ir(two("f32[2, 2] = aten.sin.default(self=%x)", "f32[2, 2] = aten.sin.default(self=%x)"))

    assert Cse().run(graph) is True
    assert Cse().run(graph) is False

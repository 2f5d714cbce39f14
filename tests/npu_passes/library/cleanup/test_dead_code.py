"""dead-code: what nothing reads goes, what has effects stays."""

from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

from npu_ir import Graph, execute_ir, extract_ir
from npu_passes import PassManager, PassResult
from npu_passes.library.cleanup.dead_code import DeadCode
from tests.support.corpus.case import Function
from tests.support.rows import each_row
from tests.support.small_programs import program


def cleaned(text: str) -> PassResult:
    return PassManager([DeadCode]).run(program(text))


def names(graph: Graph) -> list[str]:
    return [node.name for node in graph.nodes]


def test_what_nothing_reads_goes_with_all_that_only_it_read() -> None:
    result = cleaned("""
        input %x: f32[2]
        %a: f32[2] = aten.sin.default(self=%x)
        %b: f32[2] = aten.cos.default(self=%a)
        %c: f32[2] = aten.add.Tensor(self=%b, other=%b)
        %d: f32[2] = aten.relu.default(self=%x)
        return %d
    """)

    assert names(result.graph) == ["d"]
    assert [item.nodes for item in result.journal.rewrites] == [("c",), ("b",), ("a",)]


@each_row("text, kept", {
    "read by an update": (
        """
        input %x: f32[2]
        buffer %state: f32[2]
        %a: f32[2] = aten.sin.default(self=%x)
        update %state = %a
        return %x
        """,
        ["a"],
    ),
    "one output read": (
        """
        input %x: f32[4]
        %m.0: f32[], %m.1: i64[] = aten.max.dim(self=%x) {dim=0}
        return %m.1
        """,
        ["m"],
    ),
    "random numbers and assertions": (
        """
        input %x: f32[2]
        input %n: int
        %r: f32[2] = aten.bernoulli.default(self=%x)
        %off: f32[2] = aten.dropout.default(input=%x) {p=0.5, train=False}
        aten._assert_scalar.default(self=%n) {assert_msg="n"}
        return %x
        """,
        ["r", "_assert_scalar"],
    ),
    "in the prologue": (
        """
        param %w: f32[2]
        prologue {
          %a: f32[2] = aten.sin.default(self=%w)
          %b: f32[2] = aten.cos.default(self=%a)
          %c: f32[2] = aten.neg.default(self=%w)
        }
        return %c
        """,
        ["c"],
    ),
})  # fmt: skip
def test_what_is_read_or_has_effects_stays(text: Any, kept: Any) -> None:
    assert names(cleaned(text).graph) == kept


def test_unread_constants_go_and_the_rest_of_the_signature_stays() -> None:
    result = cleaned("""
        input %x: f32[2]
        input %y: f32[2]
        param %w: f32[2]
        buffer %b: f32[2]
        const %c: f32[1] = [1.0]
        const %d: f32[1] = [2.0]
        %a: f32[2] = aten.add.Tensor(self=%x, other=%c)
        return %d
    """)

    assert [value.name for value in result.graph.arguments] == ["x", "y", "w", "b", "d"]


def test_an_unread_branch_goes_and_regions_are_cleaned() -> None:
    def function(x: Tensor) -> Tensor:
        torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a * 2, (x,))
        return torch.cond(x.sum() > 1, lambda a: a.cos(), lambda a: a * 3, (x,))

    graph = extract_ir(Function(function), (torch.ones(3),))
    region = graph.node("cond_1").regions["true_fn"]
    region.insert("aten.neg.default", [region.inputs[0]], types=region.inputs[0].type, operands=["self"])

    result = PassManager([DeadCode]).run(graph).graph

    assert [node.op_type for node in result.nodes if node.regions] == ["higher_order.cond"]
    assert names(result.node("cond_1").regions["true_fn"]) == ["cos"]
    assert torch.equal(execute_ir(result, (torch.ones(3),)), torch.ones(3).cos())


def test_a_node_that_alone_tells_a_size_stays() -> None:
    result = cleaned("""
        symbol u0 in [0, 4]
        symbol u1 in [0, 4]
        input %x: f32[4]
        %first: i64[u0, 1] = aten.nonzero.default(self=%x)
        %second: i64[u0, 1] = aten.nonzero.default(self=%x)
        %alone: i64[u1, 1] = aten.nonzero.default(self=%x)
        return %second
    """)

    assert names(result.graph) == ["first", "second"]
    assert [(item.node, item.reason) for item in result.journal.refusals] == [
        ("first", "its sizes determine u0")
    ]


def test_sizes_of_inputs_keep_nothing() -> None:
    def function(x: Tensor) -> Tensor:
        (x * x.shape[0]).sin()
        return x.cos()

    graph = extract_ir(Function(function), (torch.ones(3, 2),), dynamic_shapes=(({0: Dim("n")},),))

    assert names(PassManager([DeadCode]).run(graph).graph) == ["cos"]

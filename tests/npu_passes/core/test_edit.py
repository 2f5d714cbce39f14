"""One rewrite: new nodes as one would call ops, replaced values, what is erased, provenance."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from npu_ir import Graph, Provenance, TensorType, execute_ir, parse_ir
from npu_passes import Journal, Pass, PassError
from npu_passes.core.journal import use_journal

GRAPH = """graph g {
  input %x: f32[2, 3]
  input %y: f32[3]
  call (%x, %y)

  %a: f32[2, 3] = aten.mul.Tensor(self=%x, other=%y)
  %b: f32[2, 3] = aten.relu.default(self=%a)

  return %b
}
"""


class Scratch(Pass):
    """Does what a test does with it."""

    name = "scratch"

    def run(self, graph: Graph) -> bool:
        return False


@pytest.fixture
def graph() -> Graph:
    return parse_ir(GRAPH)


def test_a_call_is_written_as_in_python_and_its_type_is_told_by_the_op(graph: Graph) -> None:
    relu = graph.node("b")

    with Scratch().rewrite(graph, "rule", relu) as edit:
        stacked = edit.call("aten.stack.default", [relu.inputs[0], graph.value("x")], 1)
        summed = edit.call("aten.sum.dim_IntList", stacked, [1], dtype=torch.float64)
        edit.replace(relu.outputs[0], edit.call("aten.to.dtype", summed, torch.float32, name="total"))

    graph.check()
    assert stacked.type == TensorType((2, 2, 3), torch.float32)
    assert summed.type == TensorType((2, 3), torch.float64)
    assert [node.name for node in graph.nodes] == ["a", "stack", "sum", "total"]
    x, y = torch.randn(2, 3), torch.randn(3)
    expected = torch.stack([x * y, x], 1).sum([1], dtype=torch.float64).to(torch.float32)
    assert torch.equal(execute_ir(graph, (x, y)), expected)


def test_an_op_with_several_outputs_gives_all_of_them(graph: Graph) -> None:
    relu = graph.node("b")

    with Scratch().rewrite(graph, "rule", relu) as edit:
        values, indices = edit.calls("aten.topk.default", relu.inputs[0], 2)

    assert (values.type, indices.type) == (
        TensorType((2, 2), torch.float32),
        TensorType((2, 2), torch.int64),
    )


def test_a_call_of_an_op_with_several_outputs_says_how_to_get_them(graph: Graph) -> None:
    with (
        pytest.raises(PassError, match=r"(?s)aten.topk.default has 2 outputs.*edit.calls"),
        Scratch().rewrite(graph, "rule", graph.node("b")) as edit,
    ):
        edit.call("aten.topk.default", graph.value("x"), 2)


def test_an_op_that_pytorch_does_not_know_needs_its_type(graph: Graph) -> None:
    relu = graph.node("b")

    with (
        pytest.raises(PassError, match=r"(?s)there is no operator mine.fused.*state the types"),
        Scratch().rewrite(graph, "rule", relu) as edit,
    ):
        edit.call("mine.fused", graph.value("x"))

    with Scratch().rewrite(graph, "rule", relu) as edit:
        made = edit.call("mine.fused", graph.value("x"), graph.value("y"), type=relu.outputs[0].type, scale=2)
        edit.replace(relu.outputs[0], made)
    assert "= mine.fused(%x, %y) {scale=2}" in str(graph)


def test_arguments_that_do_not_fit_the_schema_are_refused_with_rule_and_node(graph: Graph) -> None:
    with (
        pytest.raises(PassError, match=r"(?s)scratch: my-rule failed: .*'colour'.*at: node 'b'"),
        Scratch().rewrite(graph, "my-rule", graph.node("b")) as edit,
    ):
        edit.call("aten.relu.default", graph.value("x"), colour="red")


@pytest.mark.parametrize(
    ("make", "message"),
    [
        pytest.param(
            lambda edit, x: edit.call("aten.add.Tensor", x, torch.ones(2)),
            r"a tensor is given .*[\s\S]*fix: make it a value of the graph: graph.add_constant",
            id="a tensor",
        ),
        pytest.param(
            lambda edit, x: edit.call("aten.cat.default", [x, torch.ones(2)]),
            "a tensor is given",
            id="in a list",
        ),
        pytest.param(
            lambda edit, x: edit.call("mylib.op", torch.ones(2), type=x.type),
            "a tensor is given",
            id="no schema",
        ),
        pytest.param(
            lambda edit, x: edit.call("aten.relu.default", x.users[0]),
            r"node '\w+' is given .*[\s\S]*fix: give one of the values that it returns: node.outputs\[0\]",
            id="a node",
        ),
        pytest.param(
            lambda edit, x: edit.call(torch.ops.aten.relu.default, x),
            r'named by text, not by .*[\s\S]*fix: write "aten.relu.default"',
            id="an overload",
        ),
        pytest.param(
            lambda edit, x: edit.call("aten.relu.default", x, type="f32"),
            "'f32' is not a type",
            id="a type as text",
        ),
    ],
)
def test_what_is_no_argument_is_refused_where_it_is_given(graph: Graph, make: Any, message: str) -> None:
    node = graph.nodes[-1]

    with pytest.raises(PassError, match=message), Scratch().rewrite(graph, "try", node) as edit:
        make(edit, graph.inputs[0])


def test_nodes_that_nothing_reads_any_more_are_erased_and_others_stay(graph: Graph) -> None:
    graph.set_outputs((graph.value("a"), graph.value("b")))
    mul, relu = graph.nodes

    with Scratch().rewrite(graph, "rule", mul, relu) as edit:
        edit.replace(relu.outputs[0], edit.call("aten.neg.default", graph.value("x")))

    assert [node.name for node in graph.nodes] == ["a", "neg"]


RANDOM = """graph g {
  input %x: f32[3]
  call (%x)

  %r: f32[3] = aten.rand_like.default(self=%x)
  %s: f32[3] = aten.rand_like.default(self=%x)

  return %r
}
"""


def test_a_random_node_is_erased_if_it_was_replaced() -> None:
    graph = parse_ir(RANDOM)

    with Scratch().rewrite(graph, "rule", graph.node("s"), graph.node("r")) as edit:
        edit.replace(graph.value("r"), graph.value("x"))

    assert [node.name for node in graph.nodes] == ["s"], "nobody said that s is not wanted"


def test_a_new_node_of_one_node_has_its_provenance(graph: Graph) -> None:
    place = Provenance("encoder.act", "model.py:12", ("p", "q"))
    relu = graph.node("b")
    graph.set_provenance(relu, place)

    with Scratch().rewrite(graph, "rule", relu) as edit:
        made = edit.call("aten.neg.default", graph.value("x"))

    assert made.producer is not None
    assert made.producer.provenance == place


def test_a_value_of_another_type_cannot_take_the_place(graph: Graph) -> None:
    relu = graph.node("b")

    with (
        pytest.raises(PassError, match=r"(?s)rule failed: %sum is f32\[\], it cannot stand for %b"),
        Scratch().rewrite(graph, "rule", relu) as edit,
    ):
        edit.replace(relu.outputs[0], edit.call("aten.sum.default", graph.value("x")))


def test_a_rewrite_is_of_at_least_one_node(graph: Graph) -> None:
    with (
        pytest.raises(PassError, match="scratch: the rewrite 'nothing' names no nodes"),
        Scratch().rewrite(graph, "nothing"),
    ):
        pass


def test_a_rewrite_is_of_nodes_of_its_graph(graph: Graph) -> None:
    other = parse_ir(GRAPH)

    with (
        pytest.raises(PassError, match="the rewrite 'foreign' is of node 'b', which is not in graph 'g'"),
        Scratch().rewrite(graph, "foreign", other.node("b")),
    ):
        pass


def test_a_rewrite_does_not_begin_inside_of_another(graph: Graph) -> None:
    mul, relu = graph.nodes

    with (
        use_journal(Journal()),
        pytest.raises(PassError, match="(?s)the rewrite 'inner' begins inside of 'outer'.*end one rewrite"),
        Scratch().rewrite(graph, "outer", mul),
        Scratch().rewrite(graph, "inner", relu),
    ):
        pass

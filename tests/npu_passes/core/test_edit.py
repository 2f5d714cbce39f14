"""One rewrite: new nodes as one would call ops, replaced values, what is erased, provenance."""

from typing import Any

import pytest
import torch

from npu_ir import Graph, Provenance, TensorType, execute_ir
from npu_passes import Journal, Pass, PassError
from npu_passes.core.journal import use_journal
from tests.support.rows import each_row
from tests.support.small_programs import program

SCRATCH = type("Scratch", (Pass,), {"name": "scratch", "__doc__": "Do what a test does."})()


@pytest.fixture
def graph() -> Graph:
    return program("""
        input %x: f32[2, 3]
        input %y: f32[3]
        %a: f32[2, 3] = aten.mul.Tensor(self=%x, other=%y)
        %b: f32[2, 3] = aten.relu.default(self=%a)
        return %b
    """)


def test_a_call_is_written_as_in_python_and_its_type_is_told_by_the_op(graph: Graph) -> None:
    relu = graph.node("b")

    with SCRATCH.rewrite(graph, "rule", relu) as edit:
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

    with SCRATCH.rewrite(graph, "rule", relu) as edit:
        values, indices = edit.calls("aten.topk.default", relu.inputs[0], 2)

    assert (values.type, indices.type) == (TensorType((2, 2), torch.float32), TensorType((2, 2), torch.int64))


def test_an_op_that_pytorch_does_not_know_takes_values_by_position(graph: Graph) -> None:
    relu = graph.node("b")

    with SCRATCH.rewrite(graph, "rule", relu) as edit:
        made = edit.call("mine.fused", graph.value("x"), graph.value("y"), type=relu.outputs[0].type, scale=2)
        edit.replace(relu.outputs[0], made)

    assert "= mine.fused(%x, %y) {scale=2}" in str(graph)


@each_row("make, message", [
    (lambda edit, x: edit.call("aten.relu.default", x, colour="red"), "'colour'.*at: node 'b'"),
    (lambda edit, x: edit.call("aten.topk.default", x, 2), "aten.topk.default has 2 outputs.*edit.calls"),
    (lambda edit, x: edit.call("mine.fused", x), "there is no operator mine.fused.*state the types"),
    (lambda edit, x: edit.call("aten.add.Tensor", x, torch.ones(2)),
        "a tensor is given .*fix: make it a value of the graph: graph.add_constant"),
    (lambda edit, x: edit.call("aten.cat.default", [x, torch.ones(2)]), "a tensor is given"),
    (lambda edit, x: edit.call("mylib.op", torch.ones(2), type=x.type), "a tensor is given"),
    (lambda edit, x: edit.call("aten.relu.default", x.users[0]),
        r"node '\w+' is given .*fix: give one of the values that it returns: node.outputs\[0\]"),
    (lambda edit, x: edit.call(torch.ops.aten.relu.default, x),
        'named by text, not by .*fix: write "aten.relu.default"'),
    (lambda edit, x: edit.call("aten.relu.default", x, type="f32"), "'f32' is not a type"),
    (lambda edit, x: edit.replace(edit.graph.value("b"), edit.call("aten.sum.default", x)),
        r"%sum is f32\[\], it cannot stand for %b"),
])  # fmt: skip
def test_what_does_not_fit_is_refused_where_it_is_given(make: Any, message: Any, graph: Graph) -> None:
    with (
        pytest.raises(PassError, match=f"(?s)scratch: my-rule failed: .*{message}"),
        SCRATCH.rewrite(graph, "my-rule", graph.node("b")) as edit,
    ):
        make(edit, graph.inputs[0])


def test_nodes_that_nothing_reads_any_more_are_erased_and_others_stay(graph: Graph) -> None:
    graph.set_outputs((graph.value("a"), graph.value("b")))
    mul, relu = graph.nodes

    with SCRATCH.rewrite(graph, "rule", mul, relu) as edit:
        edit.replace(relu.outputs[0], edit.call("aten.neg.default", graph.value("x")))

    assert [node.name for node in graph.nodes] == ["a", "neg"]


def test_a_random_node_is_erased_if_it_was_replaced() -> None:
    graph = program("""
        input %x: f32[3]
        %r: f32[3] = aten.rand_like.default(self=%x)
        %s: f32[3] = aten.rand_like.default(self=%x)
        return %r
    """)

    with SCRATCH.rewrite(graph, "rule", graph.node("s"), graph.node("r")) as edit:
        edit.replace(graph.value("r"), graph.value("x"))

    assert [node.name for node in graph.nodes] == ["s"], "nobody said that s is not wanted"


def test_a_new_node_of_one_node_has_its_provenance(graph: Graph) -> None:
    place = Provenance("encoder.act", "model.py:12", ("p", "q"))
    relu = graph.node("b")
    graph.set_provenance(relu, place)

    with SCRATCH.rewrite(graph, "rule", relu) as edit:
        made = edit.call("aten.neg.default", graph.value("x"))

    assert made.producer.provenance == place


def test_a_rewrite_is_of_nodes_of_its_graph(graph: Graph, subtests: pytest.Subtests) -> None:
    rows = [
        ([], "scratch: the rewrite 'rule' names no nodes"),
        ([graph.clone().node("b")], "the rewrite 'rule' is of node 'b', which is not in graph 'g'"),
    ]
    for nodes, message in rows:
        with (
            subtests.test(message),
            pytest.raises(PassError, match=message),
            SCRATCH.rewrite(graph, "rule", *nodes),
        ):
            pass


def test_a_rewrite_does_not_begin_inside_of_another(graph: Graph) -> None:
    mul, relu = graph.nodes

    with (
        use_journal(Journal()),
        pytest.raises(PassError, match="(?s)the rewrite 'inner' begins inside of 'outer'.*end one rewrite"),
        SCRATCH.rewrite(graph, "outer", mul),
        SCRATCH.rewrite(graph, "inner", relu),
    ):
        pass

"""Nodes that fail, graphs that break a rule, and what an error says."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

from npu_ir import ExecutionError, Graph, GraphError, Provenance, execute_ir
from npu_ir.ops.execution import execute_node
from tests.support.registration import registered
from tests.support.rows import each_row
from tests.support.small_programs import CPU, F32, program, tensor

PLACE = "\n  at: node 'y', layer.1, net.py:3\n  fix: "


@each_row("nodes, message", [
    ("%y: f32[3] = aten.view.default(%x) {size=[3]}",
        rf"aten.view.default failed: RuntimeError: shape '\[3\]' is .*{PLACE}it was called on f32\[2\]"),
    ("%y: f32[2] = nowhere.thing.default(%x)",
        rf"no operator nowhere.thing.default{PLACE}import the library .* register_executor\('nowhere.th"),
    ("%y: f32[2] = aten.vanished.default(%x)",
        rf"no operator aten.vanished.default{PLACE}npu check-compat FILE says .* register_executor\('aten"),
    ("%y: f32[3] = aten.neg.default(%x)",
        rf"aten.neg.default returned f32\[2\] for %y, which is f32\[3\] in the graph{PLACE}capture the"),
    ("%y: f64[2] = aten.neg.default(%x)", r"returned f32\[2\] for %y, which is f64\[2\] in the graph"),
    ("%y: int = aten.neg.default(%x)", r"returned f32\[2\] for %y, which is int in the graph"),
    ("%y: none = aten.neg.default(%x)", r"returned f32\[2\] for %y, which is none in the graph"),
    ("%a: f32[2] = aten.max.dim(%x) {dim=0} %y: f32[2] = aten.neg.default(%x)",
        "returned 2 results, the graph has 1\n"),
    ("aten.neg.default(%x) %y: f32[2] = aten.neg.default(%x)", "returned 1 results, the graph has 0\n"),
    ("%y: f32[2], %b: f32[2] = aten.neg.default(%x)", "returned 1 results, the graph has 2\n"),
])  # fmt: skip
def test_a_node_that_fails_is_named_with_its_place_and_what_to_do(nodes: str, message: str) -> None:
    graph = program(f"input %x: f32[2] {nodes} return %y")
    for node in graph.nodes:
        graph.set_provenance(node, Provenance("layer.1", "net.py:3"))

    with pytest.raises(ExecutionError, match=message):
        execute_ir(graph, (tensor(1, 2),))


@each_row("nodes, result", [
    ("%a: f32[1], %y: f32[1] = aten.split.Tensor(%x) {split_size=1}", tensor(2)),
    ('%z: f32[2] = aten.neg.default(%x) %y: f32[2] = "<built-in function getitem>"(%x, %z) {index=1}',
        tensor(-1, -2)),
    ("%a: f32[7], %b: i64[7] = aten.max.dim(%x) {dim=0} %y: f32[2] = aten.neg.default(%x)", tensor(-1, -2)),
])  # fmt: skip
def test_results_are_taken_apart_and_unread_ones_may_be_of_any_type(nodes: str, result: torch.Tensor) -> None:
    graph = program(f"input %x: f32[2] {nodes} return %y")

    assert torch.equal(execute_ir(graph, (tensor(1, 2),)), result)


def test_a_registered_executor_gets_inputs_and_attributes_and_wins_over_the_operator() -> None:
    graph = program("  input %x: f32[2]\n  %y: f32[2] = aten.add.Tensor(%x, %x) {alpha=3}\n  return %y")

    with registered("aten.add.Tensor", lambda inputs, attrs: [inputs[0] * attrs["alpha"] - inputs[1]]):
        assert torch.equal(execute_ir(graph, (tensor(1, 2),)), tensor(2, 4))
    assert torch.equal(execute_ir(graph, (tensor(1, 2),)), tensor(4, 8))


@each_row("function, message", [
    (lambda inputs, attrs: inputs[0],
        r"my_op returned a Tensor, not a list of 1\n  at: node 'y'\n  fix: an executor returns a list"),
    (lambda inputs, attrs: (inputs[0],), "my_op returned a tuple, not a list of 1"),
    (lambda inputs, attrs: [], "my_op returned 0 results, the graph has 1"),
    (lambda inputs, attrs: [inputs[0].to_sparse()],
        r"my_op returned f32\[2\]@sparse_coo for %y, which is f32\[2\] in the graph"),
    (lambda inputs, attrs: [1j], r"my_op returned 1j for %y"),
    (lambda inputs, attrs: 1 / 0, "my_op failed: ZeroDivisionError: division by zero"),
    (lambda inputs, attrs: (_ for _ in ()).throw(GraphError("no", fix="do")),
        r"^no\n  at: node 'y'\n  fix: do$"),
])  # fmt: skip
def test_an_executor_that_does_not_keep_to_its_contract_is_named(
    function: Callable[..., Any], message: str
) -> None:
    graph = program("  input %x: f32[2]\n  %y: f32[2] = my_op(%x)\n  return %y")

    with registered("my_op", function), pytest.raises(ExecutionError, match=message):
        execute_ir(graph, (tensor(1, 2),))


def test_a_graph_that_breaks_a_rule_does_not_run(ran: list[str]) -> None:
    graph = program("  input %x: f32[2]\n  %y: f32[2] = aten.neg.default(%x)\n  return %y")
    graph.insert("aten.neg.default", [graph.value("y")], types=F32, before=graph.node("y"))

    with pytest.raises(GraphError, match="reads %y before it is produced"):
        execute_ir(graph, (tensor(1, 2),))
    assert ran == []


def test_an_op_that_changes_its_input_does_not_run() -> None:
    graph = Graph()
    x = graph.add_input("x", F32)
    node = graph.insert("aten.neg_.default", [x], types=F32)
    value = tensor(1, 2)

    with pytest.raises(GraphError, match="node 'neg_': aten.neg_.default changes a tensor in place"):
        execute_ir(graph, (value,))
    with pytest.raises(
        ExecutionError,
        match=(
            r"aten.neg_.default changes a tensor in place: a graph is functional\n  at: node 'neg_'\n"
            "  fix: use the op that returns a new tensor"
        ),
    ):
        execute_node(node, [value], CPU)
    assert torch.equal(value, tensor(1, 2))


def test_an_edited_node_is_bound_anew() -> None:
    graph = program("  input %x: f32[2]\n  %y: f32[2] = aten.add.Tensor(%x, %x)\n  return %y")
    other = graph.add_constant("c", tensor(10, 10))
    assert torch.equal(execute_ir(graph, (tensor(1, 2),)), tensor(2, 4))

    graph.set_attrs(graph.node("y"), {"alpha": 2})
    assert torch.equal(execute_ir(graph, (tensor(1, 2),)), tensor(3, 6))
    graph.set_input(graph.node("y"), 1, other)
    assert torch.equal(execute_ir(graph, (tensor(1, 2),)), tensor(21, 22))
    graph.replace_all_uses(other, graph.value("x"))
    assert torch.equal(execute_ir(graph, (tensor(1, 2),)), tensor(3, 6))


def test_a_call_is_bound_to_its_schema_once() -> None:
    graph = program("  input %x: f32[2]\n  %y: f32[2] = aten.neg.default(%x)\n  return %y")

    execute_ir(graph, (tensor(1, 2),))
    first = graph.node("y")._binding
    execute_ir(graph, (tensor(1, 2),))

    assert first is not None
    assert graph.node("y")._binding is first

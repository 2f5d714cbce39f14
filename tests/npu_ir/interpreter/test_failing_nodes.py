"""Nodes that fail, graphs that break a rule, and what an error says."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from npu_ir import (
    ExecutionError,
    Graph,
    GraphError,
    Provenance,
    ScalarType,
    execute_ir,
)
from npu_ir.ops import register_executor, unregister_executor
from npu_ir.ops.execution import execute_node, is_of_type
from tests.support.rows import each_row
from tests.support.small_programs import CPU, F32, program, tensor


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes that have been run."""
    names: list[str] = []

    def watched(node: Any, *given: Any) -> list[Any]:
        names.append(node.name)
        return execute_node(node, *given)

    monkeypatch.setattr("npu_ir.interpreter.run_nodes.execute_node", watched)
    return names


# Nodes that fail


@contextlib.contextmanager
def executor(op_type: str, function: Callable[..., Any]) -> Iterator[None]:
    register_executor(op_type)(function)
    try:
        yield
    finally:
        unregister_executor(op_type)


def test_an_op_that_fails_is_named_with_its_place_and_inputs() -> None:
    graph = program("  input %x: f32[2]\n  %y: f32[3] = aten.view.default(%x) {size=[3]}\n  return %y")
    graph.set_provenance(graph.node("y"), Provenance("layer.1", "net.py:3"))

    with pytest.raises(
        ExecutionError,
        match=(
            r"aten.view.default failed: RuntimeError: shape '\[3\]' is invalid.*\n"
            r"  at: node 'y', layer.1, net.py:3\n  fix: it was called on f32\[2\]"
        ),
    ) as caught:
        execute_ir(graph, (tensor(1, 2),))
    assert isinstance(caught.value.__cause__, RuntimeError)


def test_an_unknown_op_is_named_with_what_to_do() -> None:
    graph = program("  input %x: f32[2]\n  %y: f32[2] = nowhere.thing.default(%x)\n  return %y")

    with pytest.raises(
        ExecutionError,
        match=(
            r"there is no operator nowhere.thing.default\n  at: node 'y'\n"
            r"  fix: import the library that registers it, or register_executor\('nowhere.thing.default'\)"
        ),
    ):
        execute_ir(graph, (tensor(1, 2),))


@each_row(
    "type, returned",
    [("f32[3]", r"f32\[2\]"), ("f64[2]", r"f32\[2\]"), ("int", r"f32\[2\]"), ("none", r"f32\[2\]")],
)
def test_a_result_of_another_type_than_the_graph_states_is_refused(type: str, returned: str) -> None:
    graph = program(f"  input %x: f32[2]\n  %y: {type} = aten.neg.default(%x)\n  return %y")

    with pytest.raises(
        ExecutionError,
        match=(
            rf"aten.neg.default returned {returned} for %y, which is {re.escape(type)} in the graph\n"
            r"  at: node 'y'\n  fix: capture the model again"
        ),
    ):
        execute_ir(graph, (tensor(1, 2),))


@each_row("outputs, count", [
    ("%a: f32[2], %b: i64[2] = aten.max.dim(%x) {dim=0}", 2),
    ("aten.neg.default(%x)", 1),
    ("%a: f32[2], %b: f32[2] = aten.neg.default(%x)", 1),
])  # fmt: skip
def test_another_number_of_results_than_the_graph_states_is_refused(outputs: str, count: int) -> None:
    outputs = outputs if count == 1 else outputs.replace(", %b: i64[2]", "")
    expected = outputs.count(": ")
    graph = program(f"  input %x: f32[2]\n  {outputs}\n  return ()")

    with pytest.raises(ExecutionError, match=rf"returned {count} results, the graph has {expected}\n"):
        execute_ir(graph, (tensor(1, 2),))


def test_an_op_without_results_runs() -> None:
    graph = program("  input %x: bool[]\n  aten._assert_async.default(%x)\n  return ()")

    assert execute_ir(graph, (torch.tensor(True),)) == ()
    with pytest.raises(ExecutionError, match="aten._assert_async.default failed"):
        execute_ir(graph, (torch.tensor(False),))


def test_an_op_that_returns_a_list_has_as_many_outputs() -> None:
    graph = program(
        "  input %x: f32[2]\n  %a: f32[1], %b: f32[1] = aten.split.Tensor(%x) "
        "{split_size=1}\n  return (%b, %a)"
    )

    assert repr(execute_ir(graph, (tensor(1, 2),))) == repr((tensor(2), tensor(1)))


def test_getitem_selects_an_output() -> None:
    graph = program(
        "  input %x: f32[2]\n  input %y: f32[2]\n"
        '  %z: f32[2] = "<built-in function getitem>"(%x, %y) {index=1}\n  return %z'
    )

    assert torch.equal(execute_ir(graph, (tensor(1, 2), tensor(3, 4))), tensor(3, 4))


def test_a_registered_executor_gets_inputs_and_attributes_and_wins_over_the_operator() -> None:
    graph = program("  input %x: f32[2]\n  %y: f32[2] = aten.add.Tensor(%x, %x) {alpha=3}\n  return %y")

    with executor("aten.add.Tensor", lambda inputs, attrs: [inputs[0] * attrs["alpha"] - inputs[1]]):
        assert torch.equal(execute_ir(graph, (tensor(1, 2),)), tensor(2, 4))
    assert torch.equal(execute_ir(graph, (tensor(1, 2),)), tensor(4, 8))


@each_row(
    "function, message",
    [
        (
            lambda inputs, attrs: inputs[0],
            (
                r"my_op returned Tensor results, the graph has 1\n  at: node 'y'\n"
                "  fix: an executor returns a list with one entry per output"
            ),
        ),
        (lambda inputs, attrs: (inputs[0],), "my_op returned tuple results, the graph has 1"),
        (lambda inputs, attrs: [], "my_op returned 0 results, the graph has 1"),
        (lambda inputs, attrs: None, "my_op returned NoneType results"),
        (
            lambda inputs, attrs: [inputs[0].to_sparse()],
            r"my_op returned f32\[2\]@sparse_coo for %y, which is f32\[2\] in the graph",
        ),
        (lambda inputs, attrs: [1j], r"my_op returned 1j for %y"),
        (lambda inputs, attrs: 1 / 0, "my_op failed: ZeroDivisionError: division by zero"),
        (lambda inputs, attrs: attrs["b"], "my_op failed: KeyError: 'b'"),
        (
            lambda inputs, attrs: (_ for _ in ()).throw(GraphError("no", fix="do")),
            r"^no\n  at: node 'y'\n  fix: do$",
        ),
    ],
)
def test_an_executor_that_does_not_keep_to_its_contract_is_named(
    function: Callable[..., Any], message: str
) -> None:
    graph = program("  input %x: f32[2]\n  %y: f32[2] = my_op(%x)\n  return %y")

    with executor("my_op", function), pytest.raises(ExecutionError, match=message):
        execute_ir(graph, (tensor(1, 2),))


def test_what_nothing_reads_may_be_of_another_type() -> None:
    graph = program("  input %x: f32[2]\n  %a: f32[7], %b: i64[7] = aten.max.dim(%x) {dim=0}\n  return ()")

    assert execute_ir(graph, (tensor(1, 2),)) == ()


def test_values_have_the_type_of_their_layout_dtype_and_shape() -> None:
    assert is_of_type(tensor(1, 2), F32)
    assert is_of_type(torch.ones(2, 2)[:, 0], F32)
    assert not is_of_type([1.0, 2.0], F32)
    assert is_of_type(None, ScalarType("none"))
    assert not is_of_type("x", ScalarType("none"))


# Graphs that break a rule


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

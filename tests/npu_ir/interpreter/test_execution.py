"""Execution: what is checked before the first op runs, what is kept from an op, and what an error says."""

from __future__ import annotations

import contextlib
import re
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from npu_ir import (
    ExecutionError,
    Graph,
    GraphError,
    Interpreter,
    Provenance,
    ScalarType,
    TensorType,
    WeightError,
    execute_ir,
    extract_ir,
    list_registered_ops,
    parse_ir,
)
from npu_ir.core.tensor_bytes import same_data
from npu_ir.ops import register_executor, unregister_executor
from npu_ir.ops.execution import execute_node, is_of_type
from npu_ir.ops.schema import resolve
from tests.support.corpus.case import Function
from tests.support.rows import each_row

F32 = TensorType((2,), torch.float32)
CPU = torch.device("cpu")


def tensor(*items: float) -> torch.Tensor:
    return torch.tensor(items, dtype=torch.float32)


def program(text: str) -> Graph:
    """Return the graph with this body."""
    return parse_ir(f"graph g {{\n{text}\n}}")


ADD = """
  input %x: f32[2]
  param %w: f32[2] aliases ["v"]
  buffer %s: f32[2]
  buffer %m: f32[2] non_persistent
  const %c: f32[2] = [10.0, 20.0]
  %a: f32[2] = aten.add.Tensor(%x, %w)
  %b: f32[2] = aten.add.Tensor(%a, %s)
  %d: f32[2] = aten.add.Tensor(%b, %m)
  %e: f32[2] = aten.add.Tensor(%d, %c)
  update %s = %a
  update %x = %b
  return (%e, {"a": %a, "n": 3})
"""
WEIGHTS = {"w": tensor(1, 1), "s": tensor(2, 2)}
CONSTANTS = {"m": tensor(3, 3)}


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the nodes that have been run."""
    names: list[str] = []

    def watched(node: Any, *given: Any) -> list[Any]:
        names.append(node.name)
        return execute_node(node, *given)

    monkeypatch.setattr("npu_ir.interpreter.run_nodes.execute_node", watched)
    return names


# What comes back


@pytest.mark.smoke
def test_a_graph_gives_its_results_in_their_structure() -> None:
    result = execute_ir(program(ADD), (tensor(1, 2),), weights=WEIGHTS, constants=CONSTANTS)

    assert repr(result) == repr((tensor(17, 28), {"a": tensor(2, 3), "n": 3}))


def test_what_the_model_would_change_comes_back_by_name() -> None:
    result, mutations = execute_ir(
        program(ADD), (tensor(1, 2),), weights=WEIGHTS, constants=CONSTANTS, return_mutations=True
    )

    assert repr(mutations) == repr({"s": tensor(2, 3), "x": tensor(4, 5)})
    assert torch.equal(result[0], tensor(17, 28))


def test_nothing_of_the_caller_is_changed() -> None:
    x, weights, constants = (
        tensor(1, 2),
        {key: value.clone() for key, value in WEIGHTS.items()},
        {"m": tensor(3, 3)},
    )

    execute_ir(program(ADD), (x,), weights=weights, constants=constants)

    assert torch.equal(x, tensor(1, 2))
    assert repr(weights) == repr(WEIGHTS)
    assert repr(constants) == repr(CONSTANTS)
    assert list(weights) == ["w", "s"]


def test_a_tied_parameter_is_updated_under_every_name() -> None:
    graph = program(
        '  input %x: f32[2]\n  param %w: f32[2] aliases ["v", "u"]\n  update %w = %x\n  return ()'
    )

    _, mutations = execute_ir(graph, (tensor(1, 2),), weights={"w": tensor(0, 0)}, return_mutations=True)

    assert list(mutations) == ["w", "v", "u"]
    assert all(torch.equal(value, tensor(1, 2)) for value in mutations.values())


def test_inputs_weights_and_literals_are_results_as_they_are() -> None:
    graph = program(
        "  input %x: f32[2]\n  input %n: int\n  param %w: f32[2]\n  call (%x, n=%n)\n"
        "  return [%x, %x, %n, %w, None, 1.5]"
    )
    x, w = tensor(1, 2), tensor(3, 4)

    results = execute_ir(graph, (x,), {"n": 7}, weights={"w": w})

    assert results[0] is x
    assert results[1] is x
    assert results[3] is w
    assert results[2:3] + results[4:] == [7, None, 1.5]


def test_an_interpreter_runs_again_and_again() -> None:
    interpreter = Interpreter(program(ADD), WEIGHTS, CONSTANTS)

    assert torch.equal(interpreter.run(tensor(1, 2))[0], interpreter.run(tensor(1, 2))[0])
    leaves, mutations = interpreter.run_flat((tensor(0, 0),))
    assert torch.equal(leaves[0], tensor(16, 26))
    assert leaves[2] == 3
    assert list(mutations) == ["s", "x"]


def test_every_node_is_shown_with_its_outputs() -> None:
    seen: list[tuple[str, str]] = []

    Interpreter(program(ADD), WEIGHTS, CONSTANTS).run_flat(
        (tensor(1, 2),), observe=lambda node, outputs: seen.append((node.name, repr(outputs)))
    )

    assert seen[0] == ("a", repr([tensor(2, 3)]))
    assert [name for name, _ in seen] == ["a", "b", "d", "e"]


def test_values_are_forgotten_after_their_last_use() -> None:
    graph = program(
        "  input %x: f32[2]\n"
        "  %a: f32[2] = aten.neg.default(%x)\n"
        "  %unused: f32[2] = aten.neg.default(%a)\n"
        "  %b: f32[2] = aten.add.Tensor(%a, %a)\n"
        "  %c: f32[2] = aten.neg.default(%b)\n"
        "  %d: f32[2] = aten.neg.default(%c)\n"
        "  return (%d, %b)"
    )
    alive: dict[str, weakref.ref[torch.Tensor]] = {}
    history: list[set[str]] = []

    def observe(node: Any, outputs: list[Any]) -> None:
        history.append({name for name, ref in alive.items() if ref() is not None})
        alive[node.name] = weakref.ref(outputs[0])

    Interpreter(graph).run_flat((tensor(1, 2),), observe=observe)

    assert history == [set(), {"a"}, {"a"}, {"b"}, {"b", "c"}]


# Arguments


@each_row(
    "args, kwargs, message",
    [
        (
            (),
            {},
            (
                r"expected a tuple of 1, got a tuple of 0\n  at: args\n"
                "  fix: pass what the model was captured with"
            ),
        ),
        ((tensor(1, 2), 3), {}, "expected a tuple of 1, got a tuple of 2"),
        ((tensor(1, 2),), {"y": 1}, r"expected keys \[\], got \['y'\]\n  at: kwargs"),
        (([tensor(1, 2)],), {}, r"input %x is list, the graph needs f32\[2\]\n  at: args\[0\]"),
        (
            (5,),
            {},
            (
                r"input %x is int, the graph needs f32\[2\]\n  at: args\[0\]\n"
                "  fix: pass a tensor of this shape and dtype"
            ),
        ),
        ((tensor(1, 2, 3),), {}, r"input %x is f32\[3\], the graph needs f32\[2\]"),
        ((tensor(1, 2).double(),), {}, r"input %x is f64\[2\], the graph needs f32\[2\]"),
        ((tensor(1, 2).to_sparse(),), {}, r"input %x is f32\[2\]@sparse_coo, the graph needs f32\[2\]\n"),
        ((None,), {}, "input %x is NoneType, the graph needs"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_before_anything_runs(
    args: Any, kwargs: Any, message: str, ran: list[str]
) -> None:
    interpreter = Interpreter(program(ADD), WEIGHTS, CONSTANTS)

    with pytest.raises(ExecutionError, match=message):
        interpreter.run_flat(args, kwargs)
    assert ran == []


@each_row(
    "value, message",
    [
        (1.0, "the graph was made for 2.0 here, not 1.0"),
        (2, "the graph was made for 2.0 here, not 2"),
        (torch.tensor(2.0), r"the graph was made for 2.0 here, not tensor\(2.\)"),
        (list(range(1000)), r"expected|the graph was made for 2.0 here, not \[0, 1"),
    ],
)
def test_another_constant_than_the_graph_was_made_for_is_refused(value: Any, message: str) -> None:
    graph = program("  input %x: f32[2]\n  call (%x, scale=2.0)\n  return %x")

    assert torch.equal(execute_ir(graph, (tensor(1, 2),), {"scale": 2.0}), tensor(1, 2))
    with pytest.raises(ExecutionError, match=message) as caught:
        execute_ir(graph, (tensor(1, 2),), {"scale": value})
    assert len(caught.value.message) <= 200


def test_nan_is_the_constant_nan() -> None:
    graph = program("  call (nan)\n  return ()")

    assert execute_ir(graph, (float("nan"),)) == ()


@each_row(
    "kind, right, wrong",
    [("int", 3, True), ("int", 3, 3.0), ("float", 3.0, 3), ("bool", True, 1), ("none", None, 0)],
)
def test_numbers_are_checked_by_type(kind: str, right: Any, wrong: Any) -> None:
    graph = program(f"  input %n: {kind}\n  return %n")

    assert execute_ir(graph, (right,)) is right
    with pytest.raises(ExecutionError, match=rf"input %n is {type(wrong).__name__}, the graph needs {kind}"):
        execute_ir(graph, (wrong,))


def test_an_input_in_two_places_is_the_same_tensor_or_number_twice() -> None:
    graph = program("  input %x: f32[2]\n  input %n: int\n  call (%x, %n, [%x, %n])\n  return ()")
    x = tensor(1, 2)

    assert execute_ir(graph, (x, 10**6, [x.view(2), int("1000000")])) == ()
    with pytest.raises(
        ExecutionError,
        match=(
            "input %x is passed in two places: both must be the same "
            r"tensor or number\n  at: args\[2\]\[0\]"
        ),
    ):
        execute_ir(graph, (x, 5, [x.clone(), 5]))
    with pytest.raises(
        ExecutionError,
        match=r"input %n is passed in two places[\s\S]*at: args\[2\]\[1\]\n  fix: pass one tensor twice",
    ):
        execute_ir(graph, (x, 5, [x, 6]))


def test_inputs_that_share_memory_with_one_that_changes_are_refused() -> None:
    graph = program("  input %x: f32[2]\n  input %y: f32[2]\n  update %x = %y\n  return ()")
    both = tensor(1, 2, 3, 4)

    with pytest.raises(
        ExecutionError,
        match=r"inputs %x and %y share memory, and the model changes %x in place\n  fix: pass a copy",
    ):
        execute_ir(graph, (both[:2], both[1:3]))
    read_only = program("  input %x: f32[2]\n  input %y: f32[2]\n  return ()")
    assert execute_ir(read_only, (both[:2], both[1:3])) == ()


# Weights


def test_everything_wrong_with_the_weights_is_listed_at_once(ran: list[str]) -> None:
    graph = program(ADD)

    with pytest.raises(WeightError) as caught:
        execute_ir(
            graph,
            (tensor(1, 2),),
            weights={"w": tensor(1), "extra": tensor(1)},
            constants={"c": tensor(1, 2).int(), "other": tensor(1)},
        )

    assert caught.value.message.splitlines() == [
        "the weights do not fit graph 'g':",
        "  misfit: w is f32[1], the graph needs f32[2]",
        "  missing: s, f32[2]",
        "  missing: m, f32[2] (not in the state_dict: pass it in constants=)",
        "  misfit: c is i32[2], the graph needs f32[2]",
        "  unexpected: extra",
        "  unexpected: other",
    ]
    assert caught.value.fix is not None
    assert "model.state_dict()" in caught.value.fix
    assert ran == []


def test_a_long_list_of_wrong_weights_is_cut() -> None:
    graph = Graph("g")
    for index in range(50):
        graph.add_parameter(f"w{index}", F32)

    with pytest.raises(WeightError, match=r"missing: w19, f32\[2\]\n  ... and 30 more\n  fix") as caught:
        execute_ir(graph)
    assert "w20" not in str(caught.value)


@each_row(
    "given, message",
    [
        ({"w": 1.0}, "misfit: w is float, the graph needs"),
        ({"w": tensor(1, 1).to_sparse()}, r"misfit: w is f32\[2\]@sparse_coo, the graph needs f32\[2\]"),
        ({"w": tensor(1, 1), "v": tensor(1, 2)}, "misfit: v and w are tied in the model but differ"),
        ({"v": tensor(1)}, r"misfit: v is f32\[1\]"),
        ({}, "missing: w"),
    ],
)
def test_weights_that_do_not_fit_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(WeightError, match=message):
        Interpreter(program('  param %w: f32[2] aliases ["v"]\n  return %w'), given)


@each_row("given", [{"w": tensor(1, 2)}, {"v": tensor(1, 2)}, {"w": tensor(1, 2), "v": tensor(1, 2)}])
def test_one_name_of_a_tied_parameter_is_enough(given: dict[str, torch.Tensor]) -> None:
    graph = program('  param %w: f32[2] aliases ["v"]\n  return %w')

    assert torch.equal(execute_ir(graph, weights=given), tensor(1, 2))


def test_constants_and_non_persistent_buffers_can_be_given_anew() -> None:
    graph = program(
        "  buffer %m: f32[2] non_persistent = [1.0, 2.0]\n  const %c: f32[2] = [3.0, 4.0]\n  return (%m, %c)"
    )

    assert repr(execute_ir(graph)) == repr((tensor(1, 2), tensor(3, 4)))
    assert repr(execute_ir(graph, constants={"c": tensor(5, 6)})) == repr((tensor(1, 2), tensor(5, 6)))
    assert repr(execute_ir(graph, weights={"m": tensor(7, 8)})) == repr((tensor(7, 8), tensor(3, 4)))


# Memory layout


def test_tensors_are_laid_out_as_the_graph_states() -> None:
    graph = program(
        "  input %x: f32[2, 3]@[1, 2]\n  param %w: f32[3, 2]\n"
        "  %a: f32[6] = aten.as_strided.default(%x) {size=[6], stride=[1]}\n"
        "  %b: f32[6] = aten.view.default(%w) {size=[6]}\n"
        "  return (%a, %b)"
    )
    x, w = torch.arange(6.0).view(2, 3), torch.arange(6.0).view(2, 3).t()

    a, b = execute_ir(graph, (x,), weights={"w": w})

    assert torch.equal(a, x.t().reshape(-1))
    assert torch.equal(b, w.reshape(-1))


@each_row("strides", ["[1, 1]", "[0, 1]", "[1, 0]", "[0, 0]", "[2, 1]"])
def test_elements_that_need_not_be_equal_are_never_laid_over_each_other(strides: str) -> None:
    graph = program(f"  input %x: f32[4, 3]@{strides}\n  return %x")
    x = torch.arange(12.0).view(4, 3)

    assert torch.equal(execute_ir(graph, (x,)), x)


def test_a_layout_of_axes_of_size_one_is_no_layout() -> None:
    graph = program("  input %x: f32[1, 3]@[1, 1]\n  return %x")
    x = torch.arange(3.0).view(1, 3)

    assert execute_ir(graph, (x,)) is x


@each_row("dtype", [torch.uint4, torch.float8_e5m2, torch.complex64, torch.bool])
def test_tensors_of_any_dtype_are_laid_out(dtype: torch.dtype) -> None:
    graph = Graph()
    graph.set_outputs(graph.add_input("x", TensorType((2, 3), dtype, (1, 2))))
    x = (torch.arange(6 * dtype.itemsize, dtype=torch.uint8) % 2).view(dtype).view(2, 3)

    result = execute_ir(graph, (x,))

    assert result.stride() == (1, 2)
    assert same_data(result, x)


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


@each_row(
    "outputs, count",
    [
        ("%a: f32[2], %b: i64[2] = aten.max.dim(%x) {dim=0}", 2),
        ("aten.neg.default(%x)", 1),
        ("%a: f32[2], %b: f32[2] = aten.neg.default(%x)", 1),
    ],
)
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


# The surroundings of the caller

CREATE = """
  input %x: f32[2, 2]
  %a: f32[2, 2] = aten.full.default() {size=[2, 2], fill_value=2.0, dtype=f32, device=device("meta")}
  %b: f32[2, 2] = aten.mm.default(%x, %a)
  return %b
"""


def surroundings() -> list[Any]:
    return [
        pytest.param(lambda: torch.autocast("cpu", dtype=torch.bfloat16), id="autocast"),
        pytest.param(lambda: torch.device("meta"), id="default_device"),
        pytest.param(torch.enable_grad, id="grad"),
        pytest.param(torch.inference_mode, id="inference_mode"),
        pytest.param(lambda: default_dtype(torch.float64), id="default_dtype"),
    ]


@contextlib.contextmanager
def default_dtype(dtype: torch.dtype) -> Iterator[None]:
    old = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(old)


@each_row("around", surroundings())
def test_the_surroundings_of_the_caller_have_no_influence(
    around: Callable[[], contextlib.AbstractContextManager[Any]],
) -> None:
    x = torch.tensor([[1.0, 2.0], [3.0, 4.125]], requires_grad=True)

    with around():
        result = execute_ir(program(CREATE), (x,))

    assert torch.equal(result, torch.tensor([[6.0, 6.0], [14.25, 14.25]]))
    assert result.device == CPU
    assert not result.requires_grad


def test_the_surroundings_of_the_caller_are_as_before() -> None:
    with torch.autocast("cpu", dtype=torch.bfloat16), torch.device("meta"), torch.enable_grad():
        execute_ir(program(CREATE), (torch.ones(2, 2, device="cpu"),))
        assert torch.is_autocast_enabled("cpu")
        assert torch.is_grad_enabled()
        assert torch.empty(1).is_meta


def test_a_graph_runs_on_meta_tensors_to_types() -> None:
    result = execute_ir(program(CREATE), (torch.empty(2, 2, device="meta"),))

    assert result.is_meta
    assert TensorType.of(result) == TensorType((2, 2), torch.float32)


def test_many_threads_may_run_one_interpreter() -> None:
    lines = "\n".join(f"  %v{index + 1}: f32[2] = aten.add.Tensor(%v{index}, %w)" for index in range(50))
    interpreter = Interpreter(
        program(f"  input %v0: f32[2]\n  param %w: f32[2]\n{lines}\n  return %v50"), {"w": tensor(1, 1)}
    )
    results: dict[int, torch.Tensor] = {}
    ready = threading.Barrier(8)

    def run(number: int) -> None:
        ready.wait()
        for _ in range(5):
            results[number] = interpreter.run(tensor(number, 0))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(torch.equal(results[number], tensor(number + 50, 50)) for number in range(8))


def test_custom_operators_run_by_their_schema() -> None:
    library = torch.library.Library("test_execution", "DEF")
    library.define("scaled(Tensor[] xs, *, float by=2.0, Tensor? bias=None) -> (Tensor, int)")
    library.impl(
        "scaled",
        lambda xs, by=2.0, bias=None: (sum(xs) * by + (0 if bias is None else bias), len(xs)),
        "CompositeExplicitAutograd",
    )
    try:
        graph = program(
            "  input %x: f32[2]\n  input %b: f32[2]\n"
            "  %y: f32[2], %n: int = test_execution.scaled.default(xs=[%x, %x], bias=%b) {by=0.5}\n"
            "  return (%y, %n)"
        )

        result = execute_ir(graph, (tensor(1, 2), tensor(10, 10)))

        assert repr(result) == repr((tensor(11, 12), 2))
        assert resolve("test_execution.scaled.default") is not None
    finally:
        library._destroy()


@pytest.fixture
def zero_for_scalars() -> Iterator[None]:
    register_executor("aten.add.Scalar")(lambda inputs, attrs: [torch.zeros_like(inputs[0])])
    yield
    unregister_executor("aten.add.Scalar")


@pytest.mark.usefixtures("zero_for_scalars")
def test_an_executor_runs_no_other_overload_than_it_names() -> None:
    graph = extract_ir(Function(torch.add), (torch.ones(2), torch.ones(2)))

    assert Interpreter(graph).run(torch.ones(2), torch.ones(2)).tolist() == [2.0, 2.0]
    assert "aten.add.Scalar" in list_registered_ops()["execution"]


def test_an_unknown_overload_does_not_become_the_default_one() -> None:
    text = "graph g {\n  input %x: f32[2]\n\n  %y: f32[2] = aten.relu.unheard_of(self=%x)\n\n  return %y\n}\n"

    with pytest.raises(ExecutionError, match=r"there is no operator aten.relu.unheard_of"):
        Interpreter(parse_ir(text)).run(torch.randn(2))


def test_values_know_their_strides() -> None:
    graph = extract_ir(Function(lambda x: x.permute(0, 2, 1) * 1), (torch.randn(2, 3, 4),))

    assert [str(value.type) for value in graph.values] == [
        "f32[2, 3, 4]",
        "f32[2, 4, 3]@[12, 1, 4]",
        "f32[2, 4, 3]@[12, 1, 4]",
    ]


def test_results_of_none_do_not_shift_the_others() -> None:
    def backward(x: Any, gradient: Any) -> Any:
        mask = [False, True, True]
        return torch.ops.aten.convolution_backward(
            gradient, x, torch.ones(1, 1, 2), [1], [1], [0], [1], False, [0], 1, mask
        )[1:]

    x, gradient = torch.randn(1, 1, 4), torch.randn(1, 1, 3)

    result = Interpreter(extract_ir(Function(backward), (x, gradient))).run(x, gradient)

    assert all(torch.equal(left, right) for left, right in zip(result, backward(x, gradient), strict=True))

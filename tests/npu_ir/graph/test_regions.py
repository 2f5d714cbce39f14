"""Regions: graphs that nodes own, in every view of a graph."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import ones, tensor
from torch._higher_order_ops.map import map as map_rows

from npu_ir import (
    ExecutionError,
    Graph,
    GraphError,
    ParseError,
    SerializationError,
    TensorType,
    execute_ir,
    extract_ir,
    load_ir,
    parse_ir,
    save_ir,
)
from npu_ir.symbolic.constraints import Range
from tests.support.corpus.case import Function
from tests.support.documents import load_changed
from tests.support.registration import registered
from tests.support.rows import each_row

F32 = TensorType((2,), torch.float32)


def body(op_type: str = "aten.neg.default", name: str = "body") -> Graph:
    region = Graph(name)
    y = region.add_input("y", F32)
    region.set_outputs([region.insert(op_type, [y], types=F32).outputs[0]])
    return region


TEXT = """\
graph g {
  input %p: bool[]
  input %x: f32[2]

  %cond: f32[2] = higher_order.cond(pred=%p, operands=(%x))
  region true_fn = graph body {
    input %y: f32[2]

    %neg: f32[2] = aten.neg.default(%y)

    return [%neg]
  }
  region false_fn = graph other {
    input %y: f32[2]

    %abs: f32[2] = aten.abs.default(%y)

    return [%abs]
  }

  return %cond
}
"""


def branching() -> Graph:
    return parse_ir(TEXT)


def captured(function: Callable[..., Any], *args: Any) -> Graph:
    return extract_ir(Function(function), args, name="g")


def test_a_graph_knows_its_regions_and_they_their_node() -> None:
    graph = branching()
    node = graph.node("cond")

    assert [part.name for part in graph.graphs()] == ["g", "body", "other"]
    assert list(node.regions) == ["true_fn", "false_fn"]
    assert [part.owner for part in graph.graphs()] == [None, node, node]
    graph.check()
    deeper = Graph("around")
    deeper.insert("loop", types=F32, operands=[], regions={"outer": graph, "last": body(name="last")})
    assert [part.name for part in deeper.graphs()] == ["around", "g", "body", "other", "last"]


@each_row("edit", {
    "node": lambda region: region.insert("aten.abs.default", [region.value("y")], types=F32),
    "name_of_the_region": lambda region: setattr(region, "name", "another"),
    "constant": lambda region: region.add_constant("c", ones(2)),
})  # fmt: skip
def test_graphs_with_different_regions_are_not_equal(edit: Callable[[Graph], object]) -> None:
    graph = branching()

    edit(graph.node("cond").regions["true_fn"])

    assert graph != branching()


def test_regions_under_other_arguments_are_not_equal() -> None:
    graph, other = Graph("g"), Graph("g")
    graph.insert("op", types=F32, operands=[], regions={"a": body(), "b": body()})
    other.insert("op", types=F32, operands=[], regions={"b": body(), "a": body()})

    assert graph != other


def test_a_node_with_regions_is_erased_with_them() -> None:
    graph = branching()
    graph.set_outputs(graph.value("x"))

    graph.erase(graph.node("cond"))

    assert [part.name for part in graph.graphs()] == ["g"]
    graph.check()


def test_symbols_of_a_region_are_those_of_its_program() -> None:
    graph, region = Graph("g"), body()
    region.add_symbol("s", Range(2, 5))
    node = graph.insert("op", types=F32, operands=[], regions={"a": region})

    inner = node.regions["a"]
    inner.add_symbol("t")

    assert {name: str(range) for name, range in graph.symbols.items()} == {"s": "[2, 5]", "t": "[0, inf]"}
    with pytest.raises(GraphError, match="already has a symbol 't'"):
        graph.add_symbol("t")


def test_regions_are_shown_below_their_node() -> None:
    assert str(branching()) == TEXT
    assert parse_ir(TEXT) == branching()


LOOP = """\
graph g {
  input %x: f32[2]
  input %y: i64[2]
  %loop: f32[2] = higher_order.while_loop(carried_inputs=(%x), additional_inputs=(%y))
  region cond_fn = graph c { input %a: f32[2] input %b: i64[2] return [True] }
  region body_fn = graph b { input %a: f32[2] input %b: i64[2] return [%a] }
  return %loop
}
"""
OF_A_PROGRAM = "has parameters, buffers, optimizer state or updates"
INPUT, CALL = "input %y: f32[2]\n\n    %neg", "higher_order.cond(pred=%p, operands=(%x))"


@each_row("old, new, message", {
    "twice": ("region false_fn", "region true_fn", r"region 'true_fn' is given twice\n  at: line 13"),
    "no_equals": ("region true_fn = graph", "region true_fn graph", "expected '=', got 'graph'"),
    "no_graph": ("= graph body {", "= body {", "expected 'graph', got 'body'"),
    "not_closed": ("return [%neg]\n  }", "return [%neg]\n", "expected '}'"),
    "value_from_around": ("[%neg]", "[%x]", r"%x is read before it is produced\n  at: line 11"),
    "value_from_inside": ("return %cond", "return %neg", r"%neg is read before .*\n  at: line 21"),
    "of_another_node": ("region true", "%z: f32[2] = op(%x) region true", "needs its argument 'true_fn'"),
    "missing": ("region false_fn", "%z: f32[2] = op(%x) region a", "needs its argument 'false_fn'"),
    "rule": ("neg.default", "neg_.default", r"in place\n  at: graph 'body', rule 'schemas'"),
    "not_taken": (CALL, "aten.relu.default(self=%x)", "'cond': aten.relu.default takes no regions"),
    "parameter": (INPUT, INPUT.replace("input", "param"), OF_A_PROGRAM),
    "update": ("    return [%neg]", "    update %y = %neg\n    return [%neg]", OF_A_PROGRAM),
    "symbol_twice": ("body {", "body { symbol s in [0, 9] symbol s in [0, 8]", "already has a symbol"),
    "constraint": ("body {", "body { symbol s in [0, 9] require s == 1", "s == 1 is not one of sizes"),
    "takes too many": (INPUT, f"input %z: f32[2] {INPUT}",
        "the region 'true_fn' of node 'cond' takes 2 values, and gets 1\n  at: graph 'g', rule 'regions'"),
    "takes another dtype": (INPUT, INPUT.replace("f32", "i64"),
        r"the region 'true_fn' of node 'cond' takes i64\[2\] as number 0, and gets f32\[2\]"),
    "takes another rank": (INPUT, INPUT.replace("[2]", "[2, 2]"), r"takes f32\[2, 2\] as number 0"),
    "takes a number": (INPUT, INPUT.replace("f32[2]", "int"), "takes int as number 0, and gets"),
    "returns too many": ("[%neg]", "[%neg, %neg]", "'cond' returns 2 values, and should return 1"),
    "condition without what is passed on": ("%a: f32[2] input %b: i64[2] return [True]",
        "%a: f32[2] return [True]", "the region 'cond_fn' of node 'loop' takes 1 values, and gets 2"),
    "body returns another type": ("return [%a]", "return [%b]",
        r"the region 'body_fn' of node 'loop' returns i64\[2\] as number 0, and should return f32\[2\]"),
})  # fmt: skip
def test_text_with_damaged_regions_is_refused(old: str, new: str, message: str) -> None:
    (text,) = (text for text in (TEXT, LOOP) if old in text)

    with pytest.raises((ParseError, GraphError), match=message):
        parse_ir(text.replace(old, new, 1))


@each_row("edit, message", {
    "no_object": (lambda d, regions: regions.update(true_fn=1),
        r"expected an object, found 1\n  at: .*nodes\[0\].regions.true_fn"),
    "unknown_key": (lambda d, regions: regions["true_fn"].update(more=1),
        r"unknown key\n  at: .*nodes\[0\].regions.true_fn.more"),
    "value_from_around": (lambda d, regions: regions["true_fn"]["nodes"][0].update(inputs=["x"]),
        r"no value 'x' here\n  at: .*regions.true_fn.nodes\[0\].inputs\[0\]"),
    "operands": (lambda d, _: d["nodes"][0].update(operands=None), "a node with regions says of each"),
})  # fmt: skip
def test_a_document_with_damaged_regions_is_refused(
    edit: Callable[[Any, Any], object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SerializationError, match=message):
        load_changed(branching(), lambda document: edit(document, document["nodes"][0]["regions"]), tmp_path)


def with_constant(content: torch.Tensor) -> Graph:
    region = body()
    region.add_constant("c", content)
    return region


@each_row("regions", {
    "any name and argument": {name: body(name=name) for name in ("a b", "region", "f[0]", "return", "ß")},
    "the name of the op": {"region": body(name="}")},
    "constants of one name": {"a": with_constant(torch.zeros(3)), "b": with_constant(torch.ones(3))},
    "a large constant": {"a": with_constant(torch.arange(100.0))},
})  # fmt: skip
def test_regions_come_back_from_text_and_file(regions: dict[str, Graph], tmp_path: Path) -> None:
    graph = Graph("g")
    graph.insert("region", types=F32, operands=[], regions=regions)

    save_ir(graph, tmp_path / "g.json")

    assert parse_ir(str(graph), {"c": torch.arange(100.0)} if len(regions) == 1 else {}) == graph
    assert load_ir(tmp_path / "g.json") == graph


def test_an_executor_of_a_node_with_regions_gets_them_by_name() -> None:
    graph = branching()
    seen: dict[str, Any] = {}

    def both(inputs: Any, attrs: Any, regions: Any) -> list[Any]:
        seen.update(regions)
        return [regions["true_fn"](inputs[1])[0] + 10 * regions["false_fn"](inputs[1])[0]]

    with registered("higher_order.cond", both):
        result = execute_ir(graph, (tensor(True), ones(2)))

    assert list(seen) == ["true_fn", "false_fn"]
    assert torch.equal(result, tensor([9.0, 9.0]))


def test_a_region_called_on_something_else_is_refused() -> None:
    graph = branching()

    for wrong, message in {
        (ones(3),): r"input %y is f32\[3\], the graph needs f32\[2\]",
        (ones(2), ones(2)): "expected a tuple of 1, got a tuple of 2",
        (): "expected a tuple of 1, got a tuple of 0",
    }.items():
        with (
            registered(
                "higher_order.cond", lambda inputs, attrs, regions, wrong=wrong: regions["true_fn"](*wrong)
            ),
            pytest.raises(ExecutionError, match=message + r"\n  at: .*in a region of node 'cond'"),
        ):
            execute_ir(graph, (tensor(True), ones(2)))


def test_an_op_that_fails_in_a_region_names_both_nodes() -> None:
    graph = parse_ir(TEXT.replace("aten.neg.default(%y)", "my.failing(%y)"))

    with (
        registered("my.failing", lambda inputs, attrs: 1 / 0),
        pytest.raises(
            ExecutionError,
            match=r"my.failing failed: ZeroDivisionError.*\n  at: node 'neg', in a region of node 'cond'",
        ),
    ):
        execute_ir(graph, (tensor(True), ones(2)))


def test_a_region_of_any_op_returns_numbers_and_literals_too() -> None:
    graph = parse_ir(
        "graph g { input %x: f32[2] %number: int, %same: f32[2], %nothing: none = my.call(x=%x)\n"
        "region body = graph body { input %y: f32[2] return [3, %y, None] }\n"
        "return (%number, %same, %nothing) }"
    )

    with registered("my.call", lambda inputs, attrs, regions: list(regions["body"](*inputs))):
        number, same, nothing = execute_ir(graph, (ones(2),))

    assert (number, nothing) == (3, None)
    assert torch.equal(same, ones(2))


def test_sizes_learned_in_a_region_are_forgotten_after_it() -> None:
    graph = captured(lambda x: map_rows(lambda row: row[row > 0].sum() + row[row > 1].sum(), x), ones(3, 2))
    x = tensor([[1.0, -1], [2, 3], [-1, -1]])

    assert torch.equal(execute_ir(graph, (x,)), tensor([1.0, 10.0, 0.0]))

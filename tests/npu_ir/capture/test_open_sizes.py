"""Graphs with sizes left open: declared, constrained, edited, written and read."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import ones

from npu_ir import (
    Graph,
    GraphError,
    ParseError,
    ScalarType,
    SerializationError,
    TensorType,
    execute_ir,
    load_ir,
    parse_ir,
    save_ir,
)
from npu_ir.core.types import contiguous_strides
from npu_ir.symbolic.constraints import Constraint, Range
from npu_ir.symbolic.expressions import symbol
from tests.support.documents import load_changed
from tests.support.rows import each_row

F32 = TensorType((2,), torch.float32)
S, T = symbol("s"), symbol("t")

TEXT = """\
graph g {
  symbol s in [2, 8]
  symbol t in [-inf, inf]
  require mod(s, 2) == 0
  require t < 2*s-1
  input %x: f32[s, 3*t+1]
  input %y: f32[s, t, 2, 2]@channels_last
  input %z: f32[3, s]@[1, 3]
  input %n: int(s*t)

  %a: f32[s, 3*t+1] = aten.neg.default(self=%x)

  return (%a, %n)
}
"""


def sized() -> Graph:
    """Return a graph that reads a size of its input and makes a view by it."""
    return parse_ir(
        "graph g { symbol s in [1, 9] input %x: f32[s, 6] input %n: int(s)\n"
        "%view: f32[s, 2, 3] = aten.view.default(self=%x, size=(%n, 2, -1)) return %view }"
    )


def test_equal_graphs_have_equal_symbols_and_constraints() -> None:
    graph, wider, constrained = sized(), sized(), sized()
    wider._symbols["s"] = Range(1, 10)
    constrained.add_constraint(Constraint(S, "!=", 2))

    assert graph == sized()
    assert graph != wider
    assert graph != constrained
    assert graph.clone() == graph
    assert constrained.clone() == constrained


def test_a_part_of_a_graph_keeps_its_symbols() -> None:
    graph = sized()

    part = graph.subgraph(graph.nodes)

    part.check()
    assert dict(part.symbols) == dict(graph.symbols)
    assert torch.equal(execute_ir(part, (ones(4, 6), 4))[0], ones(4, 2, 3))


def test_a_value_may_stand_for_one_of_an_equal_expression_only() -> None:
    graph = Graph("g")
    s = graph.add_symbol("s")
    a = graph.add_input("a", TensorType((2 * (s + 1),), torch.float32))
    b = graph.add_input("b", TensorType((s + s + 2,), torch.float32))
    c = graph.add_input("c", TensorType((2 * s,), torch.float32))
    graph.set_outputs([a])

    graph.replace_all_uses(a, b)

    assert graph.outputs == (b,)
    with pytest.raises(
        GraphError, match=r"%c is f32\[2\*s\], it cannot stand for %b, which is f32\[2\*s\+2\]"
    ):
        graph.replace_all_uses(b, c)


def test_strides_of_symbolic_shapes_are_expressions() -> None:
    assert contiguous_strides((S, T, 3)) == (3 * T, 3, 1)
    assert TensorType((S, 3, T, 2), torch.float32, (6 * T, 1, 6, 3)).memory_format == torch.channels_last
    assert (
        str(TensorType((S, T, 2, 2), torch.float32, (4 * T, 1, 2 * T, T))) == "f32[s, t, 2, 2]@channels_last"
    )


def test_a_type_with_its_sizes_filled_in_is_contiguous_where_it_is() -> None:
    type = TensorType((S, 3), torch.float32, (T, 1))

    assert type.symbols == {"s", "t"}
    assert type.substitute({"s": 4, "t": 3}) == TensorType((4, 3), torch.float32)
    assert str(type.substitute({"s": 4, "t": 5})) == "f32[4, 3]@[5, 1]"
    assert str(type.substitute({"s": 4})) == "f32[4, 3]@[t, 1]"


def test_an_input_of_a_node_becomes_plain_data() -> None:
    graph = sized()
    node = graph.node("view")

    graph.set_literal(node, 1, -1)

    assert dict(node.attrs) == {"size": [-1, 2, -1]}
    assert node.operands == ("self",)
    assert [value.name for value in node.inputs] == ["x"]
    assert graph.value("n").uses == ()
    graph.set_literal(node, 0, None)
    assert graph.value("x").uses == ()
    assert node.inputs == ()


def test_the_uses_of_the_other_inputs_are_counted_anew() -> None:
    graph = Graph("g")
    values = [graph.add_input(name, ScalarType("int")) for name in "abc"]
    node = graph.insert("my.op", [*values, values[0]], types=F32, operands=["p", "q", "r", "s"])

    graph.set_literal(node, 1, 7)

    assert [value.name for value in node.inputs] == ["a", "c", "a"]
    assert node.operands == ("p", "r", "s")
    assert dict(node.attrs) == {"q": 7}
    assert [value.uses for value in values] == [((node, 0), (node, 2)), (), ((node, 1),)]
    graph.check()


def test_open_sizes_come_back_from_text_and_file(tmp_path: Path) -> None:
    graph = parse_ir(TEXT)

    save_ir(graph, tmp_path / "g.json")

    assert str(graph) == TEXT
    assert load_ir(tmp_path / "g.json") == graph
    assert str(load_ir(tmp_path / "g.json")) == TEXT


def test_words_of_declarations_may_be_names(tmp_path: Path) -> None:
    graph = Graph("symbol")
    size = graph.add_symbol("require")
    x = graph.add_input("symbol", TensorType((size, graph.add_symbol("region")), torch.float32))
    for op_type in ("symbol", "require", "region"):
        graph.insert(op_type, [x], {"in": 1}, types=x.type)
    graph.set_outputs([x])

    assert parse_ir(str(graph)) == graph


FIRST = "%x: f32[s, 3*t+1]"


@each_row("old, new, message", {
    "empty_range": ("symbol s in [2, 8]", "symbol s in [8, 2]",
        r"no value is in the range \[8, 2\] of symbol 's'\n  at: line 2"),
    "open_range": ("symbol s in [2, 8]", "symbol s in [2, 8", "expected ']'"),
    "float_end": ("symbol s in [2, 8]", "symbol s in [2.5, 8]", "expected an integer, got 2.5"),
    "wrong_infinity": ("symbol s in [2, 8]", "symbol s in [inf, 8]", "expected a number, got 'inf'"),
    "no_in": ("symbol s in [2, 8]", "symbol s [2, 8]", "expected 'in'"),
    "twice": ("symbol t", "symbol s", "already has a symbol 's'\n  at: line 3"),
    "undeclared": ("  symbol s in [2, 8]\n", "", "the constraint mod.* has an unknown symbol 's'"),
    "relation": ("== 0", "= 0", "'=' is not a relation: expected one of ==, !=, <="),
    "no_symbol": ("mod(s, 2) == 0", "2 == 2", "the constraint 2 == 2 has no symbol\n  at: line 4"),
    "size": (FIRST, "%x: f32[s, 3*r+1]", "but no symbol r is declared"),
    "number": ("int(s*t)", "int(s*r)", "but no symbol r is declared"),
    "negative_size": (FIRST, "%x: f32[s, 0-3]", r"expected an integer from 0 to 2\*\*63 - 1"),
})  # fmt: skip
def test_text_with_damaged_sizes_is_refused(old: str, new: str, message: str) -> None:
    assert old in TEXT

    with pytest.raises((ParseError, GraphError), match=message):
        parse_ir(TEXT.replace(old, new, 1))


def test_constraints_are_of_sizes_that_inputs_tell() -> None:
    with pytest.raises(
        GraphError, match=r"the constraint u == 2 is not one of sizes of the inputs of a program"
    ):
        parse_ir(
            "graph g { symbol u in [0, 9] require u == 2 input %x: i64[]\n"
            "%n: int(u) = aten.item.default(self=%x) return %n }"
        )


def symbols(**ranges: Any) -> Callable[[Any], object]:
    return lambda document: document["symbols"].update(ranges)


def one_more(constraint: list[Any]) -> Callable[[Any], object]:
    return lambda document: document["constraints"].append(constraint)


def typed(index: int, type: Any) -> Callable[[Any], object]:
    return lambda document: document["arguments"][index].update(type=type)


RELATION = "expected two expressions with a relation between them, found"
NUMBER = "is neither an integer nor an expression"


@each_row("edit, message", {
    "empty_range": (symbols(s=[8, 2]), r"no value is in the range \[8, 2\][\s\S]*at: .*symbols.s"),
    "no_pair": (symbols(s=[2]), r"expected a list of two, found \[2\][\s\S]*symbols.s"),
    "float_end": (symbols(s=[2.5, 8]), r"pair of integers, or null for an open end, found \[2.5, 8\]"),
    "bool_end": (symbols(s=[True, 8]), "expected a pair of integers, or null for an open end"),
    "name": (symbols(**{"1s": [2, 8]}), "'1s' cannot be the name of a symbol"),
    "no_object": (lambda d: d.update(symbols=[]), r"expected an object[\s\S]*symbols"),
    "undeclared": (lambda d: d["symbols"].pop("s"), r"unknown symbol 's'[\s\S]*at: .*constraints\[0\]"),
    "no_list": (lambda d: d.update(constraints={}), r"expected a list[\s\S]*constraints"),
    "short": (one_more(["s", "==="]), rf"{RELATION} \['s', '==='\]"),
    "relation": (one_more(["s", "=", 2]), RELATION),
    "relation_type": (one_more(["s", ["=="], 2]), RELATION),
    "expression": (one_more(["s+", "==", 2]),
        r"'s\+' is not an expression: expected a word[\s\S]*constraints\[2\]\[0\]"),
    "float": (one_more(["s", "==", [2]]), rf"\[2\] {NUMBER}[\s\S]*constraints\[2\]\[2\]"),
    "no_symbol": (one_more([2, "==", 2]), r"the constraint 2 == 2 has no symbol[\s\S]*constraints\[2\]"),
    "size": (typed(0, ["f32", ["s*"]]), r"'s\*' is not an expression[\s\S]*type\[1\]\[0\]"),
    "endless": (typed(0, ["f32", ["s+" * 9999 + "s"]]), NUMBER),
    "list_size": (typed(0, ["f32", [[]]]), r"\[\] is not a size: expected an integer from 0"),
    "layout": (typed(0, ["f32", ["s", "t"], "sideways"]), "this PyTorch has no layout 'sideways'"),
    "number": (typed(3, {"int": [1]}), NUMBER),
    "float_number": (typed(3, {"float": 1}), r"expected \[dtype, shape\]"),
    "negative": (typed(0, ["f32", ["0-3"]]), "'0-3' is an integer: expected a JSON number"),
})  # fmt: skip
def test_a_document_with_damaged_sizes_is_refused(
    edit: Callable[[Any], object], message: str, tmp_path: Path
) -> None:
    with pytest.raises(SerializationError, match=message):
        load_changed(parse_ir(TEXT), edit, tmp_path)

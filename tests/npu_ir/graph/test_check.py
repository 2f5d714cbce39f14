"""The rules of the IR: each is broken once, behind the back of the graph's methods, and says so."""

import re
from collections.abc import Callable

import pytest
import torch

from npu_ir import Argument, Graph, GraphError, InputKind, ScalarType, TensorType, parse_ir
from npu_ir.core.structure import LEAF_STRUCTURE, Structure
from npu_ir.graph.rules.check import RULES
from npu_ir.symbolic.constraints import Constraint
from npu_ir.symbolic.expressions import call, symbol
from tests.support.rows import each_row

F32 = TensorType((2, 3), torch.float32)
BAD_DTYPE = TensorType((2, 3), "f32")


TEXT = """
graph sample {
  symbol s0 in [0, inf]
  input %x: f32[2, 3]
  input %n: int
  input %t: f32[s0, 2]
  param %w: f32[2, 3] aliases ["v"]
  buffer %s: f32[2, 3]
  state %m: f32[2, 3]
  const %c: f32[2, 3] = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]
  call (%x, %t, n=%n)

  prologue {
    %half: f32[2, 3] = aten.mul.Tensor(self=%w) {other=0.5}
    %third: f32[2, 3] = aten.relu.default(%half)
  }
  %add: f32[2, 3] = aten.add.Tensor(self=%x, other=%w) {alpha=2}
  %cat: f32[4, 3] = aten.cat.default(tensors=[%add, %c])
  %custom: f32[2, 3] = custom(%x)
  %loop: f32[2, 3] = loop(carried=%x)
  region body = graph body {
    input %y: f32[2, 3]

    %relu: f32[2, 3] = aten.relu.default(%y)

    return [%relu]
  }

  update %s = %add
  return [%cat, 1]
}
"""


def sample() -> Graph:
    return parse_ir(TEXT)


def with_argument(name: str, **changes: object) -> Callable[[Graph], None]:
    def change(graph: Graph) -> None:
        value = graph.value(name)
        old = value.argument
        fields = {field: getattr(old, field) for field in ("kind", "target", "aliases", "persistent", "data")}
        value.argument = Argument(**{**fields, **changes})

    return change


def swap_add_and_cat(graph: Graph) -> None:
    add, cat = graph.node("add"), graph.node("cat")
    add._previous._next, cat._previous = cat, add._previous
    add._next, cat._next._previous = cat._next, add
    cat._next, add._previous = add, cat


def set_attr(node: str, name: str, value: object) -> Callable[[Graph], None]:
    return lambda graph: graph.node(node)._attrs.__setitem__(name, value)


def set_value(name: str, field: str, content: object) -> Callable[[Graph], None]:
    return lambda graph: setattr(graph.value(name), field, content)


def set_node(name: str, field: str, content: object) -> Callable[[Graph], None]:
    return lambda graph: setattr(graph.node(name), field, content)


def in_region(breaks: Callable[[Graph], object]) -> Callable[[Graph], None]:
    return lambda graph: breaks(graph.node("loop").regions["body"])  # type: ignore[return-value]


def require(left: str) -> Callable[[Graph], None]:
    return lambda graph: graph._constraints.append(Constraint(symbol(left), "==", 2))


def give_away_the_region(graph: Graph) -> None:
    graph.node("loop").regions["body"]._owner = graph.node("add")


def count_symbols_apart(region: Graph) -> None:
    region._symbols = {}


BROKEN = {
    "names": [
        (set_value("x", "_name", "y"), "%y is not the value its graph knows by that name"),
        (set_node("add", "_name", "cat"), "node 'cat' is not the node its graph knows by that name"),
        (lambda g: g._values.__setitem__("y", g.value("x")),
            "the graph knows names of values or nodes that are not in it"),
        (lambda g: g._nodes.__setitem__("y", g.node("add")), "the graph knows names of values"),
    ],
    "outputs": [
        (set_value("add", "producer", None), "%add is output 0 of node 'add' but does not say so"),
        (set_value("add", "index", 1), "%add is output 0 of node 'add'"),
        (lambda g: setattr(g.value("add"), "argument", g.value("x").argument),
            "%add is output 0 of node 'add'"),
        (lambda g: setattr(g.value("x"), "producer", g.node("add")),
            "%x comes from outside but also names a producer"),
        (set_value("x", "argument", None), "%x comes from outside"),
    ],
    "order": [
        (swap_add_and_cat, "node 'cat' reads %add before it is produced"),
        (lambda g: setattr(g.node("add"), "_inputs", (sample().value("x"), g.value("w"))),
            "node 'add' reads %x before it is produced"),
        (lambda g: setattr(g, "_results", (LEAF_STRUCTURE, (sample().value("x"),))),
            "the graph returns %x, which nothing in it produces"),
        (lambda g: g._updates.__setitem__(g.value("s"), sample().value("x")),
            "the graph returns %x, which nothing in it produces"),
    ],
    "uses": [
        (lambda g: g.value("x")._uses.clear(), "the recorded uses of %x are not the places that read it"),
        (lambda g: g.value("x")._uses.__setitem__((g.node("cat"), 0), None), "the recorded uses of %x"),
        (lambda g: g.value("cat")._uses.__setitem__((None, 1), None), "the recorded uses of %cat"),
        (lambda g: g.value("add")._uses.pop((None, g.value("s"))), "the recorded uses of %add"),
    ],
    "types": [
        (set_value("x", "_type", "f32"), "%x has no type of the IR: 'f32'"),
        (set_value("x", "_type", ScalarType("complex")), "%x has no type of the IR: ScalarType"),
        (set_value("n", "_type", ScalarType("float", 3)),
            "%n is float(3): only an int can be known, by an integer or expression"),
        (set_value("n", "_type", ScalarType("int", 2.5)), "%n is int(2.5): only an int can be known"),
        (set_value("n", "_type", ScalarType("int", True)), "%n is int(True): only an int can be known"),
        (set_value("w", "_type", TensorType((symbol("s0"),), torch.float32)),
            "%w comes with the weights or the graph: its sizes are integers, not f32[s0]"),
        (set_value("t", "_type", TensorType((call("truediv", symbol("s0"), 2),), torch.float32)),
            "%t: a size is whole for all values of its symbols, not as in (s0/2,)"),
        (set_value("x", "_type", BAD_DTYPE), "%x: 'f32' is not a dtype"),
        (set_value("x", "_type", TensorType((2, -3), torch.float32)),
            "%x: sizes and strides are integers from 0 to 2**63 - 1 or expressions, not (2, -3)"),
        (set_value("x", "_type", TensorType((True, 3), torch.float32)), "%x: sizes and strides"),
        (set_value("x", "_type", TensorType((2.0, 3), torch.float32)), "%x: sizes and strides"),
        (set_value("x", "_type", TensorType((2**63, 3), torch.float32)), "%x: sizes and strides"),
        (set_value("x", "_type", TensorType((2, 3), torch.float32, (3, -1))),
            "%x: sizes and strides are integers from 0"),
        (set_value("x", "_type", TensorType((2, 3), torch.float32, (1,))), "%x: 1 strides for 2 dimensions"),
    ],
    "symbols": [
        (set_value("t", "_type", TensorType((symbol("s1"), 2), torch.float32)),
            "%t is f32[s1, 2], but no symbol s1 is declared"),
        (set_value("t", "_type", TensorType((symbol("s0") * symbol("s0"),), torch.float32)),
            "%t is f32[s0**2], but nothing before it determines s0"),
        (set_value("add", "_type", TensorType((symbol("s1"),), torch.float32)),
            "%add is f32[s1], but no symbol s1 is declared"),
        (set_value("n", "_type", ScalarType("int", symbol("s1"))), "%n is int(s1), but no symbol s1"),
        (require("s1"), "the constraint s1 == 2 is not one of sizes of the inputs of a program"),
        (in_region(require("s0")), "the constraint s0 == 2 is not one of sizes of the inputs of a program"),
        (in_region(lambda g: setattr(g.value("y"), "_type", TensorType((symbol("s1"),), torch.float32))),
            "%y is f32[s1], but no symbol s1 is declared"),
    ],
    "regions": [
        (give_away_the_region, "the region 'body' of node 'loop' does not know that it belongs there"),
        (in_region(count_symbols_apart), "the region 'body' of node 'loop' does not know"),
        (in_region(lambda g: g.add_parameter("w", F32)),
            "the region 'body' of node 'loop' has parameters, buffers, optimizer state or updates: pass in"),
        (in_region(lambda g: g.add_state("w", F32)), "the region 'body' of node 'loop' has parameters"),
        (in_region(lambda g: g.add_buffer("w", F32)), "the region 'body' of node 'loop' has parameters"),
        (in_region(lambda g: g.set_update(g.value("y"), g.value("relu"))),
            "the region 'body' of node 'loop' has parameters"),
    ],
    "prologue": [
        (
            set_node("half", "_op_type", "custom"),
            (
                "node 'half' is in the prologue, but custom is not known to compute the same "
                "each time, and nothing else"
            )
        ),
        (set_node("half", "_in_prologue", False),
            "node 'third' is in the prologue, but stands behind 'half' of the body"),
        (set_node("half", "_in_prologue", False),
            "node 'third' is in the prologue, but %half is computed by node 'half' of the body"),
        (lambda g: setattr(g.node("half"), "_inputs", (g.value("x"),)),
            "node 'half' is in the prologue, but %x is an input of the call"),
        (lambda g: g._updates.__setitem__(g.value("w"), g.value("add")),
            "node 'half' is in the prologue, but %w is updated by the graph"),
        (set_value("half", "_type", TensorType((symbol("s0"),), torch.float32)),
            "node 'half' is in the prologue, but %half is f32[s0], of a size that is not fixed"),
        (lambda g: setattr(g, "_last_prologue", g._root),
            "the graph does not know which node of the prologue is its last"),
        (in_region(lambda g: setattr(g.node("relu"), "_in_prologue", True)),
            "node 'relu' is in the prologue, but graph 'body' is a region: a program has a prologue"),
    ],
    "attrs": [
        (set_attr("custom", "a", {1: "b"}),
            "attribute 'a' of node 'custom': {1: 'b'} of type dict is not plain data"),
        (set_attr("custom", "a", (1, 2)), "attribute 'a' of node 'custom' is not plain data: (1, 2)"),
        (set_attr("custom", "a", [torch.Size([1])]), "attribute 'a' of node 'custom' is not plain data"),
    ],
    "records": [
        (set_attr("custom", "_tensor_list_sizes", 2),
            "node 'custom': _tensor_list_sizes is a list of sizes, None for an absent list: not 2"),
        (set_attr("custom", "_tensor_list_none_masks", [True]),
            "node 'custom': _tensor_list_none_masks is a list of lists of bools, True for None: not [True]"),
        (set_node("add", "_operands", ("self",)), "node 'add' has 2 inputs but 1 operand names"),
    ],
    "schemas": [
        (set_attr("add", "beta", 1), "node 'add': aten.add.Tensor has no argument 'beta'"),
        (set_node("add", "_operands", ("self", "self")),
            "node 'add': aten.add.Tensor needs its argument 'other'"),
        (set_attr("cat", "_tensor_list_sizes", [1]),
            "node 'cat': aten.cat.default leaves 1 of 2 inputs unused"),
        (set_attr("add", "alpha", "ab"),
            "node 'add': aten.add.Tensor takes number as 'alpha', not \"ab\"; its schema"),
        (set_attr("cat", "dim", [0]),
            "node 'cat': aten.cat.default takes int as 'dim', not [0]; its schema is aten::"),
        (set_node("add", "_op_type", "aten.add_.Tensor"),
            "node 'add': aten.add_.Tensor changes a tensor in place"),
    ],
    "signature": [
        (lambda g: setattr(g, "_call", (LEAF_STRUCTURE, (g.value("x"),))),
            "the call: a call is a tuple of two"),
        (lambda g: setattr(g, "_results", (Structure("tuple", 1), ())),
            "the results: a tuple has no context"),
        (lambda g: setattr(g, "_results", (LEAF_STRUCTURE, ())), "the results: 1 places for 0 leaves"),
        (lambda g: setattr(g, "_results", (LEAF_STRUCTURE, ([1],))),
            "the results: a leaf is a value or a single literal, not a list"),
        (lambda g: setattr(g, "_call", (g.call[0], (g.value("x"), 1))),
            "the call must use every input of the graph, and no other value"),
        (lambda g: setattr(g, "_call", (g.call[0], (g.value("x"), g.value("w")))),
            "the call must use every input"),
        (lambda g: g._updates.__setitem__(g.value("c"), g._updates.pop(g.value("s"))),
            "%c is updated but is not an input, parameter, buffer or optimizer state"),
        (lambda g: g._updates.__setitem__(g.value("add"), g._updates.pop(g.value("s"))),
            "%add is updated but is not an input"),
        (lambda g: g._updates.__setitem__(g.value("n"), g._updates.pop(g.value("s"))),
            "%n is int but is updated with %add, which is f32[2, 3]"),
        (lambda g: g._updates.__setitem__(g.value("w"), g.value("cat")),
            "%w is f32[2, 3] but is updated with %cat, which is f32[4, 3]"),
        (lambda g: g._updates.__setitem__(g.value("s"), g.value("n")),
            "%s is f32[2, 3] but is updated with %n, which is int"),
        (lambda g: g.set_update(g.add_parameter("other", F32, aliases=["s"]), g.value("add")),
            "two updated values are called 's' outside"),
    ],
    "overlaps": [
        (with_argument("x", overlaps=("nowhere", 0)), "%x cannot overlap 'nowhere': there is no such input"),
        (with_argument("x", overlaps=("x", 0)), "%x cannot overlap 'x': %x and %x are not two inputs"),
        (with_argument("x", overlaps=("n", 0)),
            "%x cannot overlap 'n': %x and %n are not tensors of fixed sizes"),
        (with_argument("w", overlaps=("x", 0)), "%w cannot overlap 'x': %w and %x are not two inputs"),
    ],
    "data": [
        (with_argument("c", data=None), "constant %c has no data"),
        (with_argument("w", data=torch.ones(2, 3)),
            "param %w has data: it comes with the weights or from the user"),
        (with_argument("x", data=torch.ones(2, 3)), "input %x has data"),
        (with_argument("s", data=torch.ones(2, 3)), "buffer %s has data"),
        (with_argument("c", data=torch.ones(3)), "%c is f32[2, 3] but its data is f32[3]"),
        (with_argument("s", aliases=("w",)), "'w' names more than one parameter"),
        (with_argument("m", target="w"), "'w' names more than one parameter"),
        (with_argument("m", data=torch.ones(2, 3)), "state %m has data"),
        (with_argument("c", target="s"), "'s' names more than one parameter"),
        (with_argument("w", aliases=("w",)), "'w' names more than one parameter"),
    ],
}  # fmt: skip


@pytest.mark.smoke
def test_the_sample_keeps_every_rule() -> None:
    sample().check()
    assert len(list(sample().graphs())) == 2
    assert {value.argument.kind for value in sample().arguments if value.argument is not None} == set(
        InputKind
    )


def test_every_rule_is_broken_here() -> None:
    assert list(BROKEN) == [rule.name for rule in RULES]


@each_row(
    ("name", "breaks", "message"),
    [
        pytest.param(name, breaks, message, id=f"{name}-{index}")
        for name, cases in BROKEN.items()
        for index, (breaks, message) in enumerate(cases)
    ],
)
def test_a_broken_rule_is_named_with_what_breaks_it(
    name: str, breaks: Callable[[Graph], None], message: str
) -> None:
    graph = sample()
    rule = next(rule for rule in RULES if rule.name == name)

    breaks(graph)

    assert any(problem.startswith(message) for part in graph.graphs() for problem in rule.violations(part))
    with pytest.raises(GraphError, match="at: graph '(sample|body)', rule '"):
        graph.check()


@each_row("name", [name for name in BROKEN if name != "outputs"])
def test_a_rule_can_be_broken_alone(name: str) -> None:
    breaks, message = BROKEN[name][0]
    graph = sample()
    rule = next(rule for rule in RULES if rule.name == name)

    breaks(graph)

    pattern = rf"^{re.escape(message)}.*\n  at: graph 'sample', rule '{name}': {re.escape(rule.statement)}$"
    with pytest.raises(GraphError, match=pattern):
        graph.check()

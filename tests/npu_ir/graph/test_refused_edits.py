"""Edits that a graph refuses: each says why, and changes nothing."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._subclasses import FakeTensorMode

from npu_ir import Graph, GraphError, OpNode, Provenance, TensorType, parse_ir
from npu_ir.symbolic.constraints import Constraint, Range
from npu_ir.symbolic.expressions import symbol
from tests.support.rows import each_row

F32 = TensorType((2, 3), torch.float32)
RELU = "aten.relu.default"
TEXT = """
graph g {
  symbol s in [2, 8]
  input %x: f32[2, 3]
  input %n: int(s)
  input %changed: f32[2, 3]
  input %free: int
  input %double: f64[2, 3]
  input %open: f32[s, 2]
  param %w: f32[2, 3]
  param %trained: f32[2, 3]
  buffer %b: f32[2, 3]
  buffer %small: f32[2]
  buffer %read: f32[2, 3]
  buffer %returned: f32[2, 3]
  buffer %counter: f32[2, 3]
  state %m: f32[2, 3]
  const %c: f32[1] = [1.0]

  prologue {
    %first: f32[2, 3] = aten.relu.default(self=%w)
    %second: f32[2, 3] = aten.add.Tensor(self=%first, other=%read)
  }
  %relu: f32[2, 3] = aten.relu.default(self=%x)
  %view: f32[s, 2, 1] = aten.view.default(self=%open, size=(%n, 2, -1))
  %add: f32[2, 3] = aten.add.Tensor(self=%relu, other=%second)
  %custom: f32[2, 3] = custom(%w)
  %of_buffer: f32[2, 3] = aten.relu.default(self=%b)
  %of_trained: f32[2, 3] = aten.relu.default(self=%trained)
  %random: f32[2, 3] = aten.rand_like.default(self=%w)
  %open_size: i64[s, 2] = aten.nonzero.default(self=%w)
  %loop: f32[2, 3] = loop(carried=%x)
  region body = graph body {
    input %y: f32[2, 3]
    %full: f32[2, 3] = aten.full.default() {size=[2, 3], fill_value=1.0}
    return [%y]
  }

  update %b = %add
  update %trained = %add
  update %counter = %add
  update %changed = %add
  return (%add, %returned)
}
"""


def graph() -> Graph:
    return parse_ir(TEXT)


def region(**symbols: Range) -> Graph:
    made = Graph("body")
    for name, range in symbols.items():
        made.add_symbol(name, range)
    made.set_outputs([made.add_input("y", F32)])
    return made


def relu(graph: Graph, *names: str, **options: Any) -> OpNode:
    options = {"types": F32, "operands": ["self"][: len(names)], **options}
    return graph.insert(RELU, [graph.value(name) for name in names], **options)


def own(graph: Graph, regions: dict[str, Graph]) -> OpNode:
    return graph.insert("op", types=F32, operands=[], regions=regions)


def move(name: str) -> Callable[[Graph], None]:
    return lambda graph: graph.move_to_prologue(graph.node(name))


class Tagged(torch.Tensor):
    """A tensor subclass."""


def fake() -> torch.Tensor:
    with FakeTensorMode():
        return torch.ones(2)


def constant(data: Callable[[], torch.Tensor]) -> Callable[[Graph], object]:
    return lambda g: g.add_constant("d", data())


NO_DATA = r", not a dense tensor with data[\s\S]*fix: pass a plain torch.Tensor"
REMOVABLE = "is not a parameter, buffer, optimizer state or constant"
CALL = "the call must use every input of the graph, and no other value"
# The names of the rows, and of their groups, say what is wrong with an edit.
REFUSED: dict[str, dict[str, tuple[Callable[[Graph], object], str]]] = {
    "a name that is taken": {
        "input": (lambda g: g.add_input("y", F32, target="x"), "graph 'g' already has input 'x'"),
        "param": (lambda g: g.add_parameter("w", F32, name="y"), "graph 'g' already has param 'w'"),
        "buffer": (lambda g: g.add_buffer("b", F32, name="y"), "graph 'g' already has buffer 'b'"),
        "state": (lambda g: g.add_state("m", F32, name="y"), "graph 'g' already has state 'm'"),
        "const": (lambda g: g.add_constant("c", torch.ones(1), name="y"), "graph 'g' already has const 'c'"),
    },
    "data": {
        "meta": (constant(lambda: torch.ones(2, device="meta")), "of 'd' is a Tensor of meta" + NO_DATA),
        "fake": (constant(fake), "the data of 'd' is a FakeTensor of cpu" + NO_DATA),
        "sparse": (constant(lambda: torch.eye(2).to_sparse()), "is a Tensor of torch.sparse_coo" + NO_DATA),
        "quantized": (constant(lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8)),
            "is a Tensor of torch.qint8" + NO_DATA),
        "subclass": (constant(lambda: torch.ones(2).as_subclass(Tagged)), "is a Tagged of cpu" + NO_DATA),
        "shape": (lambda g: g.add_buffer("d", F32, persistent=False, data=torch.ones(3, 2)),
            r"'d' is f32\[2, 3\], its data is f32\[3, 2\]"),
        "dtype": (lambda g: g.add_constant("d", torch.ones(2, 3).double(), type=F32),
            r"'d' is f32\[2, 3\], its data is f64\[2, 3\]"),
        "open size": (
            lambda g: g.add_constant("d", torch.ones(3), type=TensorType((symbol("s"),), torch.float32)),
            r"'d' is f32\[s\], its data is f32\[3\]",
        ),
        "of a persistent buffer": (lambda g: g.add_buffer("d", F32, data=torch.ones(2, 3)),
            "buffer 'd' is persistent: its content comes with the weights"),
    },
    "an argument to erase": {
        "read": (lambda g: g.erase_argument(g.value("read")),
            r"%read is still read by second\n  at: graph 'g'\n  fix: replace_all_uses first"),
        "returned": (lambda g: g.erase_argument(g.value("returned")), "still read by the results"),
        "updated": (lambda g: g.erase_argument(g.value("counter")),
            r"%counter is updated by the graph\n  fix: drop the update first: set_update\(value, None\)"),
        "input": (lambda g: g.erase_argument(g.value("x")), f"%x {REMOVABLE}[\\s\\S]*part of the signature"),
        "computed": (lambda g: g.erase_argument(g.value("relu")), f"%relu {REMOVABLE}"),
        "foreign": (lambda g: g.erase_argument(graph().value("w")), "%w is not a value of graph 'g'"),
    },
    "an input to fix or replace": {
        "read": (lambda g: g.fix_input(g.value("n"), 4), "%n is still read by view"),
        "foreign": (lambda g: g.fix_input(graph().value("n"), 4), "%n is not a value of graph 'g'"),
        "computed": (lambda g: g.fix_input(g.value("view"), 4),
            r"%view is not an input\n  fix: erase_argument removes the others"),
        "param": (lambda g: g.fix_input(g.value("w"), 4), "%w is not an input"),
        "updated": (lambda g: g.fix_input(g.value("changed"), 4), "%changed is updated by the graph"),
        "to an object": (lambda g: g.fix_input(g.value("free"), {1}), "is not plain data"),
        "read, replaced": (lambda g: g.replace_input(g.value("n"), F32), "%n is still read by view"),
        "computed, replaced": (lambda g: g.replace_input(g.value("view"), F32), "%view is not an input"),
        "updated, replaced": (lambda g: g.replace_input(g.value("changed"), F32), "%changed is updated by"),
    },
    "a call": {
        "missing": (lambda g: g.set_call([]), CALL),
        "another value": (lambda g: g.set_call([*g.inputs, g.value("relu")]), CALL),
        "foreign": (lambda g: g.set_call([graph().value("x")]), "%x is not a value of graph 'g'"),
        "a tensor": (lambda g: g.set_call([torch.ones(1)]), r"tensor\(\[1\.\]\) of type Tensor is not plain"),
        "keyword": (lambda g: g.set_call(g.inputs, {1: 2}), "a call is a tuple of two"),
        "leaves": (lambda g: g.set_call_structure(g.call[0], []), "with 6 places cannot hold 0 leaves"),
        "structure": (lambda g: g.set_call_structure(g.results[0], [1, 2]), "a call is a tuple of two"),
    },
    "results": {
        "foreign": (lambda g: g.set_outputs([graph().value("x")]), "%x is not a value of graph 'g'"),
        "of a region": (lambda g: g.set_outputs(g.node("loop").regions["body"].value("y")), "%y is not a"),
        "an object": (lambda g: g.set_outputs([object()]), "of type object is not plain data"),
        "leaves": (lambda g: g.set_results(g.results[0], []), "with 2 places cannot hold 0 leaves"),
        "a list": (lambda g: g.set_results(g.results[0], [[1], 2]),
            r"a leaf is a value or a single literal, not \[1\]\n  fix: make the list part of the structure"),
    },
    "an update": {
        "of a computed value": (lambda g: g.set_update(g.value("relu"), g.value("add")),
            "%relu cannot be updated\n  fix: update a tensor: an input, a parameter, a buffer or optimizer"),
        "of a constant": (lambda g: g.set_update(g.value("c"), g.value("c")), "%c cannot be updated"),
        "of a number": (lambda g: g.set_update(g.value("n"), g.value("n")), "%n cannot be updated"),
        "of another type": (lambda g: g.set_update(g.value("small"), g.value("add")),
            r"%add is f32\[2, 3\], it cannot stand for %small, which is f32\[2\]"),
        "foreign": (lambda g: g.set_update(graph().value("b"), g.value("add")), "%b is not a value of"),
        "by foreign": (lambda g: g.set_update(g.value("b"), graph().value("add")), "%add is not a value"),
        "of an input, replaced": (lambda g: g.set_update(g.value("x"), g.value("c"), replaces=True),
            r"%c is f32\[1\], it cannot stand for %x"),
        "of a buffer the prologue reads": (lambda g: g.set_update(g.value("read"), g.value("add")),
            "%read cannot be updated: node 'second' of the prologue reads it\n  fix: what the graph updates"),
    },
    "a node to insert": {
        "foreign": (lambda g: g.insert(RELU, [graph().value("x")], types=F32), "%x is not a value of graph"),
        "attr": (lambda g: relu(g, "x", attrs={"a": object()}),
            r"is not plain data\n  at: attribute 'a' of aten.relu.default\n  fix: attributes hold"),
        "attr name": (lambda g: relu(g, "x", attrs={1: 2}), "attributes have names, not 1\n  at: aten.relu"),
        "operands": (lambda g: relu(g, "x", operands=[]), "relu.default: 1 inputs but 0 operand names"),
        "output names": (lambda g: relu(g, "x", output_names=[]), "default: 1 outputs but 0 output names"),
        "place": (lambda g: relu(g, "x", before=g.node("relu"), after=g.node("relu")),
            "a node is inserted before one node or after one, not both"),
        "before": (lambda g: relu(g, "x", before=graph().node("add")), "node 'add' is not in graph 'g'"),
        "after": (lambda g: relu(g, "x", after=graph().node("add")), "node 'add' is not in graph 'g'"),
        "before the prologue": (lambda g: relu(g, "x", before=g.node("second")),
            "node 'second' is in the prologue: a node is inserted into the body\n  fix: insert it there"),
        "sizes": (lambda g: relu(g, "x", attrs={"_tensor_list_sizes": [-1]}),
            r"_tensor_list_sizes is a list of sizes, .*not \[-1\]\n  at: aten.relu.default"),
        "masks": (lambda g: relu(g, "x", attrs={"_tensor_list_none_masks": [1]}),
            r"_tensor_list_none_masks is a list of lists of bools, .*not \[1\]"),
    },
    "a region": {
        "of another node": (lambda g: own(g, {"a": g.node("loop").regions["body"]}),
            r"the region 'a' belongs to another node\n  fix: pass a clone of it"),
        "itself": (lambda g: own(g, {"a": g}), "the region 'a' belongs to another node"),
        "around it": (lambda g: own(g.node("loop").regions["body"], {"a": g}),
            "the region 'a' belongs to another node"),
        "twice": (lambda g: own(g, dict.fromkeys("ab", region())), "the region 'b' belongs to another node"),
        "symbols": (lambda g: own(g, {"a": region(s=Range(2, 6))}),
            r"symbol 's' is in \[2, 6\] in the region 'a', but in \[2, 8\] around it"),
        "prologue": (lambda g: own(g, {"a": graph()}),
            "the region 'a' has a prologue: only a program is bound to weights\n  fix: make regions of"),
        "input from around": (
            lambda g: g.node("loop").regions["body"].insert(RELU, [g.value("x")], types=F32),
            "%x is not a value of graph 'body'",
        ),
    },
    "a node to erase": {
        "read": (lambda g: g.erase(g.node("relu")), "%relu is still read by add"),
        "returned": (lambda g: g.erase(g.node("add")), "%add is still read by the results"),
        "foreign": (lambda g: g.erase(graph().node("add")), "node 'add' is not in graph 'g'"),
        "nothing": (lambda g: g.erase(None),
            "expected a node of graph 'g', got NoneType\n  fix: graph.nodes has them"),
        "a value": (lambda g: g.erase(g.value("relu")), "expected a node of graph 'g', got Value"),
        "to copy": (lambda g: g.subgraph([graph().node("relu")]), "node 'relu' is not in graph 'g'"),
    },
    "a replacement": {
        "dtype": (lambda g: g.replace_all_uses(g.value("x"), g.value("double")),
            r"%double is f64\[2, 3\], it cannot stand for %x, which is f32\[2, 3\]"),
        "number": (lambda g: g.replace_all_uses(g.value("x"), g.value("free")), "%free is int, it cannot"),
        "of a number": (lambda g: g.replace_all_uses(g.value("free"), g.value("x")), "%free, which is int"),
        "foreign": (lambda g: g.replace_all_uses(graph().value("x"), g.value("x")), "%x is not a value of"),
        "a name": (lambda g: g.replace_all_uses("x", g.value("x")),
            "expected a value of graph 'g', got str\n  fix: graph.values has them"),
        "by foreign": (lambda g: g.replace_all_uses(g.value("x"), graph().value("x")), "%x is not a value"),
        "in the prologue": (lambda g: g.replace_all_uses(g.value("w"), g.value("x")),
            "node 'first' of the prologue cannot read %x"),
        "of origins": (lambda g: g.add_origins(g.value("x"), g.value("double")),
            r"%x is f32\[2, 3\], it cannot stand for %double"),
    },
    "an input of a node": {
        "number": (lambda g: g.set_input(g.node("add"), 2, g.value("x")),
            "node 'add' has 2 inputs, there is no input 2"),
        "negative": (lambda g: g.set_input(g.node("add"), -1, g.value("x")), "there is no input -1"),
        "foreign node": (lambda g: g.set_input(graph().node("add"), 0, g.value("x")), "node 'add' is not in"),
        "foreign value": (lambda g: g.set_input(g.node("add"), 0, graph().value("x")), "%x is not a value"),
        "call": (lambda g: g.set_input(g.node("first"), 0, g.value("x")),
            r"node 'first' of the prologue cannot read %x: %x is an input of the call\n  fix: insert a node"),
        "body": (lambda g: g.set_input(g.node("second"), 1, g.value("relu")),
            "of the prologue cannot read %relu: %relu is computed by node 'relu' of the body"),
        "updated": (lambda g: g.set_input(g.node("second"), 1, g.value("b")),
            "node 'second' of the prologue cannot read %b: %b is updated by the graph"),
    },
    "plain data in place of an input": {
        "foreign": (lambda g: g.set_literal(graph().node("view"), 1, 3), "node 'view' is not in graph 'g'"),
        "number": (lambda g: g.set_literal(g.node("view"), 2, 3),
            "'view' does not say which argument its input 2 fills\n  fix: insert the node with operands="),
        "negative": (lambda g: g.set_literal(g.node("view"), -1, 3), "which argument its input -1 fills"),
        "without a record": (lambda g: g.set_literal(g.node("custom"), 0, 3),
            "node 'custom' does not say which argument its input 0 fills"),
        "an object": (lambda g: g.set_literal(g.node("view"), 1, {1}),
            r"is not plain data\n  at: attribute 'size' of aten.view.default"),
    },
    "attributes": {
        "keys": (lambda g: g.set_attrs(g.node("add"), {"a": {1: 2}}), "attribute 'a' of aten.add.Tensor"),
        "foreign": (lambda g: g.set_attrs(graph().node("add"), {}), "node 'add' is not in graph"),
        "provenance": (lambda g: g.set_provenance(graph().node("add"), Provenance()), "node 'add' is not in"),
    },
    "the prologue": {
        "input": (move("relu"), "node 'relu' cannot move to the prologue: %x is an input of the call"),
        "body": (move("add"), "prologue: %relu is computed by node 'relu' of the body"),
        "updated buffer": (move("of_buffer"), "prologue: %b is updated by the graph"),
        "updated parameter": (move("of_trained"), "prologue: %trained is updated by the graph"),
        "random": (move("random"),
            "aten.rand_like.default is not known to compute the same each time, and nothing else"),
        "unknown op": (move("custom"), "custom is not known to compute the same each time"),
        "open size": (move("open_size"), r"%open_size is i64\[s, 2\], of a size that is not fixed"),
        "of a region": (
            lambda g: g.node("loop").regions["body"].move_to_prologue(
                g.node("loop").regions["body"].node("full")
            ),
            "graph 'body' is a region: a program has a prologue",
        ),
        "foreign": (lambda g: g.move_to_prologue(graph().node("add")), "node 'add' is not in graph 'g'"),
    },
    "symbols and constraints": {
        "taken": (lambda g: g.add_symbol("s"), "graph 'g' already has a symbol 's'"),
        "taken in a region": (lambda g: g.node("loop").regions["body"].add_symbol("s"), "already has"),
        "name": (lambda g: g.add_symbol("1s"), "'1s' cannot be the name of a symbol"),
        "function": (lambda g: g.add_symbol("mod"), "'mod' cannot be the name of a symbol"),
        "empty": (lambda g: g.add_symbol("t", Range(3, 2)), r"in the range \[3, 2\] of symbol 't'"),
        "ends": (lambda g: g.add_symbol("t", Range(True, 2)), "the ends of a range are integers or None"),
        "unknown": (lambda g: g.add_constraint(Constraint(symbol("s"), "==", symbol("t"))),
            "the constraint s == t has an unknown symbol 't'"),
        "none": (lambda g: g.add_constraint(Constraint(1, "==", 1)), "the constraint 1 == 1 has no symbol"),
        "relation": (lambda g: g.add_constraint(Constraint(symbol("s"), "=", 1)),
            "s = 1 is not a constraint\n  fix: put one of ==, !=, <="),
    },
    "an overlap": {
        "itself": (lambda g: g.set_overlap(g.value("x"), g.value("x"), 0), "%x and %x are not two inputs"),
        "a weight": (lambda g: g.set_overlap(g.value("x"), g.value("w"), 0), "%x and %w are not two inputs"),
        "a number": (lambda g: g.set_overlap(g.value("x"), g.value("n"), 0),
            "%x and %n are not tensors of fixed sizes\n  fix: state it of inputs that are views"),
        "open": (lambda g: g.set_overlap(g.value("x"), g.value("open"), 0), "are not tensors of fixed sizes"),
        "dtype": (lambda g: g.set_overlap(g.value("x"), g.value("double"), 0),
            r"%x is f32\[2, 3\], and %double f64\[2, 3\]: they overlap in elements of one dtype"),
        "foreign": (lambda g: g.set_overlap(graph().value("x"), g.value("x"), 0), "%x is not a value of"),
    },
    "a name": {
        "of no value": (lambda g: g.value("nothing"),
            "graph 'g' has no value 'nothing'\n  fix: graph.values has them"),
        "like a value": (lambda g: g.value("doubl"), r"no value 'doubl' \(did you mean 'double'\?\)"),
        "of no node": (lambda g: g.node("nothing"),
            "graph 'g' has no node 'nothing'\n  fix: graph.nodes has them"),
    },
}  # fmt: skip


ROWS = {f"{group}: {name}": row for group, rows in REFUSED.items() for name, row in rows.items()}


@pytest.mark.filterwarnings("ignore::UserWarning")
@each_row("edit, message", ROWS)
def test_an_edit_that_does_not_fit_is_refused_and_changes_nothing(
    edit: Callable[[Graph], object], message: str
) -> None:
    refusing = graph()
    before, uses = refusing.clone(), [value.uses for value in refusing.values]
    edits = refusing.edits

    with pytest.raises(GraphError, match=message):
        edit(refusing)

    assert refusing == before
    assert [value.uses for value in refusing.values] == uses
    assert refusing.edits == edits
    refusing.check()

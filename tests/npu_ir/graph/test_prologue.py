"""The prologue of a graph: which nodes may be in it, and which edits keep it one."""

from collections.abc import Callable
from typing import Any

import torch

from npu_ir import Constraint, Graph, OpNode, Provenance, ScalarType, TensorType, parse_ir
from npu_ir.symbolic.expressions import symbol
from tests.support.rows import each_row

F32 = TensorType((4, 4), torch.float32)


def relu(graph: Graph, *inputs: Any, **options: Any) -> OpNode:
    return graph.insert("aten.relu.default", list(inputs), types=F32, operands=["self"], **options)


TEXT = """
graph sample {
  symbol s0 in [2, 64]
  input %x: f32[4, 4]
  input %rows: f32[s0, 4]
  param %weight: f32[4, 4]
  buffer %buffer: f32[4, 4]
  buffer %state: f32[4, 4]

  prologue {
    %first: f32[4, 4] = aten.relu.default(self=%weight)
    %second: f32[4, 4] = aten.add.Tensor(self=%first, other=%buffer)
  }
  %product: f32[4, 4] = aten.mm.default(self=%x, mat2=%weight)
  %last: f32[4, 4] = aten.add.Tensor(self=%product, other=%second)

  update %state = %last
  return %last
}
"""


def sample() -> Graph:
    return parse_ir(TEXT)


def names(nodes: tuple[OpNode, ...]) -> list[str]:
    return [node.name for node in nodes]


def test_nodes_are_inserted_into_the_body() -> None:
    graph = sample()
    weight = graph.value("weight")

    relu(graph, weight, name="behind_first", after=graph.node("first"))
    relu(graph, weight, name="in_front", before=graph.node("product"))
    relu(graph, weight, name="at_the_end")

    assert names(graph.prologue) == ["first", "second"]
    assert names(graph.body) == ["behind_first", "in_front", "product", "last", "at_the_end"]
    graph.check()


def test_the_last_of_the_prologue_and_all_of_it_may_be_erased() -> None:
    graph = sample()
    graph.replace_all_uses(graph.value("second"), graph.value("first"))

    graph.erase(graph.node("second"))
    graph.move_to_prologue(relu(graph, graph.value("first"), name="third"))

    assert names(graph.nodes) == ["first", "third", "product", "last"]
    graph.check()
    graph.set_input(graph.node("last"), 1, graph.value("product"))
    for name in ("third", "first"):
        graph.erase(graph.node(name))
    relu(graph, graph.value("weight"), name="new", before=graph.node("product"))
    assert graph.prologue == ()
    assert names(graph.body) == ["new", "product", "last"]
    graph.check()


def test_sorting_keeps_the_prologue_first() -> None:
    graph = sample()
    third = relu(graph, graph.value("weight"), name="third")
    graph.move_to_prologue(third)
    graph.set_input(graph.node("first"), 0, third.outputs[0])
    early = relu(graph, graph.value("weight"), name="early", before=graph.node("product"))
    graph.set_input(early, 0, graph.value("last"))

    graph.sort()

    assert names(graph.prologue) == ["third", "first", "second"]
    assert names(graph.body) == ["product", "last", "early"]
    graph.check()


@each_row("copied", [Graph.clone, lambda graph: graph.specialize({"s0": 3})])
def test_a_copy_has_the_same_prologue(copied: Callable[[Graph], Graph]) -> None:
    copy = copied(sample())

    assert names(copy.prologue) == ["first", "second"]
    copy.check()
    relu(copy, copy.value("weight"), name="behind", after=copy.node("first"))
    assert names(copy.body) == ["behind", "product", "last"]


def test_graphs_with_other_prologues_differ() -> None:
    graph = sample()
    other = graph.clone()
    other._unlink(other.node("second"))
    other._link(other.node("second"), other.node("product"))

    assert names(other.nodes) == names(graph.nodes)
    assert other != graph


def test_a_subgraph_keeps_what_of_the_prologue_reads_weights_alone() -> None:
    graph = sample()

    whole = graph.subgraph(graph.nodes)
    part = graph.subgraph([graph.node("second"), graph.node("last")])

    assert names(whole.prologue) == ["first", "second"]
    assert (part.prologue, names(part.body)) == ((), ["second", "last"])
    assert [value.name for value in part.inputs] == ["first", "product"]
    whole.check()
    part.check()


EDITS: dict[str, Callable[[Graph], Any]] = {
    "add_input": lambda g: g.add_input("new", F32),
    "add_parameter": lambda g: g.add_parameter("new", F32),
    "add_buffer": lambda g: g.add_buffer("new", F32),
    "add_constant": lambda g: g.add_constant("new", torch.ones(2)),
    "add_symbol": lambda g: g.add_symbol("new"),
    "add_constraint": lambda g: g.add_constraint(Constraint(symbol("s0"), "<=", 9)),
    "erase_argument": lambda g: g.erase_argument(g.value("unread")),
    "fix_input": lambda g: g.fix_input(g.value("n"), 3),
    "replace_input": lambda g: g.replace_input(g.value("n"), F32),
    "set_call": lambda g: g.set_call(g.inputs),
    "set_outputs": lambda g: g.set_outputs(None),
    "set_update": lambda g: g.set_update(g.value("state"), None),
    "insert": lambda g: relu(g, g.value("x")),
    "erase": lambda g: g.erase(g.node("end")),
    "move_to_prologue": lambda g: g.move_to_prologue(g.node("free")),
    "replace_all_uses": lambda g: g.replace_all_uses(g.value("x"), g.value("weight")),
    "set_input": lambda g: g.set_input(g.node("end"), 0, g.value("x")),
    "set_literal": lambda g: g.set_literal(g.node("scaled"), 1, 2.0),
    "set_attrs": lambda g: g.set_attrs(g.node("end"), {}),
    "set_provenance": lambda g: g.set_provenance(g.node("end"), Provenance("module")),
    "rename": lambda g: g.rename(g.value("end"), "other"),
    "sort": lambda g: g.sort(),
}


def editable() -> Graph:
    """Return a graph that every one of the edits changes."""
    graph = sample()
    graph.add_parameter("unread", F32)
    number = graph.add_input("n", ScalarType("int"))
    relu(graph, graph.value("weight"), name="free")
    graph.insert(
        "aten.mul.Tensor", [graph.value("x"), number], types=F32, operands=["self", "other"], name="scaled"
    )
    late = relu(graph, graph.value("last"), name="late", before=graph.node("product"))
    relu(graph, *late.outputs, name="end")
    return graph


@each_row("name", list(EDITS))
def test_every_edit_is_counted_once(name: str) -> None:
    graph = editable()
    if name in ("fix_input", "replace_input"):
        graph.set_literal(graph.node("scaled"), 1, 2.0)
    edits = graph.edits

    EDITS[name](graph)

    assert graph.edits == edits + 1


@each_row("call", {
    "check": lambda g: g.check(),
    "clone": lambda g: g.clone(),
    "str": str,
    "subgraph": lambda g: g.subgraph(g.nodes),
    "sort of what is in order": lambda g: g.sort(),
    "replaced by itself": lambda g: g.replace_all_uses(g.value("x"), g.value("x")),
    "nothing replaced": lambda g: g.replace_all_uses(g.value("unread"), g.value("x")),
    "moved already": lambda g: g.move_to_prologue(g.node("first")),
})  # fmt: skip
def test_what_changes_nothing_is_not_counted(call: Callable[[Graph], Any]) -> None:
    graph = sample()
    graph.add_parameter("unread", F32)
    edits, text = graph.edits, str(graph)

    call(graph)

    assert graph.edits == edits
    assert str(graph) == text

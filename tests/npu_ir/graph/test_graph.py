"""The graph's own methods: each edit keeps names and uses true, and one that fails changes nothing."""

import pickle
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given

from npu_ir import Graph, GraphError, OpNode, Provenance, TensorType, Value, parse_ir
from npu_ir.core.naming import short_name
from tests.support.random_graphs import graphs
from tests.support.rows import each_row
from tests.support.tiers import examples

F32 = TensorType((2, 3), torch.float32)
RELU, ADD, MAX = "aten.relu.default", "aten.add.Tensor", "aten.max.dim"


def chain() -> tuple[Graph, Value, OpNode, OpNode]:
    """Return ``relu(relu(x) + relu(x))`` less the outer relu: one node that reads a value twice."""
    graph = Graph("chain")
    x = graph.add_input("x", F32)
    relu = graph.insert(RELU, [x], types=F32)
    add = graph.insert(ADD, [relu.outputs[0], relu.outputs[0]], types=F32)
    graph.set_outputs(add.outputs[0])
    return graph, x, relu, add


def test_values_and_nodes_get_unique_names() -> None:
    graph = Graph()
    x = graph.add_input("x", F32)

    nodes = [graph.insert(RELU, [x], types=F32) for _ in range(3)]
    named = graph.insert(RELU, [x], types=F32, name="relu", output_names=["x"])

    assert [node.name for node in nodes] == ["relu", "relu#1", "relu#2"]
    assert [node.outputs[0].name for node in nodes] == ["relu", "relu#1", "relu#2"]
    assert (named.name, named.outputs[0].name) == ("relu#3", "x#1")
    pair = graph.insert(MAX, [x], {"dim": 1}, types=(F32, F32))
    assert [value.name for value in pair.outputs] == ["max.0", "max.1"]


def test_a_numbered_name_that_is_taken_counts_on() -> None:
    graph = Graph()

    names = [graph.add_input(name, F32).name for name in ("x#1", "x", "x#1", "x", "#1", "#1", "x#y", "x#y")]

    assert names == ["x#1", "x", "x#2", "x#3", "#1", "#1#1", "x#y", "x#y#1"]


def test_renaming_keeps_names_unique() -> None:
    graph, x, relu, _ = chain()
    value = relu.outputs[0]

    graph.rename(value, "x")
    assert value.name == "x#1"
    graph.rename(x, "y")
    graph.rename(value, "x")
    graph.rename(value, "x")

    assert (x.name, value.name) == ("y", "x")
    assert graph.value("x") is value
    assert x.argument.target == "x"
    graph.check()


@each_row(("op_type", "name"), [
    ("aten.conv2d.default", "conv2d"),
    ("<built-in function getitem>", "getitem"),
    ("my_op", "my_op"),
    ("", ""),
])  # fmt: skip
def test_a_node_is_named_after_its_op(op_type: str, name: str) -> None:
    assert short_name(op_type) == name
    assert Graph().insert(op_type, types=()).name == name


def test_a_constant_is_not_copied_and_needs_no_gradient() -> None:
    data = torch.nn.Parameter(torch.ones(2))

    value = Graph().add_constant("c", data)

    assert value.argument.data.data_ptr() == data.data_ptr()
    assert not value.argument.data.requires_grad


def test_a_constant_may_be_stored_in_another_layout_than_the_graph_needs() -> None:
    type = TensorType((2, 3), torch.float32, (1, 2))

    assert Graph().add_constant("c", torch.ones(2, 3), type=type).type == type


def test_an_unread_argument_is_erased() -> None:
    graph, x, _, _ = chain()
    weight = graph.add_parameter("w", F32)

    graph.erase_argument(weight)

    assert graph.values[0] is x
    assert not graph.parameters
    assert graph.add_parameter("w", F32).name == "w"
    graph.check()


# How it is called and what it gives back


def test_updates_are_uses() -> None:
    graph, x, relu, add = chain()
    mean = graph.add_buffer("mean", F32)

    graph.set_update(mean, relu.outputs[0])
    graph.set_update(x, add.outputs[0])
    graph.set_update(mean, add.outputs[0])

    assert dict(graph.updates) == {x: add.outputs[0], mean: add.outputs[0]}
    assert graph.returned == graph.returned_values == (add.outputs[0],) * 3
    assert (add.outputs[0].is_output, x.is_output) == (True, False)
    assert relu.outputs[0].uses == ((add, 0), (add, 1))
    assert set(add.outputs[0].uses) == {(None, 0), (None, x), (None, mean)}
    graph.check()
    graph.set_update(mean, None)
    graph.set_update(mean, None)
    assert dict(graph.updates) == {x: add.outputs[0]}
    graph.check()


@pytest.mark.smoke
def test_nodes_are_inserted_where_they_are_wanted() -> None:
    graph, x, relu, add = chain()

    graph.insert(RELU, [x], types=F32, name="first", before=relu)
    graph.insert(RELU, [x], types=F32, name="second", after=relu)
    graph.insert(RELU, [x], types=F32, name="last", after=add)
    graph.insert(RELU, [x], types=F32, name="end")

    assert [node.name for node in graph.nodes] == ["first", "relu", "second", "add", "last", "end"]
    assert len(graph) == 6
    graph.check()


def test_a_node_keeps_what_it_was_given() -> None:
    graph, x, _, _ = chain()
    provenance = Provenance("layer.1", "net.py:3", ("conv", "bn"))

    node = graph.insert(
        "my.op.default", [x], {"sizes": (1, 2)}, types=[F32], operands=["self"], provenance=provenance
    )

    assert node.attrs == {"sizes": [1, 2]}
    assert (node.operands, node.provenance, node.inputs) == (("self",), provenance, (x,))
    assert str(node.provenance) == "layer.1, net.py:3"
    assert repr(node) == "%op: f32[2, 3] = my.op.default(%x)"
    assert repr(x) == "%x: f32[2, 3]"


def test_an_erased_node_is_gone() -> None:
    graph, _, relu, add = chain()
    graph.set_outputs(relu.outputs[0])

    graph.erase(add)

    assert [node.name for node in graph.nodes] == ["relu"]
    assert relu.outputs[0].uses == ((None, 0),)
    assert add.is_erased
    assert not relu.is_erased
    graph.check()
    with pytest.raises(GraphError, match="node 'add' is not in graph 'chain'"):
        graph.erase(add)
    with pytest.raises(GraphError, match="%add is not a value of graph 'chain'"):
        graph.insert(RELU, [add.outputs[0]], types=F32)


def test_all_uses_are_replaced() -> None:
    graph, x, relu, add = chain()
    mean = graph.add_buffer("mean", F32)
    graph.set_update(mean, relu.outputs[0])
    graph.set_outputs([relu.outputs[0], add.outputs[0], relu.outputs[0]])

    graph.replace_all_uses(relu.outputs[0], x)
    graph.replace_all_uses(x, x)

    assert add.inputs == (x, x)
    assert graph.outputs == (x, add.outputs[0], x)
    assert graph.updates[mean] is x
    assert relu.outputs[0].uses == ()
    assert set(x.uses) == {(relu, 0), (add, 0), (add, 1), (None, 0), (None, 2), (None, mean)}
    graph.check()


def test_attributes_cannot_be_changed_behind_the_back_of_the_graph() -> None:
    _, _, _, add = chain()

    with pytest.raises(TypeError, match="does not support item assignment"):
        add.attrs["alpha"] = 2  # type: ignore[index]


def test_nodes_of_an_op_type_are_found_and_may_be_erased_on_the_way() -> None:
    graph, x, relu, add = chain()
    graph.set_outputs(())
    seen = []

    for node in graph.nodes_of(RELU, ADD):
        seen.append(node.name)
        if node is relu:
            graph.erase(add)

    assert seen == ["relu"]
    assert list(graph.nodes_of("aten.relu.other")) == []
    assert x.users == (relu,)


def test_sorting_puts_producers_first_and_keeps_the_order_otherwise() -> None:
    graph = Graph()
    x = graph.add_input("x", F32)
    nodes = [graph.insert(RELU, [x], types=F32, name=f"n{index}") for index in range(6)]
    graph.set_input(nodes[1], 0, nodes[4].outputs[0])
    graph.set_input(nodes[4], 0, nodes[5].outputs[0])
    graph.set_input(nodes[3], 0, nodes[0].outputs[0])

    graph.sort()

    assert [node.name for node in graph.nodes] == ["n0", "n5", "n4", "n1", "n2", "n3"]
    graph.check()
    text = str(graph)
    graph.sort()
    assert str(graph) == text


def test_a_cycle_is_not_sorted() -> None:
    graph, _, relu, add = chain()
    graph.set_input(relu, 0, add.outputs[0])
    text = str(graph)

    with pytest.raises(GraphError, match="the nodes 'add' and 'relu' depend on each other in a cycle"):
        graph.sort()

    assert str(graph) == text
    graph.set_input(relu, 0, relu.outputs[0])
    with pytest.raises(GraphError, match="the nodes 'relu' and 'relu' depend on each other in a cycle"):
        graph.sort()


@examples(20)
@given(graphs())
def test_a_clone_is_equal_and_shares_nothing_that_can_be_edited(graph: Graph) -> None:
    text = str(graph)

    clone = graph.clone()

    assert clone == graph
    assert str(clone) == text
    clone.check()
    assert not set(clone.values) & set(graph.values)
    assert not set(clone.nodes) & set(graph.nodes)
    clone.set_outputs(())
    for node in reversed(clone.nodes):
        if not any(value.uses for value in node.outputs):
            clone.erase(node)
    assert str(graph) == text


def test_a_graph_out_of_order_is_not_copied() -> None:
    graph, _, relu, add = chain()
    early = graph.insert(RELU, [add.outputs[0]], types=F32, name="early", before=relu)

    with pytest.raises(
        GraphError, match=r"node 'early' reads %add before it is produced\n  fix: sort the graph first"
    ):
        graph.clone()
    for copied in (lambda: graph.subgraph([early, add]), lambda: pickle.dumps(graph)):
        with pytest.raises(GraphError, match="node 'early' reads %add before it is produced"):
            copied()
    graph.sort()
    assert graph.clone() == graph


def test_a_subgraph_takes_what_it_reads_and_returns_what_others_read() -> None:
    graph = Graph("net")
    x, weight = graph.add_input("x", F32), graph.add_parameter("w", F32, aliases=["v"])
    constant, state = graph.add_constant("c", torch.ones(2, 3)), graph.add_buffer("s", F32)
    first = graph.insert(ADD, [x, weight], types=F32, name="first")
    inner = graph.insert(ADD, [first.outputs[0], constant], types=F32, name="inner")
    last = graph.insert(ADD, [inner.outputs[0], inner.outputs[0]], types=F32, name="last")
    after = graph.insert(RELU, [last.outputs[0]], types=F32, name="after")
    graph.set_update(state, inner.outputs[0])
    graph.set_outputs(after.outputs[0])

    part = graph.subgraph([last, inner], "part")

    assert str(part) == (
        "graph part {\n"
        "  input %first: f32[2, 3]\n"
        "  const %c: f32[2, 3] = [1.0, 1.0, 1.0, 1.0, 1.0, 1.0]\n"
        "\n"
        "  %inner: f32[2, 3] = aten.add.Tensor(%first, %c)\n"
        "  %last: f32[2, 3] = aten.add.Tensor(%inner, %inner)\n"
        "\n"
        "  return (%inner, %last)\n"
        "}\n"
    )
    part.check()
    assert graph.subgraph([first]).parameters["w"].argument.aliases == ("v",)  # type: ignore[union-attr]
    assert str(graph.subgraph([], "none")) == "graph none {\n\n\n  return ()\n}\n"


TEXT = """
graph g {
  input %x: f32[2, 3]
  param %w: f32[2, 3]
  buffer %s: f32[2, 3]
  const %c: f32[3] = [0.0, 1.0, nan]

  %add: f32[2, 3] = aten.add.Tensor(self=%x, other=%w) {alpha=1.0}

  update %s = %add
  return [%add, %c, 1]
}
"""


def edited(edit: Callable[[Graph], Any]) -> Graph:
    graph = parse_ir(TEXT)
    edit(graph)
    return graph


@each_row("edit", {
    "nothing": lambda g: None,
    "provenance": lambda g: g.set_provenance(g.node("add"), Provenance("layer")),
    "the implied call, stated": lambda g: g.set_call([g.value("x")]),
})  # fmt: skip
def test_graphs_are_equal_however_they_were_made(edit: Callable[[Graph], Any]) -> None:
    graph = edited(edit)

    assert graph == parse_ir(TEXT)
    assert graph.clone("other") != graph != "graph"
    assert (graph.clone("other").name, graph.clone("").name) == ("other", "")
    assert repr(graph) == "<Graph 'g': 1 inputs, 1 parameters, 1 nodes>"
    with pytest.raises(TypeError, match="unhashable type: 'Graph'"):
        hash(graph)


@each_row("edit", {
    "name": lambda g: setattr(g, "name", "h"),
    "value_name": lambda g: g.rename(g.value("x"), "y"),
    "more_inputs": lambda g: g.add_input("y", F32),
    "more_nodes": lambda g: g.insert(RELU, [g.value("x")], types=F32),
    "attr_type": lambda g: g.set_attrs(g.node("add"), {"alpha": 1}),
    "attr_name": lambda g: g.set_attrs(g.node("add"), {"alpha": 1.0, "beta": 1.0}),
    "input": lambda g: g.set_input(g.node("add"), 1, g.value("x")),
    "results_structure": lambda g: g.set_outputs((g.value("add"), g.value("c"), 1)),
    "results_literal": lambda g: g.set_outputs([g.value("add"), g.value("c"), True]),
    "results_value": lambda g: g.set_outputs([g.value("x"), g.value("c"), 1]),
    "results_kind": lambda g: g.set_outputs([1, g.value("c"), 1]),
    "update": lambda g: g.set_update(g.value("s"), g.value("x")),
    "no_update": lambda g: g.set_update(g.value("s"), None),
    "call": lambda g: g.set_call([], {"x": g.value("x")}),
    "data_sign": lambda g: g.value("c").argument.data.__setitem__(0, -0.0),
    "operands": lambda g: setattr(g.node("add"), "_operands", ("other", "self")),
    "op_type": lambda g: setattr(g.node("add"), "_op_type", "aten.sub.Tensor"),
})  # fmt: skip
def test_graphs_that_differ_are_not_equal(edit: Callable[[Graph], Any]) -> None:
    same, other = parse_ir(TEXT), edited(edit)

    assert same != other
    assert other != same

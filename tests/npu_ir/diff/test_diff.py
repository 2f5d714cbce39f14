"""Differences of two graphs by `diff_ir`."""

import itertools
import json
import random
import re
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from npu_ir import Graph, GraphDiff, Provenance, TensorType, Value, diff_ir, parse_ir
from npu_ir.diff import NodeDiff, Status
from npu_ir.diff.subsequence import common_subsequence, increasing_subsequence
from tests.support.random_graphs import graphs
from tests.support.rows import each_row
from tests.support.tiers import examples

F32 = TensorType((2, 3), torch.float32)
BRANCHES = """
graph Branch {
  input %p: bool[]
  input %x: f32[2]

  %cond: f32[2] = higher_order.cond.default(pred=%p, operands[0]=%x)
  region true_fn = graph yes {
    input %a: f32[2]

    %relu: f32[2] = aten.relu.default(self=%a)
    %neg: f32[2] = aten.neg.default(self=%relu)

    return (%neg,)
  }
  region false_fn = graph no {
    input %b: f32[2]

    %sin: f32[2] = aten.sin.default(self=%b)

    return (%sin,)
  }

  return %cond
}
"""


NET = """graph Net {
  input %x: f32[2, 3]
  param %0.weight: f32[3, 3]
  param %1.weight: f32[3, 3]
  param %2.weight: f32[3, 3]

  %linear: f32[2, 3] = aten.linear.default(input=%x, weight=%0.weight)
  %relu: f32[2, 3] = aten.relu.default(self=%linear)
  %linear#1: f32[2, 3] = aten.linear.default(input=%relu, weight=%1.weight)
  %relu#1: f32[2, 3] = aten.relu.default(self=%linear#1)
  %linear#2: f32[2, 3] = aten.linear.default(input=%relu#1, weight=%2.weight)
  %last: f32[2, 3] = test.last.default(self=%linear#2)

  return {"y": %last}
}
"""


def changed(diff: GraphDiff) -> list[tuple[str, str]]:
    """Return the status and the name of each node that is not as it was."""
    return [(node.status.value, node.name) for node in diff.nodes if node.status is not Status.UNCHANGED]


def node_of(diff: GraphDiff, name: str) -> NodeDiff:
    return next(node for node in diff.nodes if node.name == name)


def require_consistent(diff: GraphDiff) -> None:
    both = diff.count(Status.CHANGED) + diff.count(Status.UNCHANGED)
    sizes = [sum(map(len, graph.graphs())) for graph in (diff.a, diff.b)]
    assert both == sizes[0] - diff.count(Status.REMOVED) == sizes[1] - diff.count(Status.ADDED)
    assert sorted(node.a.name for node in diff.nodes if node.a) == sorted(node.name for node in diff.a.nodes)
    assert sorted(node.b.name for node in diff.nodes if node.b) == sorted(node.name for node in diff.b.nodes)
    for part in diff.nodes:
        for region in part.regions.values():
            require_consistent(region)


def with_edit(text: str, old: str, new: str) -> Graph:
    assert old in text
    return parse_ir(text.replace(old, new))


@examples(8)
@given(graphs())
def test_a_graph_does_not_differ_from_itself_or_its_clone(graph: Graph) -> None:
    for other in (graph, graph.clone()):
        diff = diff_ir(graph, other)

        assert diff.is_same
        assert diff.renames == ()
        assert str(diff) == "a and b are the same graph"
        require_consistent(diff)


@examples(15)
@given(graphs(), st.data())
def test_graphs_are_the_same_exactly_where_renaming_makes_their_texts_equal(
    graph: Graph, data: st.DataObject
) -> None:
    other = graph.clone()
    for index, value in enumerate(other.values):
        other.rename(value, f"renamed {index}")
    for _ in range(data.draw(st.integers(0, 2))):
        _edit_somewhere(other, data)

    diff = diff_ir(graph, other)

    renamed = other.clone()
    back = {after: before for before, after in diff.renames}
    for value in renamed.values:
        renamed.rename(value, f"{value.name} on the way")
    for value, after in zip(renamed.values, other.values, strict=True):
        renamed.rename(value, back.get(after.name, after.name))
    assert diff.is_same == (str(renamed) == str(graph))


def _edit_somewhere(graph: Graph, data: st.DataObject) -> None:
    """Change an input, the attributes or the place of a node, or the results."""
    nodes = [node for node in graph.body if node.inputs]
    if not nodes or data.draw(st.booleans()):
        leaves = [value for value in graph.values if isinstance(value.type, TensorType)]
        graph.set_outputs(data.draw(st.lists(st.sampled_from(leaves) if leaves else st.just(1), max_size=2)))
        return
    node = data.draw(st.sampled_from(nodes))
    if data.draw(st.booleans()):
        graph.set_attrs(node, {"k": data.draw(st.integers(0, 1))})
        return
    before = [value for value in graph.values if value.producer is None or value.producer.in_prologue]
    graph.set_input(node, 0, data.draw(st.sampled_from(before or list(node.inputs))))


@examples(8)
@given(graphs(), graphs())
def test_what_is_counted_adds_up(a: Graph, b: Graph) -> None:
    diff = diff_ir(a, b)

    require_consistent(diff)
    assert json.loads(json.dumps(diff.to_dict()))["same"] is diff.is_same
    assert str(diff).startswith("a and b are the same" if diff.is_same else "--- a: ")


@each_row("old, new, line", {
    "insert": ("\n  return", "\n  %neg: f32[2, 3] = aten.neg.default(self=%x)\n  return", "+ %neg"),
    "erase": ("  %last: f32[2, 3] = test.last.default(self=%linear#2)\n\n  return {\"y\": %last}",
        "\n  return {\"y\": %linear#2}", "- %last"),
    "prologue": ("\n\n  %linear:",
        "\nprologue { %neg: f32[3, 3] = aten.neg.default(self=%0.weight) }\n  %linear:",
        "@@ prologue @@\n+ %neg"),
    "input": ("input=%relu,", "input=%linear,", "# changed: input"),
    "literal": ("(self=%linear#2)", "() {self=1.0}", "# changed: self"),
    "attribute": ("(self=%linear#2)", "(self=%linear#2) {k=1}", "{k=1}  # changed: k"),
    "results": ('return {"y": %last}', "return %x", "+ return %x  # changed: structure"),
    "constant result": ("%last}", "2.0}", "+ return result['y'] = 2.0  # changed: value"),
    "update": ("\n  return", "\n  update %x = %relu\n  return", "+ update %x = %relu"),
    "call": ("\n\n  %linear:", "\n  call (%x, k=2)\n  %linear:",
        "- call (%x)\n+ call (%x, k=2)  # changed: call"),
    "symbol": ("Net {", "Net { symbol s0 in [2, 8]", "+ symbol s0 in [2, 8]"),
    "argument": ("\n\n  %linear:", "\n  input %z: f32[2, 3]\n  %linear:", "+ input %z: f32[2, 3]"),
    "parameter": ("\n\n  %linear:", "\n  param %w: f32[2]\n  %linear:", "+ param %w: f32[2]"),
    "parameter before others": ("  param %0.weight", "  param %w: f32[3, 3]\n  param %0.weight",
        "+ param %w: f32[3, 3]\n"),
    "buffer": ("\n\n  %linear:", "\n  buffer %b: f32[2]\n  %linear:", "+ buffer %b: f32[2]"),
    "state": ("\n\n  %linear:", "\n  state %s: f32[2]\n  %linear:", "+ state %s: f32[2]"),
    "constant": ("\n\n  %linear:", "\n  const %c: f32[1] = [1.0]\n  %linear:", "+ const %c: f32[1] = [1.0]"),
    "type of an argument": ("%x: f32[2, 3]", "%x: f32[5]",
        "- input %x: f32[2, 3]\n+ input %x: f32[5]  # changed: type"),
})  # fmt: skip
def test_every_edit_shows(old: str, new: str, line: str) -> None:
    a, b = parse_ir(NET), with_edit(NET, old, new)

    diff = diff_ir(a, b)

    assert not diff.is_same
    assert line in str(diff)
    require_consistent(diff)
    assert not diff_ir(b, a).is_same


def test_a_constraint_and_the_range_of_a_symbol_show() -> None:
    a = with_edit(NET, "Net {", "Net { symbol s0 in [0, 8] input %z: f32[s0]")
    b = with_edit(NET, "Net {", "Net { symbol s0 in [2, 8] require s0 <= 4 input %z: f32[s0]")

    text = str(diff_ir(a, b))

    assert "- symbol s0 in [0, 8]\n+ symbol s0 in [2, 8]  # changed: range\n+ require s0 <= 4\n" in text


def test_a_constant_is_the_one_with_its_content() -> None:
    text = "graph g { const %c0: f32[1] = [1.0] const %c1: f32[1] = [2.0] return (%c0, %c1) }"
    renamed = text.replace("%c0", "%c5").replace("%c1", "%c0")

    a = parse_ir(text)
    same, other = diff_ir(a, parse_ir(renamed)), diff_ir(a, with_edit(text, "1.0", "3.0"))

    assert same.is_same
    assert same.renames == (("c0", "c5"), ("c1", "c0"))
    assert [(line.kind, line.changes) for line in other.lines] == [("const", ("data",))]


def test_names_that_were_counted_anew_are_no_change() -> None:
    extra = re.sub(r"%relu(#1)?\b", lambda match: "%relu#2" if match[1] else "%relu#1", NET)
    extra = extra.replace("\n\n  %linear:", "\n\n  %relu: f32[2, 3] = aten.relu.default(self=%x)\n  %linear:")

    diff = diff_ir(parse_ir(NET), with_edit(extra, "input=%x", "input=%relu"))

    assert changed(diff) == [("added", "relu"), ("changed", "linear")]
    assert node_of(diff, "linear").changes == ("input",)
    assert ("relu", "relu#1") in diff.renames


def test_an_op_in_the_place_of_another_is_the_same_node() -> None:
    renamed = NET.replace("%relu#1", "%gelu")

    diff = diff_ir(
        parse_ir(NET),
        with_edit(renamed, "aten.relu.default(self=%linear#1)", "aten.gelu.default(self=%linear#1)"),
    )

    assert changed(diff) == [("changed", "gelu")]
    assert node_of(diff, "gelu").changes == ("op",)
    assert diff.ops == {"aten.gelu.default": (0, 1), "aten.relu.default": (2, 1)}


def fused(a: Graph, op_type: str = "npu.linear_relu.default") -> Graph:
    """Return a copy of ``a`` whose middle layer is one node."""
    b = a.clone()
    linear, relu = b.node("linear#1"), b.node("relu#1")
    names = Provenance(fused_from=(linear.name, relu.name))
    node = b.insert(
        op_type, linear.inputs, types=F32, operands=["input", "weight"], before=linear, provenance=names
    )
    b.replace_all_uses(relu.outputs[0], node.outputs[0])
    b.erase(relu)
    b.erase(linear)
    return b


def test_nodes_that_were_merged_are_told_and_what_reads_the_result_is_unchanged() -> None:
    a = parse_ir(NET)

    diff = diff_ir(a, fused(a))

    assert changed(diff) == [("removed", "linear#1"), ("changed", "linear_relu")]
    assert node_of(diff, "linear_relu").was == ("linear#1", "relu#1")
    assert node_of(diff, "linear#1").merged_into == "linear_relu"
    assert (diff.num_merged, diff.count(Status.UNCHANGED)) == (1, 4)
    lines = str(diff).splitlines()
    assert [line[:12] for line in lines[3:6]] == ["- %linear#1:", "- %relu#1: f", "+ %linear_re"]
    assert lines[5].endswith("was: linear#1, relu#1")


@each_row("op_type", ["npu.linear_relu.default", "aten.linear.default"])
def test_a_reader_of_an_inner_node_that_reads_the_merged_one_is_a_change(op_type: str) -> None:
    a = parse_ir(NET)
    a.set_outputs((a.value("last"), a.value("linear#1")))
    b = fused(parse_ir(NET), op_type)
    merged = next(node for node in b.nodes if node.provenance.fused_from).outputs[0]
    b.set_outputs((b.value("last"), merged))

    diff = diff_ir(a, b)

    assert [(line.name, line.b) for line in diff.lines] == [
        ("result[1]", f"return result[1] = %{merged.name}")
    ]
    assert node_of(diff, "linear#2").status is Status.UNCHANGED


def test_each_input_of_an_operand_that_is_named_twice_counts() -> None:
    arguments = "  input %a: f32[2]\n  input %b: f32[2]\n"
    text = f"graph g {{{{\n{arguments}  %y: f32[2] = my.op(x={{0}}, x=%b)\n  return %y\n}}}}\n"

    diff = diff_ir(parse_ir(text.format("%a")), parse_ir(text.format("%b")))

    assert [node.changes for node in diff.nodes] == [("x",)]


@pytest.mark.smoke
def test_a_node_that_moved_has_another_order() -> None:
    lines = {op: f"  %{op}: f32[2] = test.{op}.default(%x)\n" for op in "abc"}
    a, b = (
        parse_ir(f"graph g {{ input %x: f32[2]\n{''.join(lines[op] for op in order)} return (%a, %b, %c) }}")
        for order in ("abc", "bca")
    )

    diff = diff_ir(a, b)

    assert changed(diff) == [("changed", "a")]
    assert node_of(diff, "a").changes == ("order",)
    assert "~ %a: f32[2] = test.a.default(%x)  # changed: order\n" in str(diff)


def test_a_change_inside_of_a_region_is_told_there() -> None:
    a = parse_ir(BRANCHES)
    b = parse_ir(BRANCHES.replace("aten.neg", "aten.abs").replace("%a", "%first"))

    diff = diff_ir(a, b)

    assert diff_ir(a, parse_ir(BRANCHES.replace("%a", "%first").replace("%sin", "%wave"))).is_same
    (node,) = diff.nodes
    assert node.changes == ("true_fn",)
    assert list(node.regions) == ["true_fn"]
    assert "  region true_fn:\n      ... 1 unchanged node\n    - %neg" in str(diff)
    assert [diff.count(status) for status in Status] == [2, 0, 0, 2]
    require_consistent(diff)
    gone = diff_ir(a, parse_ir("graph Branch { input %p: bool[] input %x: f32[2] return %x }"))
    assert gone.count(Status.REMOVED) == 4
    assert "- region true_fn = graph yes {" in str(gone)


def test_long_graphs_that_differ_much_take_a_moment() -> None:
    a, b = (_chain(chance, 1500) for chance in (random.Random(1), random.Random(2)))

    diff = diff_ir(a, b)

    require_consistent(diff)
    assert diff.count(Status.REMOVED) < 1000


def _chain(chance: random.Random, length: int) -> Graph:
    graph = Graph()
    values: list[Value] = [graph.add_input("x", F32)]
    for _ in range(length):
        op = chance.choice(["add", "mul", "relu", "neg"])
        inputs = [chance.choice(values[-5:]) for _ in range(2 if op in ("add", "mul") else 1)]
        values += graph.insert(f"test.{op}.default", inputs, types=F32).outputs
    graph.set_outputs(values[-1])
    return graph


def parts_of(items: Sequence[Any]) -> set[tuple[Any, ...]]:
    return {part for size in range(len(items) + 1) for part in itertools.combinations(items, size)}


@given(st.text("abc", max_size=8), st.text("abc", max_size=8))
def test_a_common_subsequence_is_the_longest(left: str, right: str) -> None:
    pairs = common_subsequence(left, right)

    assert all(left[i] == right[j] for i, j in pairs)
    assert all(one[0] < two[0] and one[1] < two[1] for one, two in itertools.pairwise(pairs))
    assert len(pairs) == max(map(len, parts_of(left) & parts_of(right)))


@given(st.permutations(range(7)))
def test_an_increasing_subsequence_is_the_longest(numbers: list[int]) -> None:
    found = increasing_subsequence(numbers)

    assert [number for number in numbers if number in found] == sorted(found)
    assert len(found) == max(len(part) for part in parts_of(numbers) if list(part) == sorted(part))

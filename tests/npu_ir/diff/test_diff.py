"""Differences of two graphs by `diff_ir`."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from npu_ir import Graph, GraphDiff, Provenance, TensorType, Value, diff_ir, extract_ir, parse_ir
from npu_ir.core.structure import flatten
from npu_ir.diff import NodeDiff, Status
from npu_ir.diff.subsequence import common_subsequence, increasing_subsequence
from npu_ir.symbolic.constraints import Constraint, Range
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


def net(*, extra: bool = False, name: str = "Net") -> Graph:
    """Return linear layers and activations; ``extra`` adds one in front, which renumbers the others."""
    graph = Graph(name)
    value = graph.add_input("x", F32)
    if extra:
        value = graph.insert("aten.relu.default", [value], types=F32, operands=["self"]).outputs[0]
    for index in range(3):
        weight = graph.add_parameter(f"{index}.weight", TensorType((3, 3), torch.float32))
        linear = graph.insert(
            "aten.linear.default", [value, weight], types=F32, operands=["input", "weight"], name="linear"
        )
        value = graph.insert(
            "aten.relu.default", linear.outputs, types=F32, operands=["self"], name="relu"
        ).outputs[0]
    graph.set_outputs({"y": value})
    return graph


@examples(8)
@given(graphs())
def test_a_graph_does_not_differ_from_itself_or_its_clone(graph: Graph) -> None:
    for other in (graph, graph.clone()):
        diff = diff_ir(graph, other)

        assert diff.is_same
        assert diff.renames == ()
        assert str(diff) == "a and b are the same graph"
        require_consistent(diff)


@examples(10)
@given(graphs(), st.randoms(use_true_random=False))
def test_other_names_of_values_are_renames_and_nothing_else(graph: Graph, chance: random.Random) -> None:
    other = graph.clone()
    values = list(other.values)
    chance.shuffle(values)
    for index, value in enumerate(values):
        other.rename(value, f"renamed {index}")

    diff = diff_ir(graph, other)

    assert diff.is_same
    assert dict(diff.renames) == {
        before.name: after.name for before, after in zip(graph.values, other.values, strict=True)
    }


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


def _insert(graph: Graph) -> None:
    graph.insert("aten.neg.default", [graph.value("x")], types=F32, operands=["self"])


def _erase(graph: Graph) -> None:
    graph.set_outputs({"y": graph.value("linear#2")})
    graph.erase(graph.node("relu#2"))


def _move_to_prologue(graph: Graph) -> None:
    weight = graph.value("0.weight")
    node = graph.insert("aten.neg.default", [weight], types=weight.type, operands=["self"])
    graph.move_to_prologue(node)


def _replace_input(graph: Graph) -> None:
    graph.set_input(graph.node("linear"), 0, graph.value("linear#2"))
    graph.replace_input(graph.value("x"), TensorType((5,), torch.float32))


def _fix_input(graph: Graph) -> None:
    graph.replace_all_uses(graph.value("x"), graph.value("linear#2"))
    graph.fix_input(graph.value("x"), 1.0)


def _sort(graph: Graph) -> None:
    late = graph.node("relu#2")
    early = graph.insert("aten.neg.default", [graph.value("x")], types=F32, operands=["self"])
    graph.set_input(graph.node("linear"), 0, early.outputs[0])
    graph.sort()
    assert late.graph is graph


EDITS = {
    "insert": (_insert, "+ %neg"),
    "erase": (_erase, "- %relu#2"),
    "move_to_prologue": (_move_to_prologue, "@@ prologue @@\n+ %neg"),
    "replace_all_uses": (lambda graph: graph.replace_all_uses(graph.value("relu"), graph.value("linear")),
        "# changed: input"),
    "set_input": (lambda graph: graph.set_input(graph.node("relu#1"), 0, graph.value("x")),
        "# changed: self"),
    "set_literal": (lambda graph: graph.set_literal(graph.node("relu"), 0, 1.0), "# changed: self"),
    "set_attrs": (lambda graph: graph.set_attrs(graph.node("relu"), {"k": 1}), "{k=1}  # changed: k"),
    "sort": (_sort, "+ %neg"),
    "set_outputs": (lambda graph: graph.set_outputs(graph.value("x")), "+ return %x  # changed: structure"),
    "set_results": (lambda graph: graph.set_results(flatten({"y": 0})[1], [2.0]),
        "+ return result['y'] = 2.0  # changed: value"),
    "set_update": (lambda graph: graph.set_update(graph.value("x"), graph.value("relu")),
        "+ update %x = %relu"),
    "set_call": (lambda graph: graph.set_call([graph.value("x")], {"k": 2}),
        "- call (%x)\n+ call (%x, k=2)  # changed: call"),
    "add_symbol": (lambda graph: graph.add_symbol("s0", Range(2, 8)), "+ symbol s0 in [2, 8]"),
    "add_input": (lambda graph: graph.add_input("z", F32), "+ input %z: f32[2, 3]"),
    "add_parameter": (lambda graph: graph.add_parameter("w", F32), "+ param %w: f32[2, 3]"),
    "add_buffer": (lambda graph: graph.add_buffer("b", F32), "+ buffer %b: f32[2, 3]"),
    "add_state": (lambda graph: graph.add_state("s", F32), "+ state %s: f32[2, 3]"),
    "add_constant": (lambda graph: graph.add_constant("c", torch.ones(1)), "+ const %c: f32[1] = [1.0]"),
    "replace_input": (_replace_input, "- input %x: f32[2, 3]\n+ input %x: f32[5]  # changed: type"),
    "fix_input": (_fix_input, "- input %x: f32[2, 3]"),
}  # fmt: skip


@each_row("change, line", EDITS)
def test_every_edit_shows(change: Callable[[Graph], object], line: str) -> None:
    a = net()
    b = a.clone()
    change(b)

    diff = diff_ir(a, b)

    assert not diff.is_same
    assert line in str(diff)
    require_consistent(diff)
    assert not diff_ir(b, a).is_same


def test_a_constraint_and_the_range_of_a_symbol_show() -> None:
    a = net()
    size = a.add_symbol("s0", Range(0, 8))
    b = net()
    b.add_symbol("s0", Range(2, 8))
    b.add_constraint(Constraint(size, "<=", 4))

    text = str(diff_ir(a, b))

    assert "- symbol s0 in [0, 8]\n+ symbol s0 in [2, 8]  # changed: range\n+ require s0 <= 4\n" in text


def test_the_content_of_a_constant_counts() -> None:
    graphs = []
    for content in (1.0, 2.0):
        graph = Graph()
        graph.set_outputs(graph.add_constant("c", torch.tensor(content)))
        graphs.append(graph)

    (line,) = diff_ir(*graphs).lines

    assert (line.kind, line.changes) == ("const", ("data",))


def test_a_constant_that_got_another_name_is_the_one_with_its_content() -> None:
    graphs = []
    for names in (("c0", "c1"), ("c5", "c0")):
        graph = Graph()
        one, two = (
            graph.add_constant(name, torch.tensor(number))
            for name, number in zip(names, (1.0, 2.0), strict=True)
        )
        graph.set_outputs((one, two))
        graphs.append(graph)

    diff = diff_ir(*graphs)

    assert diff.is_same
    assert diff.renames == (("c0", "c5"), ("c1", "c0"))


def test_names_that_were_counted_anew_are_no_change() -> None:
    diff = diff_ir(net(), net(extra=True))

    assert changed(diff) == [("added", "relu"), ("changed", "linear")]
    assert node_of(diff, "linear").changes == ("input",)
    assert ("relu", "relu#1") in diff.renames


def test_an_op_in_the_place_of_another_is_the_same_node() -> None:
    a, b = net(), net()
    old = b.node("relu#1")
    new = b.insert("aten.gelu.default", old.inputs, types=F32, operands=["self"], after=old)
    b.replace_all_uses(old.outputs[0], new.outputs[0])
    b.erase(old)

    diff = diff_ir(a, b)

    assert changed(diff) == [("changed", "gelu")]
    assert node_of(diff, "gelu").changes == ("op",)
    assert diff.ops == {"aten.gelu.default": (0, 1), "aten.relu.default": (3, 2)}


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
    a = net()

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
    a = net()
    a.set_outputs((a.value("relu#2"), a.value("linear#1")))
    b = fused(net(), op_type)
    merged = next(node for node in b.nodes if node.provenance.fused_from).outputs[0]
    b.set_outputs((b.value("relu#2"), merged))

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
    a, b = Graph(), Graph()
    for graph, ops in ((a, "abc"), (b, "bca")):
        value = graph.add_input("x", F32)
        outputs = {op: graph.insert(f"test.{op}.default", [value], types=F32).outputs[0] for op in ops}
        graph.set_outputs([outputs[op] for op in "abc"])

    diff = diff_ir(a, b)

    assert changed(diff) == [("changed", "a")]
    assert node_of(diff, "a").changes == ("order",)
    assert "~ %a: f32[2, 3] = test.a.default(%x)  # changed: order\n" in str(diff)


def test_a_change_inside_of_a_region_is_told_there() -> None:
    a = parse_ir(BRANCHES)
    b = parse_ir(BRANCHES.replace("aten.neg", "aten.abs").replace("%a", "%first"))

    diff = diff_ir(a, b)

    (node,) = diff.nodes
    assert node.changes == ("true_fn",)
    assert list(node.regions) == ["true_fn"]
    assert "  region true_fn:\n      ... 1 unchanged node\n    - %neg" in str(diff)
    assert [diff.count(status) for status in Status] == [2, 0, 0, 2]
    require_consistent(diff)


def test_names_inside_of_a_region_are_no_change() -> None:
    diff = diff_ir(parse_ir(BRANCHES), parse_ir(BRANCHES.replace("%a", "%first").replace("%sin", "%wave")))

    assert diff.is_same


def test_the_nodes_of_a_region_count_with_the_node_that_is_gone() -> None:
    a = parse_ir(BRANCHES)
    b = a.clone()
    b.set_outputs(b.value("x"))
    b.erase(b.node("cond"))

    diff = diff_ir(a, b)

    assert diff.count(Status.REMOVED) == 4
    assert "- region true_fn = graph yes {" in str(diff)


def test_a_model_that_got_a_layer_differs_in_this_layer() -> None:
    layers = [torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)]
    model = torch.nn.Sequential(*itertools.chain(*((layer, torch.nn.ReLU()) for layer in layers)))
    a = extract_ir(model, (torch.randn(2, 4),))
    model[3] = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.LayerNorm(4))
    b = extract_ir(model, (torch.randn(2, 4),))

    diff = diff_ir(a, b)

    assert changed(diff) == [("added", "layer_norm"), ("changed", "linear_2")]
    assert [(line.kind, line.name) for line in diff.lines] == [("param", "3.1.weight"), ("param", "3.1.bias")]


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


@given(st.text("abc", max_size=12), st.text("abc", max_size=12))
def test_a_common_subsequence_is_the_longest(left: str, right: str) -> None:
    pairs = common_subsequence(left, right)

    assert all(left[i] == right[j] for i, j in pairs)
    assert all(one[0] < two[0] and one[1] < two[1] for one, two in itertools.pairwise(pairs))
    assert len(pairs) == _length(left, right)


def _length(left: str, right: str) -> int:
    row = [0] * (len(right) + 1)
    for item in left:
        before = list(row)
        for j, other in enumerate(right, 1):
            row[j] = before[j - 1] + 1 if item == other else max(before[j], row[j - 1])
    return row[-1]


@given(st.permutations(range(7)))
def test_an_increasing_subsequence_is_the_longest(numbers: list[int]) -> None:
    longest = max(
        len(part)
        for size in range(len(numbers) + 1)
        for part in itertools.combinations(numbers, size)
        if list(part) == sorted(part)
    )

    found = increasing_subsequence(numbers)

    assert [number for number in numbers if number in found] == sorted(found)
    assert len(found) == longest

"""Checking what was edited since the last check finds what a check of the whole graph finds."""

import random
from collections.abc import Callable

import pytest
import torch

from npu_ir import Graph, GraphError, TensorType, extract_ir, parse_ir
from npu_ir.symbolic.expressions import symbol
from tests.support.rows import each_row

TEXT = """
graph G {
  input %x: f32[2, 3]
  param %w: f32[2, 3]
  buffer %b: f32[2, 3]

  prologue {
    %p: f32[2, 3] = aten.neg.default(self=%w)
  }
  %a: f32[2, 3] = aten.add.Tensor(self=%x, other=%p)
  %r: f32[2, 3] = aten.relu.default(self=%a)
  %s: f32[2, 3] = aten.mul.Tensor(self=%r, other=%b)

  return %s
}
"""
F32 = TensorType((2, 3), torch.float32)


@pytest.fixture
def graph() -> Graph:
    return parse_ir(TEXT)


def _unknown_argument(graph: Graph) -> None:
    graph.set_attrs(graph.node("r"), {"nonsense": 1})


def _impure_prologue(graph: Graph) -> None:
    node = graph.insert(
        "aten.dropout.default", [graph.value("p")], {"p": 0.5, "train": False}, types=F32, operands=["input"]
    )
    graph.move_to_prologue(node)
    graph.set_attrs(node, {"p": 0.5, "train": True})


OPEN = TensorType((symbol("n"),), torch.float32)


@each_row("edit, message", {
    "argument": (_unknown_argument, "has no argument 'nonsense'"),
    "order": (lambda g: g.set_input(g.node("a"), 0, g.value("s")), "node 'a' reads %s before it is produced"),
    "order by replacing": (lambda g: g.replace_all_uses(g.inputs[0], g.value("s")),
        "node 'a' reads %s before"),
    "missing argument": (lambda g: g.insert("aten.add.Tensor", [g.value("a")], types=F32, operands=["self"]),
        "needs its argument 'other'"),
    "symbol": (lambda g: g.insert("aten.relu.default", [g.value("a")], types=OPEN, operands=["self"]),
        "no symbol n is declared"),
    "prologue": (_impure_prologue, "'dropout' is in the prologue, but"),
    "call": (lambda g: (g.set_call(g.inputs), g.add_input("more", F32)), "the call must use every input"),
    "weight": (lambda g: (g.add_symbol("n"), g.add_parameter("open", OPEN)), "its sizes are integers"),
})  # fmt: skip
def test_what_an_edit_breaks_is_found(edit: Callable[[Graph], object], message: str) -> None:
    graph = parse_ir(TEXT)

    edit(graph)

    with pytest.raises(GraphError, match=message):
        graph.check_edits()
    with pytest.raises(GraphError, match=message):
        graph.check()


def test_what_is_broken_stays_to_be_found(graph: Graph) -> None:
    _unknown_argument(graph)

    for _ in range(2):
        with pytest.raises(GraphError, match="nonsense"):
            graph.check_edits()


def test_an_edit_in_a_region_is_found() -> None:
    class Branches(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cond(x.sum() > 0, lambda x: x.relu(), lambda x: x.neg(), (x,))

    graph = extract_ir(Branches(), (torch.ones(2),))
    (owner,) = [node for node in graph.nodes if node.regions]
    region = owner.regions["true_fn"]

    region.set_attrs(region.nodes[0], {"nonsense": 1})

    with pytest.raises(GraphError, match="has no argument 'nonsense'"):
        graph.check_edits()


def test_a_copy_is_checked_where_the_graph_was_not(graph: Graph) -> None:
    _unknown_argument(graph)

    with pytest.raises(GraphError, match="nonsense"):
        graph.clone().check_edits()


def test_a_node_that_is_gone_is_not_checked(graph: Graph) -> None:
    node = graph.insert(
        "aten.relu.default", [graph.value("a")], {"nonsense": 1}, types=F32, operands=["self"]
    )
    graph.erase(node)

    graph.check_edits()


@each_row("seed", range(80))
def test_random_edits_are_refused_whole_or_judged_as_by_a_check_of_the_whole_graph(seed: int) -> None:
    draw, graph = random.Random(seed), parse_ir(TEXT)

    for _ in range(12):
        text, uses = str(graph), {value: value.uses for value in graph.values}
        try:
            _edit(draw, graph)
        except GraphError:
            assert str(graph) == text
            assert {value: value.uses for value in graph.values} == uses
        expected = _problem(graph.clone(), Graph.check) if _is_sorted(graph) else _problem(graph, Graph.check)
        assert (_problem(graph, Graph.check_edits) is None) == (expected is None)
        if expected is not None:
            break


def _edit(draw: random.Random, graph: Graph) -> None:
    node, value = draw.choice(graph.nodes), draw.choice(graph.values)
    edits: list[Callable[[], object]] = [
        lambda: graph.set_input(node, 0, value),
        lambda: graph.replace_all_uses(draw.choice(graph.values), value),
        lambda: graph.insert(
            draw.choice(["aten.relu.default", "aten.rand_like.default"]),
            [value],
            types=F32,
            operands=["self"],
            after=node,
        ),
        lambda: graph.erase(node),
        lambda: graph.move_to_prologue(node),
        lambda: graph.set_attrs(node, draw.choice([{}, {}, {"alpha": 2}])),
        lambda: graph.set_update(graph.buffers["b"], draw.choice([value, None])),
        lambda: graph.rename(value, draw.choice("xyz")),
        lambda: graph.add_buffer(draw.choice("de"), F32, name="x"),
        lambda: graph.erase_argument(value),
        lambda: graph.set_outputs((value, draw.choice(graph.values))),
    ]
    draw.choice(edits)()


def _is_sorted(graph: Graph) -> bool:
    try:
        graph.clone()
    except GraphError:
        return False
    return True


def _problem(graph: Graph, check: Callable[[Graph], None]) -> str | None:
    try:
        check(graph)
    except GraphError as error:
        return error.message
    return None

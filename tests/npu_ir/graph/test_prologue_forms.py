"""The prologue in text, in files, in numbers and in drawings; what is wrong in one is refused."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu_ir import Graph, ParseError, SerializationError, format_ir, load_ir, parse_ir, save_ir
from npu_ir.cli.facts import graph_facts, graph_lines
from npu_ir.viz import to_dot, to_mermaid, to_svg
from tests.support.documents import load_changed
from tests.support.rows import each_row
from tests.support.small_programs import CONDITION

TEXT = """\
graph G {
  input %x: f32[2]
  param %w: f32[2]
  buffer %state: f32[2]

  prologue {
    %half: f32[2] = aten.mul.Tensor(self=%w) {other=0.5}
    %relu: f32[2] = aten.relu.default(self=%half)
  }
  %y: f32[2] = aten.add.Tensor(self=%x, other=%relu)

  update %state = %y
  return %y
}
"""


@pytest.fixture
def graph() -> Graph:
    return parse_ir(TEXT)


def test_the_prologue_stands_in_braces_in_front_of_the_body(graph: Graph) -> None:
    assert str(graph) == TEXT
    assert [node.name for node in graph.prologue] == ["half", "relu"]
    assert parse_ir(format_ir(graph, provenance=True)) == graph


def test_regions_of_a_node_in_the_prologue_stand_in_the_braces() -> None:
    graph = parse_ir(CONDITION)

    assert str(graph) == CONDITION
    assert graph.node("cond").in_prologue


@each_row("old, new, message", {
    "reads an input": ("self=%w", "self=%x",
        "node 'half' cannot move to the prologue: %x is an input of the call\n  at: line 7"),
    "reads the body": ("self=%half", "self=%y", "%y is read before it is produced\n  at: line 8"),
    "unknown op": ("aten.relu.default(self=%half)", "npu.unheard_of.default(self=%half)",
        "neither PyTorch nor an installed plugin has it\n  at: line 8.*\n  fix: install, or import"),
    "no brace": ("  prologue {", "  prologue", "expected '{', got 'half'"),
    "behind the body": ("  prologue {", "  %z: f32[2] = aten.relu.default(self=%x)\n  prologue {",
        r"expected '\(', got '{'"),
    "at the end": ("return %y", "prologue {\n  }\n  return %y", "expected 'return', got 'prologue'"),
})  # fmt: skip
def test_text_with_a_wrong_prologue_is_refused(old: str, new: str, message: str) -> None:
    assert TEXT.count(old) == 1

    with pytest.raises(ParseError, match=message):
        parse_ir(TEXT.replace(old, new))


def test_a_file_tells_how_many_nodes_are_in_the_prologue(graph: Graph, tmp_path: Path) -> None:
    save_ir(graph, tmp_path / "graph.json")

    document = json.loads((tmp_path / "graph.json").read_text())
    assert document["prologue"] == 2
    assert load_ir(tmp_path / "graph.json") == graph


def test_a_prologue_of_no_nodes_may_be_stated_or_left_out(tmp_path: Path) -> None:
    graph = parse_ir("graph G {\n  prologue {\n  }\n  return ()\n}")
    save_ir(graph, tmp_path / "graph.json")
    document = json.loads((tmp_path / "graph.json").read_text())

    (tmp_path / "stated.json").write_text(json.dumps({**document, "prologue": 0}))

    assert "prologue" not in document
    assert "prologue" not in str(graph)
    assert graph.prologue == load_ir(tmp_path / "stated.json").prologue == ()
    assert graph_facts(graph)["nodes_in_prologue"] == 0
    assert "prologue" not in graph_lines(graph_facts(graph))["nodes"]


def stating(prologue: Any) -> tuple[Callable[[Any], Any], str]:
    """Return a damage of a document, and what is said of it."""
    return lambda d: d.update(prologue=prologue), f"expected a number of nodes, at most 3, found {prologue!r}"


@each_row("damage, message", {
    **{f"stating {number!r}": stating(number) for number in (4, -1, True, 1.0, "2", None)},
    "a node of the body": (lambda d: d.update(prologue=3),
        r"'y' cannot move to the prologue: %x is an input of the call\n  at: .*graph.json: nodes\[2\]"),
    "unknown op": (lambda d: d["nodes"][1].update(op="npu.unheard_of.default"),
        r"neither PyTorch nor an installed plugin has it\n  at: .*nodes\[1\]\n  fix: install, or import"),
    "updates what it reads": (lambda d: d["updates"].append(["w", "y"]),
        r"%w cannot be updated: node 'half' of the prologue reads it\n  at: .*graph.json: updates\[1\]"),
})  # fmt: skip
def test_a_file_with_a_wrong_prologue_is_refused(
    damage: Callable[[Any], Any], message: str, graph: Graph, tmp_path: Path
) -> None:
    with pytest.raises(SerializationError, match=message):
        load_changed(graph, damage, tmp_path)


def test_facts_count_the_nodes_of_the_prologue(graph: Graph) -> None:
    facts = graph_facts(graph)

    assert facts["nodes_in_prologue"] == 2
    assert graph_lines(facts)["nodes"] == "3 nodes of 3 ops, 2 of them in the prologue"


@pytest.mark.parametrize("draw", [to_svg, to_dot, to_mermaid])
def test_a_drawing_says_how_many_nodes_are_in_the_prologue(
    draw: Callable[[Graph], str], graph: Graph
) -> None:
    drawing = draw(graph)

    assert "3 nodes, 2 of them in the prologue" in drawing
    assert "relu" in drawing

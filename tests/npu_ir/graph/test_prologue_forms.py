"""The prologue in text, in files, in numbers and in drawings; what is wrong in one is refused."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from npu_ir import Graph, ParseError, SerializationError, format_ir, load_ir, parse_ir, save_ir
from npu_ir.cli.facts import graph_facts, graph_lines
from npu_ir.viz import to_dot, to_mermaid, to_svg
from tests.support.rows import each_row

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


# Text


def test_the_prologue_stands_in_braces_in_front_of_the_body(graph: Graph) -> None:
    assert str(graph) == TEXT
    assert [node.name for node in graph.prologue] == ["half", "relu"]
    assert parse_ir(format_ir(graph, provenance=True)) == graph


def test_regions_of_a_node_in_the_prologue_stand_in_the_braces() -> None:
    text = """\
graph G {
  param %pred: bool[]
  param %w: f32[2]

  prologue {
    %cond: f32[2] = higher_order.cond(pred=%pred, operands=(%w))
    region true_fn = graph yes {
      input %a: f32[2]

      %sin: f32[2] = aten.sin.default(self=%a)

      return (%sin,)
    }
    region false_fn = graph no {
      input %a: f32[2]


      return (%a,)
    }
  }

  return %cond
}
"""

    graph = parse_ir(text)

    assert str(graph) == text
    assert graph.node("cond").in_prologue


def test_an_empty_prologue_is_none() -> None:
    graph = parse_ir("graph G {\n  prologue {\n  }\n  return ()\n}")

    assert graph.prologue == ()
    assert "prologue" not in str(graph)


def test_an_op_may_be_called_prologue() -> None:
    graph = Graph()
    graph.insert("prologue", types=())

    assert '"prologue"()' in str(graph)
    assert parse_ir(str(graph)) == graph


@each_row(
    "old, new, message",
    {
        "reads an input": (
            "self=%w",
            "self=%x",
            "node 'half' cannot move to the prologue: %x is an input of the call\n  at: line 7",
        ),
        "updated": (
            "update %state",
            "update %w",
            "%w cannot be updated: node 'half' of the prologue reads it",
        ),
        "random": (
            "aten.relu.default(self=%half)",
            "aten.bernoulli.default(self=%half)",
            (
                "node 'relu' cannot move to the prologue: aten.bernoulli.default is not known to compute the "
                r"same each time.*\n  at: line 8"
            ),
        ),
        "unknown op": (
            "aten.relu.default(self=%half)",
            "custom(self=%half)",
            "node 'relu' cannot move to the prologue: custom is not known to compute",
        ),
        "reads the body": ("self=%half", "self=%y", "%y is read before it is produced\n  at: line 8"),
        "never closed": ("  }\n  %y", "  %y", "%x is an input of the call"),
        "no brace": ("  prologue {", "  prologue", "expected '{', got 'half'"),
        "behind the body": (
            "  prologue {",
            "  %z: f32[2] = aten.relu.default(self=%x)\n  prologue {",
            r"expected '\(', got '{'",
        ),
        "at the end": ("return %y", "prologue {\n  }\n  return %y", "expected 'return', got 'prologue'"),
        "in itself": ("%relu: f32[2] = aten", "prologue {\n  %relu: f32[2] = aten", r"expected '\('"),
    },
)
def test_text_with_a_wrong_prologue_is_refused(old: str, new: str, message: str) -> None:
    assert TEXT.count(old) == 1

    with pytest.raises(ParseError, match=message):
        parse_ir(TEXT.replace(old, new))


def test_a_region_with_a_prologue_is_refused() -> None:
    text = """
    graph G {
      input %x: f32[2]

      %y: f32[2] = loop(init=%x)
      region body = graph body {
        input %a: f32[2]
        prologue {
          %c: f32[2] = aten.full.default() {size=[2], fill_value=1.0}
        }
        return (%a,)
      }
      return %y
    }
    """

    with pytest.raises(
        ParseError, match="the region 'body' has a prologue: only a program is bound to weights"
    ):
        parse_ir(text)


# Files


def test_a_file_tells_how_many_nodes_are_in_the_prologue(graph: Graph, tmp_path: Path) -> None:
    save_ir(graph, tmp_path / "graph.json")

    assert json.loads((tmp_path / "graph.json").read_text())["prologue"] == 2
    assert load_ir(tmp_path / "graph.json") == graph


def test_a_file_does_not_mention_a_prologue_that_is_not_there(tmp_path: Path) -> None:
    save_ir(Graph(), tmp_path / "graph.json")

    assert "prologue" not in json.loads((tmp_path / "graph.json").read_text())


def test_a_file_may_state_that_there_is_no_prologue(tmp_path: Path) -> None:
    save_ir(Graph(), tmp_path / "graph.json")
    change(tmp_path / "graph.json", lambda document: document.update(prologue=0))

    assert load_ir(tmp_path / "graph.json").prologue == ()


def change(path: Path, damage: Callable[[Any], Any]) -> None:
    document = json.loads(path.read_text())
    damage(document)
    path.write_text(json.dumps(document))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        pytest.param(
            lambda d: d.update(prologue=4),
            "expected a number of nodes, at most 3, found 4\n  at: .*graph.json: prologue\n",
            id="too many",
        ),
        pytest.param(
            lambda d: d.update(prologue=-1), "expected a number of nodes, at most 3, found -1", id="negative"
        ),
        pytest.param(
            lambda d: d.update(prologue=True), "expected a number of nodes, .* found True", id="bool"
        ),
        pytest.param(
            lambda d: d.update(prologue=1.0), "expected a number of nodes, .* found 1.0", id="float"
        ),
        pytest.param(
            lambda d: d.update(prologue="2"), "expected a number of nodes, .* found '2'", id="string"
        ),
        pytest.param(
            lambda d: d.update(prologue=None), "expected a number of nodes, .* found None", id="null"
        ),
        pytest.param(
            lambda d: d.update(prologue=3),
            (
                r"node 'y' cannot move to the prologue: %x is an input of the call\n"
                r"  at: .*graph.json: nodes\[2\]"
            ),
            id="a node of the body",
        ),
        pytest.param(
            lambda d: d["nodes"][0].update(inputs=["x"]),
            (
                r"node 'half' cannot move to the prologue: %x is an input of the call\n"
                r"  at: .*graph.json: nodes\[0\]"
            ),
            id="reads an input",
        ),
        pytest.param(
            lambda d: d["nodes"][1].update(op="aten.bernoulli.default"),
            (
                r"node 'relu' cannot move to the prologue: aten.bernoulli.default is not known .*\n"
                r"  at: .*graph.json: nodes\[1\]"
            ),
            id="random",
        ),
        pytest.param(
            lambda d: d["updates"].append(["w", "y"]),
            r"%w cannot be updated: node 'half' of the prologue reads it\n  at: .*graph.json: updates\[1\]",
            id="updates what it reads",
        ),
    ],
)
def test_a_file_with_a_wrong_prologue_is_refused(
    damage: Callable[[Any], Any], message: str, graph: Graph, tmp_path: Path
) -> None:
    path = tmp_path / "graph.json"
    save_ir(graph, path)
    change(path, damage)

    with pytest.raises(SerializationError, match=message):
        load_ir(path)


# Numbers and drawings


def test_facts_count_the_nodes_of_the_prologue(graph: Graph) -> None:
    facts = graph_facts(graph)

    assert facts["nodes_in_prologue"] == 2
    assert graph_lines(facts)["nodes"] == "3 nodes of 3 ops, 2 of them in the prologue"


def test_facts_of_a_graph_without_a_prologue_do_not_mention_it() -> None:
    facts = graph_facts(Graph())

    assert facts["nodes_in_prologue"] == 0
    assert "prologue" not in graph_lines(facts)["nodes"]


@pytest.mark.parametrize("draw", [to_svg, to_dot, to_mermaid])
def test_a_drawing_says_how_many_nodes_are_in_the_prologue(
    draw: Callable[[Graph], str], graph: Graph
) -> None:
    drawing = draw(graph)

    assert "3 nodes, 2 of them in the prologue" in drawing
    assert "relu" in drawing

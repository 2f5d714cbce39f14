"""One picture of two graphs: what `draw_diff` draws."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from hypothesis import given

from npu_ir import Graph, TensorType, diff_ir, draw_diff
from npu_ir.errors import VisualizationError
from npu_ir.viz.diagram import BoxKind, Diagram, EdgeKind
from npu_ir.viz.diff_diagram import build_diff_diagram
from npu_ir.viz.dot import format_dot
from npu_ir.viz.mermaid import format_mermaid
from npu_ir.viz.svg import format_svg
from tests.support.random_graphs import graphs
from tests.support.rows import each_row
from tests.support.tiers import examples

F32 = TensorType((2, 3), torch.float32)


def chain(*ops: str, weight: str = "w") -> Graph:
    graph = Graph("chain")
    value = graph.add_input("x", F32)
    for op in ops:
        inputs = [value, graph.add_parameter(weight, F32)] if op == "add" else [value]
        value = graph.insert(f"test.{op}.default", inputs, types=F32).outputs[0]
    graph.set_outputs(value)
    return graph


def drawn(a: Graph, b: Graph, max_nodes: int = 60) -> Diagram:
    return build_diff_diagram(diff_ir(a, b), max_nodes)


def shown(diagram: Diagram) -> list[tuple[str, str]]:
    return [(box.kind.value, box.title) for box in diagram.boxes]


def test_what_is_gone_new_and_unchanged_is_told_by_kind_and_title() -> None:
    diagram = drawn(chain("relu", "neg", "sin"), chain("relu", "sin", "cos"))

    assert shown(diagram) == [
        ("input", "x"),
        ("unchanged", "test.relu"),
        ("removed", "\N{MINUS SIGN} test.neg"),
        ("changed", "~ test.sin"),
        ("added", "+ test.cos"),
        ("changed", "~ result"),
    ]


def test_edges_tell_which_graph_has_them() -> None:
    diagram = drawn(chain("relu", "neg", "sin"), chain("relu", "sin"))
    titles = {box.id: box.title.split()[-1] for box in diagram.boxes}

    edges = {(titles[edge.source], titles[edge.target]): edge.kind for edge in diagram.edges}

    assert edges == {
        ("x", "test.relu"): EdgeKind.PLAIN,
        ("test.relu", "test.neg"): EdgeKind.REMOVED,
        ("test.neg", "test.sin"): EdgeKind.REMOVED,
        ("test.relu", "test.sin"): EdgeKind.ADDED,
        ("test.sin", "result"): EdgeKind.PLAIN,
    }


def test_nodes_far_from_a_change_are_gathered() -> None:
    ops = [f"op{index}" for index in range(12)]

    diagram = drawn(chain(*ops), chain(*ops, "relu"))

    assert shown(diagram)[1:] == [
        ("unchanged", "11 nodes"),
        ("unchanged", "test.op11"),
        ("added", "+ test.relu"),
        ("changed", "~ result"),
    ]


def test_what_has_no_room_is_counted() -> None:
    diagram = drawn(chain(), chain(*(f"op{index}" for index in range(12))), max_nodes=5)

    assert [title for kind, title in shown(diagram) if kind == BoxKind.MORE.value] == ["... 8 more nodes"]
    assert sum(kind == "added" for kind, _ in shown(diagram)) == 4


def test_too_few_boxes_are_refused() -> None:
    with pytest.raises(VisualizationError, match="max_nodes=1: a drawing has room for 2 boxes at least"):
        drawn(chain(), chain(), max_nodes=1)


@each_row("form", [format_svg, format_dot, format_mermaid])
def test_colours_of_edges_are_in_every_form(form: Callable[[Diagram], str]) -> None:
    text = form(drawn(chain("relu", "neg"), chain("relu")))

    assert text.count("#b91c1c") > 1  # of the box, and of the edge to it
    assert "dash" in text


def test_a_drawing_is_written_to_the_file_of_the_form_that_its_name_tells(tmp_path: Path) -> None:
    diff = diff_ir(chain("relu"), chain("neg"))

    path = draw_diff(diff, tmp_path / "diff.mmd")

    assert path.read_text(encoding="utf-8").startswith("---\ntitle:")
    with pytest.raises(VisualizationError, match="no drawing is written to a file that ends in '.html'"):
        draw_diff(diff, tmp_path / "diff.html")


@examples(8)
@given(graphs(), graphs())
def test_any_two_graphs_can_be_drawn(a: Graph, b: Graph) -> None:
    diagram = drawn(a, b, max_nodes=6)

    ids = {box.id for box in diagram.boxes}
    assert len(ids) == len(diagram.boxes)
    assert all({edge.source, edge.target} <= ids for edge in diagram.edges)
    assert format_svg(diagram).startswith("<svg")

"""Drawings of graphs with open sizes and with regions."""

import xml.etree.ElementTree as ElementTree
from collections.abc import Callable

import torch

from npu_ir import Graph, TensorType, parse_ir
from npu_ir.serial.parser import parse_type
from npu_ir.viz import to_svg
from npu_ir.viz.captions import type_caption
from npu_ir.viz.diagram import Box, Frame
from npu_ir.viz.outline import Outline
from tests.support.drawn_graphs import FORMS, diagram
from tests.support.rows import each_row
from tests.support.small_programs import program

TEXT = """
graph g {
  symbol s in [2, 8]
  input %p: bool[]
  input %x: f32[s, 4]

  %y: f32[s, 4] = higher_order.cond(pred=%p, operands=(%x))
  region true_fn = graph yes {
    input %a: f32[s, 4]
    const %c: f32[2] = [1.0, 2.0]

    %i: bool[] = aten.any.default(self=%a)
    %inner: f32[s, 4] = higher_order.cond(pred=%i, operands=(%a))
    region true_fn = graph yes {
      input %a: f32[s, 4]

      %sin: f32[s, 4] = aten.sin.default(self=%a)

      return (%sin,)
    }
    region false_fn = graph no {
      input %a: f32[s, 4]

      return (%a,)
    }
    %cos: f32[s, 4] = aten.cos.default(self=%inner)

    return (%cos,)
  }
  region false_fn = graph no {
    input %a: f32[s, 4]

    return (%a,)
  }
  %relu: f32[s, 4] = aten.relu.default(self=%y)

  return %relu
}
"""


def outline(items: tuple[Box | Frame, ...]) -> list[object]:
    """Return the titles of boxes, and pairs of the title of a frame and what is in it."""
    return [item.title if isinstance(item, Box) else (item.title, outline(item.items)) for item in items]


def test_a_node_is_drawn_with_its_regions_inside_of_it() -> None:
    drawn = diagram(parse_ir(TEXT))

    no = ("false_fn", ["returns"])
    inner = ("inner", ["cond", ("true_fn", ["sin", "returns"]), no, "results of inner"])
    outer = ("y", ["cond", ("true_fn", ["any", inner, "cos", "returns"]), no, "results of y"])
    assert outline(drawn.items) == ["p", "x", outer, "relu", "output"]
    assert drawn.summary == "2 nodes, 4 more in regions"


def test_edges_lead_into_regions_through_them_and_out_of_the_results() -> None:
    drawn = diagram(parse_ir(TEXT))
    title = {box.id: box.title for box in drawn.boxes}

    edges = [(title[edge.source], title[edge.target], edge.label) for edge in drawn.edges]

    assert set(edges) == {
        ("p", "cond", ""),
        ("x", "cond", ""),
        ("cond", "any", "s x 4 f32"),
        ("cond", "cond", "s x 4 f32"),
        ("any", "cond", "bool"),
        ("cond", "sin", "s x 4 f32"),
        ("sin", "returns", ""),
        ("cond", "returns", ""),
        ("returns", "results of inner", ""),
        ("results of inner", "cos", "s x 4 f32"),
        ("cos", "returns", ""),
        ("returns", "results of y", ""),
        ("results of y", "relu", "s x 4 f32"),
        ("relu", "output", ""),
    }


def test_regions_are_named_where_there_is_no_room_for_them() -> None:
    small, closed = diagram(parse_ir(TEXT), max_nodes=5), diagram(parse_ir(TEXT), depth=0)

    cond = next(box for box in small.boxes if box.title == "cond")
    assert cond.details == ("%y", "true_fn: 4 ops, false_fn: 0 ops")
    assert (small.frames, closed.frames, len(closed.edges)) == ((), (), 3)


def test_regions_nested_without_end_are_drawn_to_a_depth() -> None:
    graph = Graph("deepest")
    graph.set_outputs([graph.add_input("x", TensorType((2,), torch.float32))])
    for _ in range(12):
        outer = Graph("around")
        x = outer.add_input("x", TensorType((2,), torch.float32))
        outer.set_outputs(outer.insert("loop", [x], types=x.type, regions={"body": graph}).outputs)
        graph = outer

    drawn = diagram(graph)

    assert len(drawn.frames) == 12
    assert any("body: 5 ops" in box.details for box in drawn.boxes)


def test_blocks_with_other_regions_are_not_repetitions() -> None:
    body = "region body = graph body {{ input %x: f32[2] %y: f32[2] = {}(%x) return [%y] }}\n"
    loops = [
        f"%{value}: f32[2] = loop(x=%{read}) {body.format(op)}"
        for value, read, op in (("a", "x", "sin"), ("b", "a", "sin"), ("c", "b", "cos"))
    ]
    found = Outline(program(f"input %x: f32[2] {''.join(loops)} return %c"))

    assert found.repeats(0, 1, first=True)
    assert not found.repeats(1, 1, first=True)


def test_a_region_that_returns_only_constants_hangs_on_its_node() -> None:
    region = "graph body { input %x: bool[] const %c: i64[] = [2] return [1, %c] }"
    drawn = diagram(program(f'input %x: bool[] effect(x=%x) as "effect" region body = {region} return ()'))

    title = {box.id: box.title for box in drawn.boxes}
    assert [(title[edge.source], title[edge.target]) for edge in drawn.edges] == [
        ("x", "effect"),
        ("effect", "returns"),
        ("returns", "results of effect"),
    ]


@each_row("max_nodes", [2, 5, 60])
@each_row("form", FORMS)
def test_every_form_draws_regions(form: Callable[..., str], max_nodes: int) -> None:
    graph = parse_ir(TEXT)
    before = str(graph)

    drawn = form(graph, max_nodes=max_nodes)

    assert drawn == form(parse_ir(TEXT), max_nodes=max_nodes)
    assert str(graph) == before
    assert form is not to_svg or ElementTree.fromstring(drawn).tag.endswith("svg")
    assert "false_fn" in drawn


LONG = "+".join(f"s{index}" for index in range(40))


@each_row("type, caption", [
    ("f32[2, 3]", "2x3 f32"),
    ("f32[s0, 3, 2*s1+1]", "s0 x 3 x 2*s1+1 f32"),
    ("f32[2, 3]@sparse_coo", "2x3 f32 sparse_coo"),
    ("int(2*s0)", "int(2*s0)"),
    (f"int({LONG})", 44),
    (f"f32[{LONG}]", 44),
])  # fmt: skip
def test_a_type_is_told_in_a_few_words(type: str, caption: str | int) -> None:
    shown = type_caption(parse_type(type))

    assert shown == caption or len(shown) == caption

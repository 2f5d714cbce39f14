"""Pages of graphs: what they hold, whatever the names, and how nodes are grouped."""

import json
import re
from collections.abc import Iterator
from html.parser import HTMLParser
from typing import Any

import pytest
from hypothesis import given

import npu_ir
from npu_ir import Graph, Provenance, diff_ir
from npu_ir.viz.diagram import STYLES, BoxKind
from npu_ir.viz.page import html
from npu_ir.viz.page.tree import MAX_ITEMS
from tests.support.drawn_graphs import F32, blocks, chain
from tests.support.places import ROOT
from tests.support.random_graphs import graphs
from tests.support.small_programs import program
from tests.support.tiers import examples

ASSETS = ROOT / "packages/npu-ir/src/npu_ir/viz/page/assets"
VOID = {"meta", "input"}
HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "a&b\"c'",
    "é 漢字 😀",
    "new\nline\x00\ud800",
    "{{data}}",
]


class Page(HTMLParser):
    """The elements of a page, and the data in it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.open: list[str] = []
        self.texts: list[tuple[str, str]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.texts.append((self.open[-1] if self.open else "", data))

    @property
    def data(self) -> Any:
        (text,) = [text for tag, text in self.texts if tag == "script" and text.startswith('{"graphs"')]
        return json.loads(text)


def boxes(item: Any, side: int = 0) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = Page(npu_ir.to_html(item)).data["graphs"][side]["boxes"]
    return found


def tree(graph: Graph) -> list[Any]:
    found: list[Any] = Page(npu_ir.to_html(graph)).data["graphs"][0]["tree"]
    return found


def positions(items: list[Any]) -> Iterator[int]:
    for item in items:
        if isinstance(item, dict):
            yield from positions(item["items"])
        else:
            yield item


def outline(items: list[Any]) -> list[Any]:
    """Return the tree as titles of groups with their content, and the number of boxes between them."""
    return [(item["title"], outline(item["items"])) if isinstance(item, dict) else "box" for item in items]


@pytest.mark.smoke
def test_a_page_holds_what_there_is_to_know_of_a_node() -> None:
    graph = Graph("Net")
    x, weight = graph.add_input("x", F32), graph.add_parameter("fc.weight", F32)
    place = Provenance("fc", "net.py:7", ("old",))
    node = graph.insert("aten.add.Tensor", [x, weight], {"alpha": 2}, types=F32, provenance=place)
    graph.set_outputs({"y": node.outputs[0]})

    first, box, last = boxes(graph)

    assert (first["kind"], first["title"], first["outputs"]) == ("input", "x", [["x", "f32[2, 3]"]])
    assert box == {
        "kind": "op with weights", "title": "add.Tensor", "line": "2x3 f32", "name": "add",
        "op": "aten.add.Tensor", "module": "fc", "source": "net.py:7", "from": ["old"],
        "outputs": [["add", "f32[2, 3]"]],
        "inputs": [["", "x", "f32[2, 3]", 0], ["", "fc.weight", "f32[2, 3]", "param"]],
        "attrs": [["alpha", "2"]], "bytes": 24,
    }  # fmt: skip
    assert (last["kind"], last["title"], last["inputs"]) == (
        "output",
        "output['y']",
        [["", "add", "f32[2, 3]", 1]],
    )


@given(graph=graphs())
@examples(20)
def test_every_node_is_in_the_tree_once(graph: Graph) -> None:
    data = Page(npu_ir.to_html(graph)).data["graphs"][0]

    assert sorted(positions(data["tree"])) == list(range(len(data["boxes"])))
    names = [box["name"] for box in data["boxes"] if "op" in box]
    assert sorted(names) == sorted(node.name for part in graph.graphs() for node in part.nodes)


@pytest.mark.parametrize("name", HOSTILE, ids=range(len(HOSTILE)))
def test_a_page_is_well_formed_whatever_the_names(name: str) -> None:
    graph = Graph(name)
    x, weight = graph.add_input(name, F32), graph.add_parameter(name, F32)
    node = graph.insert(name, [x, weight], {"text": name}, types=F32, name=name, provenance=Provenance(name))
    graph.set_outputs({name: node.outputs[0]})

    page = Page(npu_ir.to_html(graph))

    assert page.open == []
    assert page.tags.count("script") == 3
    assert page.data["graphs"][0]["boxes"][1]["name"] == name


def test_a_page_refers_to_nothing_outside() -> None:
    text = npu_ir.to_html(blocks(3))
    page = Page(text)

    assert not {"link", "img", "iframe", "base", "object"} & set(page.tags)
    assert not {"src", "href"} & {name for name, _ in page.attributes}
    assert not re.findall(r"@import|url\(|https?://", text.replace(" http://www.w3.org/2000/svg", ""))


def test_the_same_graph_gives_the_same_page() -> None:
    assert npu_ir.to_html(blocks(3)) == npu_ir.to_html(blocks(3))


def test_equal_modules_in_a_row_are_one_group_of_groups() -> None:
    graph = blocks(12)

    *_, stem, repeat, head, result = tree(graph)

    assert (repeat["kind"], repeat["title"]) == ("repeat", "layers.0 … layers.11")
    assert [item["title"] for item in repeat["items"]] == [f"layers.{index}" for index in range(12)]
    assert all(isinstance(item, int) for item in (stem, head, result))


def test_layers_of_a_backward_are_one_group_although_the_last_is_first() -> None:
    graph = Graph("step")
    value = graph.add_input("x", F32)
    forward, backward = [
        [Provenance(f"layers.{index}", phase=phase) for index in range(6)]
        for phase in ("forward", "backward")
    ]
    kept = []
    for place in forward:
        kept.append(value)
        for op in ("scale", "tanh"):
            value = graph.insert(op, [value], types=F32, provenance=place).outputs[0]
    for phase in ("forward", "backward"):
        place = Provenance(phase=phase)
        value = graph.insert("loss", [value], types=F32, provenance=place).outputs[0]
    for place, activation in zip(reversed(backward), reversed(kept), strict=True):
        value = graph.insert("tanh_backward", [value, activation], types=F32, provenance=place).outputs[0]
        value = graph.insert("scale_backward", [value], types=F32, provenance=place).outputs[0]
    graph.set_outputs(value)

    phases = [item for item in tree(graph) if isinstance(item, dict)]

    assert [item["title"] for item in phases] == ["forward", "backward"]
    (first, _), (_, second) = (item["items"] for item in phases)
    assert first["title"] == "layers.0 … layers.5"
    # The first layer reads the input, which no layer has produced.
    assert [item["title"] for item in second["items"]] == ["5 … 1", "0"]


def test_a_module_is_a_group_unless_it_ran_one_node() -> None:
    graph = chain(["a.b", "a.b", "a.c", "a", "", "d.e.f", "d.e.f"])

    assert outline(tree(graph)) == [
        "box",
        ("a", [("b", ["box", "box"]), "box", "box"]),
        "box",
        ("d.e.f", ["box", "box"]),
        "box",
    ]


def test_a_long_list_is_cut_into_parts() -> None:
    graph = chain([""] * (MAX_ITEMS * MAX_ITEMS + 1))

    def widest(items: list[Any]) -> int:
        inner = [widest(item["items"]) for item in items if isinstance(item, dict)]
        return max([len(items), *inner])

    assert widest(tree(graph)) <= MAX_ITEMS + 2  # with an input and a result beside the parts


def test_many_inputs_are_a_group() -> None:
    graph = Graph("wide")
    values = [graph.add_input(f"x{index}", F32) for index in range(9)]
    graph.set_outputs(graph.insert("op", values, types=F32).outputs[0])

    assert outline(tree(graph)) == [("9 inputs", ["box"] * 9), "box", "box"]


def test_the_prologue_is_a_group() -> None:
    graph = program(
        "param %w: f32[2] prologue { %p: f32[2] = aten.relu.default(%w) } %y: f32[2] = op(%p) return %y"
    )

    assert outline(tree(graph)) == [("prologue", ["box"]), "box", "box"]
    assert boxes(graph)[0]["once"] is True


def test_regions_are_groups_beside_the_node_that_owns_them() -> None:
    page = Page(npu_ir.to_html(_with_regions())).data["graphs"][0]

    (group,) = [item for item in page["tree"] if isinstance(item, dict)]
    assert (group["kind"], [item["title"] for item in group["items"][1:]]) == (
        "node",
        ["true_fn", "false_fn"],
    )
    first = page["boxes"][group["items"][1]["items"][0]]
    assert (first["kind"], first["inputs"]) == ("input", [["", "", "", group["items"][0]]])


def test_boxes_of_a_difference_have_a_status_and_a_partner() -> None:
    a = program("input %x: f32[2] %a: f32[2] = one(%x) %b: f32[2] = two(%a) return %b")
    b = program("input %x: f32[2] %b: f32[2] = two(%x) %c: f32[2] = three(%b) return %c")

    before, after = boxes(diff_ir(a, b)), boxes(diff_ir(a, b), side=1)

    assert [(box["title"], box["status"]) for box in before] == [
        ("x", "unchanged"), ("one", "removed"), ("two", "changed"), ("output", "changed"),
    ]  # fmt: skip
    assert [(box["title"], box["status"]) for box in after] == [
        ("x", "unchanged"), ("two", "changed"), ("three", "added"), ("output", "changed"),
    ]  # fmt: skip
    assert (before[2]["partner"], after[1]["partner"]) == (1, 2)
    assert after[1]["changes"] == before[2]["changes"]


def test_regions_of_a_difference_have_a_status() -> None:
    graph, other = _with_regions(), program("input %x: f32[2] %y: f32[2] = op(%x) return %y")

    same, removed = boxes(diff_ir(graph, graph)), boxes(diff_ir(graph, other))

    assert {box["status"] for box in same if "op" in box} == {"unchanged"}
    assert {box["title"]: box["status"] for box in removed if "op" in box} == {
        "cond": "changed", "one": "removed", "two": "removed",
    }  # fmt: skip


def test_notebooks_show_graphs_and_differences_in_a_frame() -> None:
    graph = blocks(2)

    for item in (graph, diff_ir(graph, blocks(3))):
        shown = item._repr_html_()

        page = Page(shown)
        assert page.tags == ["iframe"]
        assert dict(page.attributes)["srcdoc"] == npu_ir.to_html(item)


def test_notebooks_only_name_a_very_large_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(html, "_MAX_NOTEBOOK_NODES", 3)

    assert (
        blocks(2)._repr_html_()
        == "<pre>&lt;Graph &#x27;blocks&#x27;: 2 inputs, 2 parameters, 8 nodes&gt;</pre>"
    )


def test_light_boxes_have_the_colours_of_the_other_drawings() -> None:
    style = (ASSETS / "page.css").read_text("utf-8")
    slugs = {BoxKind.WEIGHTED: "weighted"}
    kinds = (
        BoxKind.INPUT,
        BoxKind.OP,
        BoxKind.WEIGHTED,
        BoxKind.MODULE,
        BoxKind.OUTPUT,
        BoxKind.UPDATE,
        BoxKind.ADDED,
    )

    for kind in (*kinds, BoxKind.REMOVED, BoxKind.CHANGED, BoxKind.UNCHANGED):
        name = slugs.get(kind, kind.value)
        assert f"--{name}-fill: {STYLES[kind].fill}; --{name}-line: {STYLES[kind].stroke};" in style, name


def test_both_ways_to_the_dark_theme_have_the_same_colours() -> None:
    style = (ASSETS / "page.css").read_text("utf-8")

    chosen, preferred = re.findall(r"--scheme: dark;(.*?)}", style, re.DOTALL)
    assert chosen.split() == preferred.split()
    light = set(re.findall(r"(--[\w-]+):", style.partition('[data-theme="dark"]')[0]))
    assert light == {*re.findall(r"(--[\w-]+):", chosen), "--scheme"}


def test_the_licence_of_the_layout_engine_is_beside_it() -> None:
    engine = (ASSETS / "dagre.min.js").read_text("utf-8")

    assert "dagre" in engine
    assert "Permission is hereby granted" in (ASSETS / "dagre.LICENSE.txt").read_text("utf-8")


def _with_regions() -> Graph:
    return program("""input %p: bool[] input %x: f32[2]
        %y: f32[2] = higher_order.cond(pred=%p, operands=(%x))
        region true_fn = graph yes { input %a: f32[2] %t: f32[2] = one(%a) return (%t,) }
        region false_fn = graph no { input %a: f32[2] %f: f32[2] = two(%a) return (%f,) }
        return %y""")

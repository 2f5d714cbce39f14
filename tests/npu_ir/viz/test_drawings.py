"""Drawings of graphs: what they show."""

import re
from collections.abc import Callable

import pytest
import torch

from npu_ir import Graph, Provenance, TensorType
from npu_ir.viz import to_mermaid, to_svg
from npu_ir.viz.diagram import STYLES, BoxKind
from tests.support.drawn_graphs import F32, FORMS, diagram, edges, titles
from tests.support.places import ROOT
from tests.support.rows import each_row
from tests.support.small_programs import program

PAGE = ROOT / "docs" / "how-to" / "read-a-graph.md"
PICTURE = ROOT / "docs" / "pictures" / "net.svg"


@pytest.mark.smoke
def test_a_small_graph_is_drawn_node_by_node_as_mermaid() -> None:
    graph = Graph("Net")
    x = graph.add_input("x", F32)
    weight = graph.add_parameter("fc.weight", TensorType((4, 3), torch.float32))
    linear = graph.insert("aten.linear.default", [x, weight], types=F32, provenance=Provenance("fc"))
    relu = graph.insert("aten.relu.default", linear.outputs, types=F32)
    graph.set_outputs({"logits": relu.outputs[0]})

    text = to_mermaid(graph)

    assert text == (
        "---\n"
        'title: "Net: 2 nodes, 12 parameters"\n'
        "---\n"
        "flowchart TD\n"
        '  i0(["x<br>2x3 f32"]):::input\n'
        '  n0("linear<br>fc: #37;linear<br>weight 4x3"):::weighted\n'
        '  n1("relu<br>#37;relu"):::op\n'
        '  o0(["output#91;#39;logits#39;#93;<br>2x3 f32"]):::output\n'
        "  i0 --> n0\n"
        '  n0 --> |"2x3 f32"| n1\n'
        "  n1 --> o0\n"
        "  classDef input fill:#d8f3dc,stroke:#2d6a4f,color:#1f2328\n"
        "  classDef op fill:#ffffff,stroke:#57606a,color:#1f2328\n"
        "  classDef weighted fill:#dbeafe,stroke:#1d4ed8,color:#1f2328\n"
        "  classDef output fill:#cffafe,stroke:#155e75,color:#1f2328\n"
        "  linkStyle default stroke:#6b7280\n"
    )


def test_every_kind_of_argument_and_result_has_its_own_kind_of_box() -> None:
    arguments = "input %x: f32[2] param %w: f32[2] buffer %b: f32[2] state %m: f32[2] const %c: i64[] = [0]"
    graph = program(f"{arguments} %op: f32[2] = op(%x, %w, %b, %m, %c) update %b = %op return %op")

    drawn = diagram(graph, weights=True)

    assert {box.kind: box.title for box in drawn.boxes} == {
        BoxKind.INPUT: "x",
        BoxKind.PARAMETER: "w",
        BoxKind.BUFFER: "b",
        BoxKind.STATE: "m",
        BoxKind.CONSTANT: "c",
        BoxKind.WEIGHTED: "op",
        BoxKind.OUTPUT: "output",
        BoxKind.UPDATE: "b",
    }
    assert edges(drawn) == {*((name, "op", "") for name in "xwbmc"), ("op", "output", ""), ("op", "b", "")}


def test_kinds_of_box_differ_in_colour() -> None:
    looks = {(shown.fill, shown.dashed) for shown in STYLES.values()}

    assert len(looks) == len(STYLES) == len(BoxKind)


def test_weights_of_one_module_that_one_op_reads_share_a_box_in_its_frame() -> None:
    weights = "".join(f"param %m.{name}.{part}: f32[2]\n" for name in "ab" for part in ("weight", "bias"))
    graph = program(f"""input %x: f32[2]
        {weights}
        %a: f32[2] = op(%x, %m.a.weight, %m.a.bias)
        %b: f32[2] = op(%a, %m.b.weight, %m.b.bias)
        return %b""")
    for node in graph.nodes:
        graph.set_provenance(node, Provenance(f"m.{node.name}"))

    drawn = diagram(graph, weights=True)

    (frame,) = drawn.frames
    assert [item.title for item in frame.items] == ["m.a", "op", "m.b", "op"]
    assert frame.items[0].details == ("weight: 2 f32", "bias: 2 f32")


KINDS = """
  input %x: f32[2]
  %a: f32[2], %b: f32[2] = split(%x)
  %n: int = count(%x)
  %s: bf16[] = sum(%x)
  %y: f32[2] = join(%a, %b, %n, %s)
  return %y
"""


@each_row("text, wanted", {
    "tied weight": ("param %tied: f32[2] %a: f32[2] = first(%tied) %b: f32[2] = second(%a, %tied) return %b",
        {("tied", "first", ""), ("tied", "second", ""), ("first", "second", "2 f32"),
        ("second", "output", "")}),
    "kinds of values": (KINDS,
        {("x", "split", ""), ("x", "count", ""), ("x", "sum", ""), ("split", "join", "2 values"),
            ("count", "join", "int"), ("sum", "join", "bf16"), ("join", "output", "")}),
    "read twice": ("%x: f32[2] = make() %y: f32[2] = mul(%x, %x) return %y",
        {("make", "mul", "2 f32"), ("mul", "output", "")}),
})  # fmt: skip
def test_edges_tell_the_type_of_one_value_and_the_number_of_several(
    text: str, wanted: set[tuple[str, str, str]]
) -> None:
    drawn = diagram(program(text), weights=True)

    assert edges(drawn) == wanted
    assert len(drawn.edges) == len(wanted)


def test_an_output_that_is_an_argument_says_which() -> None:
    drawn = diagram(program("input %x: f32[2] param %fc.weight: f32[2] return (%x, %fc.weight, None, 3)"))

    assert [box.details[1] for box in drawn.boxes if box.kind is BoxKind.OUTPUT] == ["is x", "is fc.weight"]
    assert edges(drawn) == {("x", "output[0]", "")}


def test_many_inputs_and_many_outputs_share_a_box_each() -> None:
    graph = Graph()
    inputs = [graph.add_input(f"x{index}", F32) for index in range(9)]
    node = graph.insert("op", inputs, types=[F32] * 9)
    graph.set_outputs(list(node.outputs))

    drawn = diagram(graph)

    assert titles(drawn) == ["9 inputs", "op", "9 outputs"]
    assert drawn.boxes[0].details == ("x0, x1, x2, ...",)


@each_row("form", FORMS)
def test_a_graph_of_no_nodes_is_drawn(form: Callable[..., str]) -> None:
    drawn = diagram(program("input %unused: f32[2] return ()"))

    assert titles(drawn) == ["unused"]
    assert drawn.summary == "0 nodes"
    assert "empty" in form(Graph("empty"))


@each_row("count, caption", [
    (1, "1 parameter"), (999, "999 parameters"), (1000, "1K"), (25_557_032, "25.6M"), (999_999, "1M"),
    (7 * 10**10, "70B"),
])  # fmt: skip
def test_sizes_are_rounded_to_three_digits(count: int, caption: str) -> None:
    drawn = diagram(program(f"param %w: f32[{count}] return ()"))

    assert drawn.summary.startswith(f"0 nodes, {caption}")


def test_the_drawing_in_the_documentation_is_that_of_its_model() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (code, shown) = (
        re.search(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for kind in ("python", "mermaid")
    )
    namespace: dict[str, Graph] = {}

    exec(code[1], namespace)

    assert to_mermaid(namespace["graph"]) == shown[1]
    assert to_svg(namespace["graph"]) == PICTURE.read_text(encoding="utf-8")

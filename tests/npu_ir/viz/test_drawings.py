"""Drawings of graphs: what they show."""

from __future__ import annotations

import math
import re
from collections.abc import Callable

import pytest
import torch

from npu_ir import Graph, Provenance, ScalarType, TensorType, extract_ir
from npu_ir.viz import diagram as style
from npu_ir.viz import to_mermaid
from npu_ir.viz.diagram import STYLES, BoxKind, Frame
from tests.support.drawn_graphs import F32, FORMS, diagram, edges, titles
from tests.support.places import ROOT
from tests.support.rows import each_row

PAGE = ROOT / "docs" / "how-to" / "read-a-graph.md"


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
    graph = Graph()
    x = graph.add_input("x", F32)
    parameter, buffer = graph.add_parameter("w", F32), graph.add_buffer("b", F32)
    constant, state = graph.add_constant("c", torch.zeros(2, 3)), graph.add_state("m", F32)
    node = graph.insert("op", [x, parameter, buffer, state, constant], types=F32)
    graph.set_outputs(node.outputs[0])
    graph.set_update(buffer, node.outputs[0])

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
    assert edges(drawn) == {
        ("x", "op", ""),
        ("w", "op", ""),
        ("b", "op", ""),
        ("m", "op", ""),
        ("c", "op", ""),
        ("op", "output", ""),
        ("op", "b", ""),
    }


def test_kinds_of_box_differ_in_colour() -> None:
    looks = {(shown.fill, shown.dashed) for shown in STYLES.values()}

    assert len(looks) == len(STYLES) == len(BoxKind)


@each_row("kind", BoxKind)
@each_row("text", [style.TEXT, style.MUTED])
def test_text_in_boxes_has_the_contrast_that_is_promised(kind: BoxKind, text: str) -> None:
    def luminance(colour: str) -> float:
        channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    assert (luminance(STYLES[kind].fill) + 0.05) / (luminance(text) + 0.05) >= 7


def test_weights_of_one_module_that_one_op_reads_share_a_box_in_its_frame() -> None:
    graph = Graph()
    value = graph.add_input("x", F32)
    for name in ("a", "b"):
        weights = [graph.add_parameter(f"m.{name}.{part}", F32) for part in ("weight", "bias")]
        value = graph.insert("op", [value, *weights], types=F32, provenance=Provenance(f"m.{name}")).outputs[
            0
        ]
    graph.set_outputs(value)

    drawn = diagram(graph, weights=True)

    (frame,) = drawn.frames
    assert [item.title for item in frame.items] == ["m.a", "op", "m.b", "op"]
    assert frame.items[0].details == ("weight: 2x3 f32", "bias: 2x3 f32")


def test_a_weight_that_several_boxes_read_has_a_box_with_an_edge_to_each() -> None:
    graph = Graph()
    tied = graph.add_parameter("tied", F32)
    first = graph.insert("first", [tied], types=F32)
    graph.set_outputs(graph.insert("second", [*first.outputs, tied], types=F32).outputs[0])

    drawn = diagram(graph, weights=True)

    assert titles(drawn, BoxKind.PARAMETER) == ["tied"]
    assert {("tied", "first", ""), ("tied", "second", "")} < edges(drawn)


def test_edges_tell_the_type_of_one_value_and_the_number_of_several() -> None:
    graph = Graph()
    x = graph.add_input("x", F32)
    split = graph.insert("split", [x], types=(F32, F32))
    count = graph.insert("count", [x], types=ScalarType("int"))
    scalar = graph.insert("sum", [x], types=TensorType((), torch.bfloat16))
    both = graph.insert("join", [*split.outputs, *count.outputs, *scalar.outputs], types=F32)
    graph.set_outputs(both.outputs[0])

    found = edges(diagram(graph))

    assert {("split", "join", "2 values"), ("count", "join", "int"), ("sum", "join", "bf16")} < found


def test_a_value_that_is_read_twice_is_one_edge() -> None:
    graph = Graph()
    x = graph.insert("make", types=F32).outputs[0]
    graph.set_outputs(graph.insert("mul", [x, x], types=F32).outputs[0])

    found = diagram(graph).edges

    assert [edge.label for edge in found] == ["2x3 f32", ""]


def test_an_output_that_is_an_argument_says_which() -> None:
    graph = Graph()
    x, weight = graph.add_input("x", F32), graph.add_parameter("fc.weight", F32)
    graph.set_outputs((x, weight, None, 3))

    drawn = diagram(graph)

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


def test_an_input_that_nothing_reads_is_shown() -> None:
    graph = Graph()
    graph.add_input("unused", F32)

    drawn = diagram(graph)

    assert titles(drawn) == ["unused"]
    assert drawn.summary == "0 nodes"


@each_row("form", FORMS)
def test_an_empty_graph_can_be_drawn(form: Callable[..., str]) -> None:
    assert "empty" in form(Graph("empty"))


@each_row("count, caption", [
    (1, "1 parameter"),
    (999, "999 parameters"),
    (1000, "1K"),
    (25_557_032, "25.6M"),
    (999_999, "1M"),
    (7 * 10**10, "70B"),
])  # fmt: skip
def test_sizes_are_rounded_to_three_digits(count: int, caption: str) -> None:
    graph = Graph()
    graph.add_parameter("w", TensorType((count,), torch.float32))

    assert diagram(graph).summary.startswith(f"0 nodes, {caption}")


# A real model


class Residual(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = torch.nn.Conv2d(4, 4, 3, padding=1)
        self.bn = torch.nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(x + self.bn(self.conv(x)))


def test_a_model_in_train_mode_is_drawn_with_its_updates() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(1, 4, 1), Residual(), Residual())
    graph = extract_ir(model, (torch.randn(2, 1, 8, 8),))

    drawn = diagram(graph)

    updated = "".join(box.title + "".join(box.details) for box in drawn.boxes if box.kind is BoxKind.UPDATE)
    assert all(updated.count(name) == 2 for name in ("running_mean", "running_var", "num_batches_tracked"))
    outer = [item for item in drawn.items if isinstance(item, Frame)]
    assert [frame.title for frame in outer] == ["1", "2"]
    assert math.isclose(len(titles(drawn, BoxKind.INPUT, BoxKind.OUTPUT)), 2)


# The page of the documentation


def test_the_drawing_in_the_documentation_is_that_of_its_model() -> None:
    text = PAGE.read_text(encoding="utf-8")
    (code, shown) = (
        re.search(rf"^```{kind}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        for kind in ("python", "mermaid")
    )
    assert code is not None
    assert shown is not None
    namespace: dict[str, Graph] = {}

    exec(code[1], namespace)

    assert to_mermaid(namespace["graph"]) == shown[1]

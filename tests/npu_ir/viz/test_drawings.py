"""Drawings of graphs: what they show, that they are well-formed, and where they are written."""

from __future__ import annotations

import itertools
import math
import re
import shutil
import stat
import subprocess
import sys
import time
import xml.etree.ElementTree as ElementTree
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from npu_ir import Graph, NpuError, Provenance, ScalarType, TensorType, Value, extract_ir
from npu_ir.errors import VisualizationError
from npu_ir.viz import diagram as style
from npu_ir.viz import draw, to_dot, to_mermaid, to_svg
from npu_ir.viz.build import build_diagram
from npu_ir.viz.columns import FRAME_PAD
from npu_ir.viz.diagram import STYLES, BoxKind, Diagram, Frame
from npu_ir.viz.layers import Spot
from npu_ir.viz.layout import Layout, compute_layout, frame_rows
from tests.support.places import ROOT
from tests.support.random_graphs import graphs
from tests.support.rows import each_row
from tests.support.tiers import examples, thin

F32 = TensorType((2, 3), torch.float32)
FORMS = [to_mermaid, to_dot, to_svg]
PAGE = ROOT / "docs" / "how-to" / "read-a-graph.md"
needs_graphviz = pytest.mark.skipif(shutil.which("dot") is None, reason="graphviz is not installed")
HOSTILE = [
    "<built-in function getitem>",
    "a\"b'c",
    "x]y[z",
    "é 漢字 😀",
    "a&b<c>&amp;",
    "`tick`",
    "**bold** _it_ __init__",
    "1. list",
    "- dash",
    "%%{init: {}}%%",
    "end",
    "back\\slash\\n",
    "{curly} (round) |pipe|",
    "new\nline\x00\u202e\ud800",
    "#quot; #35;",
    "fa:fa-car http://x.y",
    "$$x^2$$",
    "a;b --> n1",
    "</text></svg><script>alert(1)</script>",
    "]]>",
    "tail\\",
]


def chain(paths: list[str], *, op_type: Callable[[int], str] = "op{}".format) -> Graph:
    """Return nodes in a row, each of its own op type, run by the given modules."""
    graph = Graph("chain")
    value = graph.add_input("x", F32)
    for index, path in enumerate(paths):
        node = graph.insert(op_type(index), [value], types=F32, provenance=Provenance(path))
        value = node.outputs[0]
    graph.set_outputs(value)
    return graph


def blocks(count: int, attrs: Callable[[int], dict[str, int]] = lambda _: {}) -> Graph:
    """Return residual blocks: norm, linear with a weight, add of a skip connection and of a mask."""
    graph = Graph("blocks")
    value, mask = graph.add_input("x", F32), graph.add_input("mask", F32)
    value = graph.insert("stem", [value], types=F32).outputs[0]
    for index in range(count):
        module = f"layers.{index}"
        weight = graph.add_parameter(f"{module}.up.weight", F32)
        norm = graph.insert("norm", [value], attrs(index), types=F32, provenance=Provenance(f"{module}.norm"))
        up = graph.insert(
            "linear", [norm.outputs[0], weight], types=F32, provenance=Provenance(f"{module}.up")
        )
        added = graph.insert("add", [value, up.outputs[0], mask], types=F32, provenance=Provenance(module))
        value = added.outputs[0]
    graph.set_outputs(graph.insert("head", [value], types=F32).outputs[0])
    return graph


def diagram(graph: Graph, max_nodes: int = 60, depth: int | None = None, weights: bool = False) -> Diagram:
    return build_diagram(graph, max_nodes, depth, weights)


def titles(drawn: Diagram, *kinds: BoxKind) -> list[str]:
    return [box.title for box in drawn.boxes if not kinds or box.kind in kinds]


def edges(drawn: Diagram) -> set[tuple[str, str, str]]:
    title = {box.id: box.title for box in drawn.boxes}
    return {(title[edge.source], title[edge.target], edge.label) for edge in drawn.edges}


def node_boxes(drawn: Diagram) -> list[str]:
    return titles(drawn, BoxKind.OP, BoxKind.WEIGHTED, BoxKind.MODULE, BoxKind.MORE)


# What is shown


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


@each_row(
    "count, caption",
    [
        (1, "1 parameter"),
        (999, "999 parameters"),
        (1000, "1K"),
        (25_557_032, "25.6M"),
        (999_999, "1M"),
        (7 * 10**10, "70B"),
    ],
)
def test_sizes_are_rounded_to_three_digits(count: int, caption: str) -> None:
    graph = Graph()
    graph.add_parameter("w", TensorType((count,), torch.float32))

    assert diagram(graph).summary.startswith(f"0 nodes, {caption}")


# How large graphs become small


def runs(paths: list[str], depth: int) -> int:
    """Count the modules down to ``depth``, one for each stretch of nodes that stand together."""
    return len(list(itertools.groupby(paths, key=lambda path: path.split(".")[:depth] if path else [])))


module_paths = st.lists(
    st.sampled_from(["", "a", "b", "a.c", "a.d", "b.c.d", "b.c.e", "b.c"]), min_size=1, max_size=30
)


@given(paths=module_paths, max_nodes=st.integers(2, 30))
def test_modules_are_opened_as_deep_as_the_boxes_allow(paths: list[str], max_nodes: int) -> None:
    drawn = diagram(chain(paths), max_nodes)

    counts = [1, *(runs(paths, depth) for depth in range(1, 4)), len(paths)]
    deepest = 1 + max((len(path.split(".")) for path in paths if path), default=0)
    fitting = [count for count in [*counts[:deepest], len(paths)] if count <= max_nodes]
    wanted = max(fitting)
    assert len(node_boxes(drawn)) == (wanted if wanted > 1 or len(paths) == 1 else max_nodes)


@given(paths=module_paths, depth=st.integers(0, 6))
def test_a_wanted_depth_is_kept(paths: list[str], depth: int) -> None:
    drawn = diagram(chain(paths), depth=depth)

    deepest = max((len(path.split(".")) for path in paths if path), default=0)
    assert len(node_boxes(drawn)) == (len(paths) if depth > deepest else runs(paths, depth) if depth else 1)


@given(paths=module_paths, depth=st.integers(0, 4), seed=st.randoms(use_true_random=False))
def test_edges_between_boxes_are_those_between_the_nodes_in_them(
    paths: list[str], depth: int, seed: st.DataObject
) -> None:
    graph = Graph()
    values: list[Value] = [graph.add_input("x", F32)]
    for index, path in enumerate(paths):
        read = [values[seed.randrange(len(values))] for _ in range(2)]
        values += graph.insert(f"op{index}", read, types=F32, provenance=Provenance(path)).outputs
    deepest = max((len(path.split(".")) for path in paths if path), default=0)
    keys = [
        (path.split(".")[:depth] if path else []) if depth <= deepest else [index]
        for index, path in enumerate(paths)
    ]
    group_of = list(
        itertools.accumulate((left != right for left, right in itertools.pairwise(keys)), initial=0)
    )

    found = {(edge.source, edge.target) for edge in diagram(graph, depth=depth).edges}

    position = {node: index for index, node in enumerate(graph.nodes)}
    groups = [
        (
            "i0" if value.producer is None else f"n{group_of[position[value.producer]]}",
            f"n{group_of[position[node]]}",
        )
        for node in graph.nodes
        for value in node.inputs
    ]
    assert found == {(source, target) for source, target in groups if source != target}


def test_a_closed_module_tells_its_ops_and_parameters() -> None:
    graph = blocks(2)

    drawn = diagram(graph, depth=1)

    (box,) = (box for box in drawn.boxes if box.kind is BoxKind.MODULE)
    assert (box.title, box.details) == ("layers", ("6 ops", "norm x2, linear x2, add x2", "12 parameters"))
    assert drawn.summary == "8 nodes, 12 parameters, modules opened to depth 1"


def test_what_a_module_runs_itself_is_titled_by_its_ops() -> None:
    graph = chain(
        ["a.b", "a", "a", "a.c", "a.c"], op_type=["one", "two", "three", "four", "five"].__getitem__
    )

    drawn = diagram(graph, depth=2)

    assert [frame.title for frame in drawn.frames] == ["a"]
    assert node_boxes(drawn) == ["one", "two, three", "c"]


def test_a_module_that_runs_twice_is_shown_twice() -> None:
    graph = chain(["a.x", "a.y", "b", "a.x", "a.y"])

    drawn = diagram(graph, depth=1)

    assert node_boxes(drawn) == ["a", "op2", "a"]


def test_nodes_of_one_module_stand_in_its_frame() -> None:
    graph = blocks(1)

    drawn = diagram(graph)

    (frame,) = drawn.frames
    assert (frame.title, [item.title for item in frame.items]) == ("layers.0", ["norm", "linear", "add"])
    assert [item.details[0] for item in frame.items] == ["norm: %norm", "up: %linear", "%add"]


def test_repeated_blocks_are_shown_once_when_room_is_short() -> None:
    drawn = diagram(blocks(24), max_nodes=10)

    (frame,) = drawn.frames
    assert frame.title == "layers.0 ... 23 (x24)"
    assert node_boxes(drawn) == ["stem", "norm", "linear", "add", "head"]
    assert edges(drawn) == {
        ("x", "stem", ""),
        ("mask", "add", ""),
        ("stem", "norm", "2x3 f32"),
        ("norm", "linear", "2x3 f32"),
        ("stem", "add", "2x3 f32"),
        ("linear", "add", "2x3 f32"),
        ("add", "head", "2x3 f32"),
        ("head", "output", ""),
    }


def test_repeated_blocks_are_all_shown_when_there_is_room() -> None:
    drawn = diagram(blocks(4), max_nodes=14)

    assert len(node_boxes(drawn)) == 14
    assert "(x" not in "".join(frame.title for frame in drawn.frames)


def test_a_repeated_block_can_be_a_single_box() -> None:
    drawn = diagram(blocks(24), max_nodes=4)

    assert node_boxes(drawn) == ["stem", "layers.0 ... 23 (x24)", "head"]


def test_a_block_with_another_attribute_is_not_a_repetition() -> None:
    drawn = diagram(blocks(24, lambda index: {"scale": int(index >= 8)}), max_nodes=12)

    assert [frame.title for frame in drawn.frames if "(x" in frame.title] == [
        "0 ... 7 (x8)",
        "8 ... 23 (x16)",
    ]


def test_a_block_that_reads_from_elsewhere_is_not_a_repetition() -> None:
    graph = blocks(24)
    early = next(node for node in graph.nodes if node.provenance.module == "layers.2")
    late = next(node for node in graph.nodes if node.provenance.module == "layers.9.norm")
    graph.set_input(late, 0, early.outputs[0])

    drawn = diagram(graph, max_nodes=20)

    repeated = [frame.title for frame in drawn.frames if "(x" in frame.title]
    assert repeated == ["0 ... 8 (x9)", "9 ... 23 (x15)"]


def test_further_copies_of_a_block_keep_what_they_read_from_before_the_first() -> None:
    graph = Graph()
    value = graph.insert("stem", types=F32).outputs[0]
    for index in range(8):
        past = graph.add_input(f"past{index}", F32)
        for name in ("a", "b", "c"):
            inputs = [value, past] if name == "b" else [value]
            value = graph.insert(name, inputs, types=F32, provenance=Provenance(f"h.{index}.{name}")).outputs[
                0
            ]
    graph.set_outputs(value)

    drawn = diagram(graph, max_nodes=5)

    assert {source for source, target, _ in edges(drawn) if target == "b"} == {
        "a",
        *(f"past{index}" for index in range(8)),
    }


def test_further_copies_of_a_block_keep_what_nodes_before_the_first_made() -> None:
    graph = Graph()
    made = [graph.insert(f"make{index}", types=F32).outputs[0] for index in range(24)]
    value = made[-1]
    for index in range(8):
        for name in ("a", "b", "c"):
            inputs = [value, made[3 * index]] if name == "b" else [value]
            value = graph.insert(name, inputs, types=F32, provenance=Provenance(f"h.{index}.{name}")).outputs[
                0
            ]
    graph.set_outputs(value)

    drawn = diagram(graph, max_nodes=27)

    read = {source for source, target, _ in edges(drawn) if target == "b"}
    assert read == {"a", *(f"make{3 * index}" for index in range(8))}


def test_a_flat_graph_that_is_too_large_is_cut_with_a_note() -> None:
    drawn = diagram(chain([""] * 200), max_nodes=12)

    boxes = node_boxes(drawn)
    assert len(boxes) == 12
    assert boxes[-2:] == ["op10", "... 189 more nodes"]
    assert {("op10", "... 189 more nodes", "2x3 f32"), ("... 189 more nodes", "output", "")} < edges(drawn)


def test_a_depth_with_too_many_modules_is_cut_with_a_note() -> None:
    drawn = diagram(chain([f"a.{name}" for name in "abcdefgh"]), max_nodes=5, depth=2)

    assert node_boxes(drawn) == ["op0", "op1", "op2", "op3", "... 4 more nodes"]
    assert [frame.title for frame in drawn.frames] == ["a"]


@each_row(
    "options, message",
    [
        ({"max_nodes": 1}, "max_nodes=1: a drawing has room for 2 boxes at least"),
        ({"depth": -1}, "depth=-1 is negative\n  fix: use 0 for one box"),
    ],
)
@each_row("form", FORMS)
def test_limits_that_make_no_sense_are_refused(
    form: Callable[..., str], options: dict[str, int], message: str
) -> None:
    with pytest.raises(VisualizationError, match=re.escape(message)):
        form(blocks(1), **options)


LARGE = {
    "modules": lambda: chain([f"a.b{i // 5000}.c{i // 50}.d" for i in range(50_000)]),
    "blocks": lambda: blocks(16_600),
    "flat": lambda: chain([""] * 50_000),
}


@pytest.mark.parametrize("make", thin([*LARGE.values()], 1))
def test_a_graph_of_50_000_nodes_is_drawn_in_seconds(make: Callable[[], Graph]) -> None:
    graph = make()

    start = time.process_time()
    text = to_svg(graph)

    assert time.process_time() - start < 10
    assert len(text) < 200_000


def test_a_module_path_of_any_depth_can_be_drawn() -> None:
    deep = ".".join("a" * 10_000)

    drawn = diagram(chain([deep, deep, deep + ".b"]), depth=5_000)

    assert node_boxes(drawn) == ["op0", "op1", "op2"]


# Names and well-formed output


def named(name: str) -> Graph:
    """Return a graph in which everything is called ``name``."""
    graph = Graph(name)
    x, weight = graph.add_input(name, F32), graph.add_parameter(name, F32)
    for _ in range(2):
        x = graph.insert(name, [x, weight], types=F32, name=name, provenance=Provenance(name)).outputs[0]
    graph.set_outputs({name: x})
    graph.set_update(weight, x)
    return graph


def printed(name: str) -> str:
    return "".join(char if char.isprintable() else "\ufffd" for char in name)


def unescaped(label: str) -> str:
    """Return what mermaid shows of a label in quotes: it reads ``#60;`` as ``<``."""
    return re.sub(r"#(\d+);", lambda match: chr(int(match[1])), label).replace("\u200b", "")


MERMAID_LINES = [
    r'[inwou]\d+[(\[{/]+"[^"`\\<>#]*"[)\]}/]+:::[a-z]+',
    r'subgraph f\d+\["[^"`\\<>#]*"\]',
    r"end",
    r'[inwou]\d+ --> (\|"[^"`\\<>#]*"\| )?[nou]\d+',
    r"classDef [a-z]+ [-a-z]+:[#a-z0-9]+(,[-a-z]+:[#a-z0-9]+)*",
    r"class f\d+(,f\d+)* frame",
    r"linkStyle default stroke:#[0-9a-f]{6}",
]


def check_mermaid(text: str) -> None:
    first, title, second, kind, *lines = text.splitlines()
    assert (first, second, kind) == ("---", "---", "flowchart TD")
    assert re.fullmatch(r'title: "([^"\\<>&]|\\["\\])*"', title)
    for line in lines:
        plain = re.sub(r"#\d+;|<br>", "", line.strip())
        assert any(re.fullmatch(wanted, plain) for wanted in MERMAID_LINES), line


@each_row("name", HOSTILE)
@each_row("weights", [False, True])
def test_mermaid_shows_every_name_and_runs_none(name: str, weights: bool) -> None:
    text = to_mermaid(named(name), weights=weights)

    check_mermaid(text)
    labels = [
        unescaped(label).split("<br>")[0]
        for label in re.findall(r'^ *[in]\d+\W+"(.*)"\W+:::', text, re.MULTILINE)
    ]
    assert labels == [printed(name)[:44]] * 3


@each_row("text", ["1. list", "12) list", "- list", "+ list", "fa:fa-car", "$$x$$", r"\n"])
def test_mermaid_labels_leave_nothing_that_mermaid_would_interpret(text: str) -> None:
    label = re.search(r'n0\("(.*?)<br>', to_mermaid(named(text)))

    assert label is not None
    assert not re.search(r"^\d*[-+.)] |fa:fa|\$|\\", label[1])
    assert not re.search(r"fa:fa|\$\$|\\n", re.sub(r"#(\d+);", lambda match: chr(int(match[1])), label[1]))


@each_row("name", HOSTILE)
@each_row("weights", [False, True])
def test_svg_shows_every_name(name: str, weights: bool) -> None:
    root = ElementTree.fromstring(to_svg(named(name), weights=weights))

    shown = [element.text for element in root.iter("{http://www.w3.org/2000/svg}text")]
    assert shown.count(printed(name)) >= 4
    assert {element.tag.rpartition("}")[2] for element in root.iter()} <= {
        "svg",
        "g",
        "rect",
        "path",
        "polygon",
        "text",
        "title",
    }


@each_row("name", HOSTILE)
@each_row("weights", [False, True])
def test_dot_shows_every_name_in_a_well_formed_label(name: str, weights: bool) -> None:
    text = to_dot(named(name), weights=weights)

    lines = re.findall(r"^  *([in]\d+) \[label=<(.*)>, shape=", text, re.MULTILINE)
    labels = [ElementTree.fromstring(f"<LABEL>{label}</LABEL>") for _, label in lines]
    assert [label.findtext("B") for label in labels] == [printed(name)] * 3
    (frame,) = re.findall(r'^ *label="(.*)"; labeljust', text, re.MULTILINE)
    assert re.sub(r"\\(.)", r"\1", frame) == printed(name)
    check_dot(text)


def test_dot_leaves_no_element_empty() -> None:
    graph = Graph("")
    graph.set_outputs(graph.insert("", [graph.add_input("", F32)], types=F32).outputs[0])

    assert "><" not in re.sub(r"</?(TABLE|TR|TD)[^>]*>|<BR/>", " ", to_dot(graph))


def check_dot(text: str) -> None:
    """Check that quotes, HTML and brackets of ``text`` close in the order they open."""
    bare = re.sub(r'"([^"\\]|\\.)*"|<(?:[^<>]|<[^<>]*>)*>', "S", text)
    assert not set(bare) - set(
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_ ,.;=[]{}->\n"
    ), bare
    assert bare.count("{") == bare.count("}") == 1 + bare.count("subgraph")
    assert bare.count("[") == bare.count("]")


@settings(
    max_examples=examples(20, 60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(graph=graphs(max_nodes=12), max_nodes=st.integers(2, 12), weights=st.booleans())
def test_any_graph_can_be_drawn_in_any_form(graph: Graph, max_nodes: int, weights: bool) -> None:
    check_mermaid(to_mermaid(graph, max_nodes=max_nodes, weights=weights))
    check_dot(to_dot(graph, max_nodes=max_nodes, weights=weights))
    ElementTree.fromstring(to_svg(graph, max_nodes=max_nodes, weights=weights))


@each_row("form", FORMS)
def test_equal_graphs_give_equal_drawings(form: Callable[..., str]) -> None:
    graph = blocks(5)

    assert form(graph) == form(graph.clone()) == form(blocks(5))


def test_drawing_leaves_the_graph_as_it_was() -> None:
    graph = blocks(5)
    before = str(graph)

    to_svg(graph, max_nodes=4, weights=True)

    assert str(graph) == before


@each_row("form", FORMS)
def test_nodes_that_stand_in_the_wrong_order_can_be_drawn(form: Callable[..., str]) -> None:
    graph = chain(["a", "b"])
    first, second = graph.nodes
    graph.set_input(first, 0, second.outputs[0])

    text = form(graph)

    assert "op0" in text
    assert "op1" in text


# The layout


@st.composite
def layouts(draw: st.DrawFn) -> tuple[dict[str, Spot], list[tuple[str, str]]]:
    count = draw(st.integers(1, 20))
    sizes = st.integers(20, 200)
    frames = st.sampled_from([(), ("f",), ("f", "g"), ("f", "g", "i"), ("h",)])
    steps = st.none() | st.integers(0, count)
    shapes = {f"b{i}": Spot(draw(sizes), draw(sizes), draw(frames), draw(steps)) for i in range(count)}
    pairs = st.tuples(st.integers(0, count - 1), st.integers(0, count - 1)).filter(
        lambda pair: pair[0] < pair[1]
    )
    found = draw(st.lists(pairs, unique=True, max_size=40)) if count > 1 else []
    return shapes, [(f"b{source}", f"b{target}") for source, target in found]


def overlapping(layout: Layout) -> Iterator[tuple[object, object]]:
    for one, other in itertools.combinations(layout.spots.values(), 2):
        apart = abs(one.x - other.x) >= (one.width + other.width) / 2
        if not apart and one.y < other.y + other.height and other.y < one.y + one.height:
            yield one, other


@given(graph=layouts())
def test_boxes_do_not_overlap_edges_lead_down_and_frames_hold_their_boxes_and_no_others(
    graph: tuple[dict[str, Spot], list[tuple[str, str]]],
) -> None:
    layout = compute_layout(*graph)

    assert not list(overlapping(layout))
    assert min(spot.x - spot.width / 2 for spot in layout.spots.values()) >= -1e-6
    assert max(spot.y + spot.height for spot in layout.spots.values()) <= layout.height
    for (source, target), route in zip(graph[1], layout.routes, strict=True):
        assert (route[0], route[-1]) == (layout.spots[source], layout.spots[target])
        assert all(lower.layer == upper.layer + 1 for upper, lower in itertools.pairwise(route))
        assert all(upper.row_bottom < lower.row_top for upper, lower in itertools.pairwise(route))
    for frame, rows in frame_rows(layout.layers).items():
        first = min(spot.layer for spot in layout.spots.values() if frame in spot.frames)
        assert first == 0 or rows[0].top > max(spot.row_bottom for spot in layout.layers[first - 1])
        for id, spot in layout.spots.items():
            left, right = spot.x - spot.width / 2, spot.x + spot.width / 2
            around = [row for row in rows if row.top < spot.y + spot.height and spot.y < row.bottom]
            inside = any(row.left < right and left < row.right for row in around)
            assert inside == (frame in spot.frames), (frame, id)
            if inside:
                assert all(
                    row.left + FRAME_PAD <= left + 1e-6 and right <= row.right - FRAME_PAD + 1e-6
                    for row in around
                )


def test_a_chain_is_drawn_as_one_straight_column() -> None:
    shapes = {f"b{index}": Spot(50 + 10 * index, 40, (), index) for index in range(6)}
    skips = [("b0", "b3"), ("b3", "b5")]

    layout = compute_layout(shapes, [*itertools.pairwise(shapes), *skips])

    assert len({spot.x for spot in layout.spots.values()}) == 1
    bends = [[spot.x for spot in route[1:-1]] for route in layout.routes[-2:]]
    assert all(len(set(xs)) == 1 for xs in bends)


def test_weights_stand_beside_the_column_of_what_reads_them() -> None:
    chain_of = [f"b{index}" for index in range(5)]
    weights = {f"{side}{id}": id for side in "vw" for id in chain_of[1:]}
    shapes = {id: Spot(90, 40) for id in weights} | {
        id: Spot(60, 40, (), step) for step, id in enumerate(chain_of)
    }

    layout = compute_layout(shapes, [*weights.items(), *itertools.pairwise(chain_of)])

    assert len({layout.spots[id].x for id in chain_of}) == 1
    assert all(
        layout.spots[weight].layer == layout.spots[reader].layer - 1 for weight, reader in weights.items()
    )


def test_a_layout_without_crossings_is_found() -> None:
    shapes = {name: Spot(40, 40) for name in ("a", "b", "c", "A", "B", "C")}
    pairs = [("a", "C"), ("b", "B"), ("c", "A")]

    layout = compute_layout(shapes, pairs)

    assert [layout.spots[source].x for source, _ in pairs] == [layout.spots[target].x for _, target in pairs]


def test_a_drawing_of_thousands_of_boxes_needs_no_deep_stack() -> None:
    assert to_svg(chain([""] * 3000), max_nodes=3000).count("<g>") == 3002


# Files


@pytest.fixture
def graphviz(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Return what replaces graphviz by a Python script, the only program on the path."""
    folder = tmp_path / "bin"
    folder.mkdir()

    def install(script: str) -> None:
        program = folder / "dot"
        program.write_text(f"#!{sys.executable}\nimport sys\n{script}\n")
        program.chmod(program.stat().st_mode | stat.S_IEXEC)

    monkeypatch.setenv("PATH", str(folder))
    return install


@pytest.mark.usefixtures("graphviz")
@each_row(
    "name, form",
    [("g.mmd", to_mermaid), ("g.dot", to_dot), ("g.gv", to_dot), ("g.svg", to_svg), ("G.SVG", to_svg)],
)
def test_text_forms_are_written_without_graphviz(name: str, form: Callable[..., str], tmp_path: Path) -> None:
    graph = blocks(9)

    written = draw(graph, tmp_path / name, max_nodes=6, weights=True)

    assert written == tmp_path / name
    assert written.read_text(encoding="utf-8") == form(graph, max_nodes=6, weights=True)


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
@each_row("ending", ["svg", "png", "pdf"])
def test_graphviz_draws_where_it_is_installed(
    ending: str, graphviz: Callable[[str], None], tmp_path: Path
) -> None:
    graphviz("sys.stdout.write(sys.argv[1] + sys.stdin.read())")
    graph = blocks(2)

    draw(graph, str(tmp_path / f"g.{ending}"))

    assert (tmp_path / f"g.{ending}").read_text(encoding="utf-8") == f"-T{ending}" + to_dot(graph)


@pytest.mark.usefixtures("graphviz")
@each_row("ending", ["png", "pdf"])
def test_an_image_without_graphviz_is_an_error_with_the_fix(ending: str, tmp_path: Path) -> None:
    with pytest.raises(
        VisualizationError,
        match=rf"a \.{ending} needs graphviz: (.|\n)*fix: install graphviz .* or write an \.svg",
    ):
        draw(blocks(1), tmp_path / f"g.{ending}")

    assert not list(tmp_path.glob("g.*"))


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
def test_a_failure_of_graphviz_is_an_error_that_leaves_the_old_file(
    graphviz: Callable[[str], None], tmp_path: Path
) -> None:
    graphviz("print('half a picture'); sys.exit('Format: \"png\" not recognized')")
    path = tmp_path / "g.png"
    path.write_text("old")

    with pytest.raises(VisualizationError, match='graphviz failed: Format: "png" not recognized'):
        draw(blocks(1), path)

    assert path.read_text() == "old"
    assert {item.name for item in tmp_path.iterdir()} == {"g.png", "bin"}


def test_graphviz_that_takes_too_long_is_an_error(
    graphviz: Callable[[str], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphviz("")

    def never_ends(*args: object, timeout: float, **kwargs: object) -> None:
        raise subprocess.TimeoutExpired("dot", timeout)

    monkeypatch.setattr(subprocess, "run", never_ends)

    with pytest.raises(
        VisualizationError, match=r"did not finish in 120 seconds(.|\n)*fix: use a smaller max_nodes"
    ):
        draw(blocks(1), tmp_path / "g.svg")


@pytest.mark.skipif(sys.platform == "win32", reason="a script is no program there")
def test_graphviz_that_cannot_start_is_an_error(graphviz: Callable[[str], None], tmp_path: Path) -> None:
    graphviz("")
    (tmp_path / "bin" / "dot").write_bytes(b"#!/no/such/interpreter\n")

    with pytest.raises(VisualizationError, match="graphviz cannot be run: No such file"):
        draw(blocks(1), tmp_path / "g.svg")


@each_row("name", ["g", "g.jpg", "g.svg.gz", ".svg"])
def test_an_unknown_ending_is_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(
        VisualizationError, match=r"no drawing is written to a file that ends in '.*'(.|\n)*use \.svg, \.png"
    ):
        draw(blocks(1), tmp_path / name)


def test_a_folder_that_does_not_exist_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(VisualizationError, match="cannot write the drawing: No such file or directory"):
        draw(blocks(1), tmp_path / "missing" / "g.mmd")


def test_errors_of_drawings_are_errors_of_this_package() -> None:
    assert issubclass(VisualizationError, NpuError)


@needs_graphviz
@settings(max_examples=15, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(graph=graphs(max_nodes=8) | st.sampled_from(HOSTILE).map(named), weights=st.booleans())
def test_graphviz_accepts_any_graph_and_name_without_a_warning(graph: Graph, weights: bool) -> None:
    source = to_dot(graph, weights=weights).encode()

    done = subprocess.run(["dot", "-Tsvg"], input=source, capture_output=True, check=False)

    assert (done.returncode, done.stderr) == (0, b"")


@needs_graphviz
@each_row("ending, magic", [("png", b"\x89PNG"), ("pdf", b"%PDF")])
def test_graphviz_writes_images(ending: str, magic: bytes, tmp_path: Path) -> None:
    assert draw(blocks(3), tmp_path / f"g.{ending}").read_bytes().startswith(magic)


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

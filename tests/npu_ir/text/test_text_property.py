"""The text form under random graphs and random damage."""

from __future__ import annotations

import itertools
import string
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from npu_ir import Graph, GraphError, ParseError, ScalarType, TensorType, format_ir, parse_ir
from npu_ir.ops.schema import find_op
from npu_ir.symbolic.constraints import Constraint, Range
from npu_ir.symbolic.expressions import symbol
from npu_ir.text.lexer import KEYWORDS, tokenize
from tests.support.random_graphs import any_text, graphs
from tests.support.tiers import examples

F32 = TensorType((2,), torch.float32)
WORDS = "graph None True nan inf complex device bytes f32 i64 strided channels_last int mod s0"
PIECES = [
    *sorted({*KEYWORDS, *WORDS.split()}),
    *'[](){},:=@?%#"\\-+. \n\t',
    *("%x", "%y", "//", "**", "==", '"text"', "-1", "0", "1e999"),
    *("sha256:0123456789abcdef", "99999999999999999999", "\ud800", "٣", "\0"),
]


def content(graph: Graph) -> dict[str, torch.Tensor]:
    """Return the tensors that the text of a graph may name by hash."""
    arguments = [value.argument for value in graph.arguments if value.argument is not None]
    return {argument.target: argument.data for argument in arguments if argument.data is not None}


@examples(60)
@given(graphs())
def test_every_graph_comes_back_from_its_text(graph: Graph) -> None:
    text = str(graph)

    again = parse_ir(text, content(graph))

    assert again == graph
    assert str(again) == text
    assert text.isascii()
    assert parse_ir(format_ir(graph, provenance=True), content(graph)) == graph
    parts = len(graph.arguments) + ("\n  call (" in text) + len(graph) + len(graph.updates)
    braces = 2 if graph.prologue else 0
    assert len(text.splitlines()) == parts + braces + 5  # name, two blank lines, results, brace


@example(["x#1", "fc.0.weight", "a-b", "%", "x\n  return ()\n}\n#"])
@example(["nan", "inf", "None", "input", "return", "as"])
@example(["", "two words", "a.b", "é", "1", '"'])
@given(st.lists(any_text.filter(lambda name: find_op(name) is None), min_size=1, max_size=4, unique=True))
def test_any_names_come_back(names: list[str]) -> None:
    graph = Graph(names[0])
    for name in names:
        x = graph.add_input(name, F32)
        graph.add_parameter(f"{name}.w", F32, aliases=[f"{name}.v"])
        graph.insert(name, [x], {name: name}, types=F32, operands=[name], name=name, output_names=[name])
    graph.set_call([], dict(zip(names, graph.inputs, strict=True)))
    graph.set_outputs(dict(zip(names, graph.inputs, strict=True)))

    assert parse_ir(str(graph)) == graph


# Damage


def sample_text() -> str:
    """Return a text with every construct in it."""
    graph = Graph("sample")
    x, n = graph.add_input("x", F32), graph.add_input("a b", F32, target="y")
    weight = graph.add_parameter("w", F32, aliases=["v"])
    graph.add_buffer("b", F32, persistent=False, data=torch.tensor([1.0, float("nan")]))
    constant = graph.add_constant("c", torch.tensor([3], dtype=torch.uint8).view(torch.uint4))
    graph.add_constant("d", torch.arange(20))
    open_size = graph.add_input("open", TensorType((symbol("s0"), 2), torch.float32))
    graph.set_call([x, [None], open_size], {"n": n, "dtype": torch.float32})
    node = graph.insert(
        "aten.add.Tensor", [x, weight], {"alpha": complex(1, 2)}, types=F32, operands=["self", "other"]
    )
    both = graph.insert(
        "my.op", [x, node.outputs[0]], {"device": torch.device("cpu"), "l": [[1], "s"]}, types=(F32, F32)
    )
    graph.insert(
        "aten.index.Tensor",
        [x, n],
        {"_tensor_list_none_masks": [[True, False]]},
        types=F32,
        operands=["self", "indices[1]"],
        name="i",
    )
    graph.insert("as", [x], types=())
    half = graph.insert("aten.mul.Tensor", [weight], {"other": 0.5}, types=F32, operands=["self"])
    graph.move_to_prologue(half)
    rows = graph.add_symbol("s0", Range(2, None))
    graph.add_constraint(Constraint(rows % 2, "==", 0))
    size = graph.insert("size", [x], types=ScalarType("int", rows)).outputs[0]
    region = Graph("body")
    region.set_outputs([region.add_input("z", TensorType((2 * rows + 1, rows // 2), torch.float32))])
    graph.insert(
        "loop", [size, x], {"l": [None, 1, ["a"]]}, types=F32, operands=["l[0]", "x"], regions={"f": region}
    )
    graph.set_update(x, both.outputs[1])
    graph.set_outputs({"k": (constant, [1.5, True]), (1, "2"): None})
    return str(graph)


SAMPLE = sample_text()
CONSTANTS = {"d": torch.arange(20)}


@st.composite
def damaged_texts(draw: st.DrawFn) -> str:
    """Texts with some tokens or characters deleted, doubled, swapped, replaced or put in."""
    parts = list(SAMPLE)
    if draw(st.booleans()):
        parts = [SAMPLE[a.offset : b.offset] for a, b in itertools.pairwise(tokenize(SAMPLE))]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(parts) - 1))
        other = draw(st.integers(0, len(parts) - 1))
        piece = draw(st.sampled_from(PIECES) | st.text(max_size=3))
        edit = draw(st.sampled_from(["delete", "double", "swap", "replace", "insert", "cut"]))
        if edit == "delete":
            parts[at] = ""
        elif edit == "double":
            parts[at] *= 2
        elif edit == "swap":
            parts[at], parts[other] = parts[other], parts[at]
        elif edit == "replace":
            parts[at] = piece
        elif edit == "insert":
            parts[at] += piece
        elif edit == "cut":
            parts[at:] = [piece]
            break
    return "".join(parts)


def parsed(text: str) -> Graph | None:
    """Return the graph of a text, or None where it is refused in the way it should be."""
    try:
        return parse_ir(text, CONSTANTS)
    except ParseError as error:
        assert error.where is not None
        assert error.where.startswith("line ")
    except GraphError as error:
        assert error.where is not None
    return None


def test_the_sample_is_a_graph() -> None:
    graph = parsed(SAMPLE)

    assert graph is not None
    assert str(graph) == SAMPLE


@examples(300)
@given(damaged_texts())
@example("graph g {" + "(" * 100_000)
@example("graph g { return " + "[" * 100_000)
@example('graph g {\n return @"a"(' + "[" * 100_000)
@example("graph g {\n return ()\n}" + "#" * 100_000)
@example('graph g { return "' + "\\" * 100_001)
@example("graph g {" + '"a"() ' * 2 + "return " + "1" * 4000 + "}")
def test_damaged_text_is_refused_or_is_a_graph_that_comes_back(text: str) -> None:
    graph = parsed(text)

    if graph is not None:
        assert parse_ir(str(graph), CONSTANTS) == graph
        assert graph.clone() == graph


@examples(60)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join) | st.text(max_size=40))
def test_random_text_behind_a_good_start_is_refused_or_is_a_graph(text: str) -> None:
    given = "graph g { input %x: f32[2] "
    for start in ("", "graph g { ", given, given + "%y: f32[2] = op(", "graph g { return "):
        graph = parsed(start + text)
        assert graph is None or parse_ir(str(graph)) == graph


@given(st.text(string.printable, max_size=60))
def test_tokens_cover_the_text_up_to_white_space_and_comments(text: str) -> None:
    found: list[Any] = []
    try:
        found.extend(tokenize(text))
    except ParseError:
        return
    ends = [token.offset + len(token.text) + (token.kind == "value") for token in found]
    gaps = [text[end : token.offset] for end, token in zip([0, *ends], found, strict=False)]
    assert all(not gap.split("#")[0].strip() for gap in gaps)
    assert found[-1].kind == "end"

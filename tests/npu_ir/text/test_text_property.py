"""The text form under random graphs and random damage."""

import itertools
import string
from typing import Any

import torch
from hypothesis import example, given
from hypothesis import strategies as st

from npu_ir import Graph, GraphError, ParseError, TensorType, format_ir, parse_ir
from npu_ir.ops.schema import find_op
from npu_ir.text.data import content_hash
from npu_ir.text.lexer import KEYWORDS, tokenize
from tests.support.full_text import FULL_TEXT
from tests.support.random_graphs import any_text, graphs
from tests.support.tiers import examples

F32 = TensorType((2,), torch.float32)
DATA = torch.arange(20)
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


SAMPLE = FULL_TEXT.replace('bytes("03")', f"sha256:{content_hash(DATA)}").replace("uint4[1]", "i64[20]")
CONSTANTS = {"bits": DATA}


@st.composite
def damaged_texts(draw: st.DrawFn) -> str:
    """Texts with some tokens or characters doubled, swapped, replaced (by "", too) or put in."""
    parts = list(SAMPLE)
    if draw(st.booleans()):
        parts = [SAMPLE[a.offset : b.offset] for a, b in itertools.pairwise(tokenize(SAMPLE))]
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(parts) - 1))
        other = draw(st.integers(0, len(parts) - 1))
        piece = draw(st.sampled_from(PIECES) | st.text(max_size=3))
        edit = draw(st.sampled_from(["replace", "double", "swap", "insert", "cut"]))
        if edit == "swap":
            parts[at], parts[other] = parts[other], parts[at]
        elif edit == "cut":
            parts[at:] = [piece]
            break
        else:
            parts[at] = {"replace": piece, "double": 2 * parts[at], "insert": parts[at] + piece}[edit]
    return "".join(parts)


def parsed(text: str) -> Graph | None:
    """Return the graph of a text, or None where it is refused in the way it should be."""
    try:
        return parse_ir(text, CONSTANTS)
    except ParseError as error:
        assert error.where.startswith("line ")
    except GraphError as error:
        assert error.where is not None
    return None


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

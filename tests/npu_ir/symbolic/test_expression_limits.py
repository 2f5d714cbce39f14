"""Limits on the depth and size of size expressions: text beyond them is refused, not computed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from npu_ir import (
    Graph,
    GraphError,
    NpuError,
    ParseError,
    SerializationError,
    TensorType,
    load_ir,
    parse_ir,
    save_ir,
)
from npu_ir.serial.parser import parse_dim
from npu_ir.symbolic.expressions import call, symbol
from tests.support.rows import each_row

S, T = symbol("s"), symbol("t")


@each_row(
    ("opened", "closed"),
    [("max(1, ", ")"), ("(", ")"), ("floor(", ")"), ("-(", ")"), ("2*(", "+t)")],
)
def test_an_expression_nests_fifty_deep_and_no_deeper(opened: str, closed: str) -> None:
    assert "s" in str(parse_dim(opened * 50 + "s" + closed * 50))
    with pytest.raises(ParseError, match=r"an expression nested deeper than 50\n  at: line 1, column \d+"):
        parse_dim(opened * 51 + "s" + closed * 51)


def test_expressions_side_by_side_are_not_nested() -> None:
    many = "+".join(["max(s, (t))"] * 200)

    assert parse_dim(many) == call("max", S, T) * 200


@each_row(
    "text, read",
    {
        "a power of a symbol": ("s**1024", "s**1024"),
        "a product of powers": ("s**9*s**9", "s**18"),
        "a low power of a sum": ("(s+1)**2", "s**2+2*s+1"),
        "a high power of a sum": ("(s+1)**9", "pow(s+1, 9)"),
        "a symbolic power": ("pow(2, s)", "pow(2, s)"),
        "a shift": ("lshift(s, 4)*0+lshift(1, 62)", str(1 << 62)),
    },
)
def test_powers_have_one_written_form(text: str, read: str) -> None:
    assert str(parse_dim(text)) == read
    assert parse_dim(read) == parse_dim(text)


@each_row("power", [2, 8, 9, 100, 1024])
def test_a_power_is_what_multiplication_makes_of_it(power: int) -> None:
    product = 1
    for _ in range(power):
        product = product * S

    assert parse_dim(f"s**{power}") == call("pow", S, power) == product


@each_row(
    "text, message",
    {
        "power": ("s**1025", "a power of 1025 is too large: at most 1024"),
        "called power": ("pow(s, 2000)", "a power of 2000 is too large: at most 1024"),
        "power of a sum": ("(s+1)**99999", "a power of 99999 is too large"),
        "tower": ("pow(pow(9, 1024), 1024)", "a number of more than 4096 bits"),
        "shift": ("lshift(1, 4096)", "a number of more than 4096 bits"),
        "endless shift": ("lshift(1, 10**18)", "a number of more than 4096 bits"),
        "coefficient": ("*".join(["s", *["9**1024"] * 5]), "a number of more than 4096 bits"),
        "product": ("*".join(["9**1024"] * 5), "a number of more than 4096 bits"),
        "term": ("s+" + "*".join(["9**1024"] * 5), "a number of more than 4096 bits"),
        "float coefficient": ("1e308*s*1e10", "inf in an expression is too large a number"),
        "float": ("1e308*10", "is too large a number|expected an integer"),
        "digits": ("9" * 5000 + "*s", r"9{40}\.\.\. is too long a number"),
    },
)
def test_a_number_without_end_is_refused(text: str, message: str) -> None:
    with pytest.raises(NpuError, match=message) as caught:
        parse_dim(text)

    assert isinstance(caught.value, ParseError)


def test_arithmetic_on_expressions_has_the_same_limit() -> None:
    large = call("pow", 2, 1024)

    with pytest.raises(GraphError, match="a number of more than 4096 bits in an expression is too large"):
        S * large * large * large * large * large
    with pytest.raises(GraphError, match="inf in an expression is too large a number"):
        S * 1e308 * 10.0


def program(size: str) -> str:
    return f"graph g {{ symbol s in [2, 9] input %x: f32[{size}] return %x }}"


HOSTILE = ["max(1, " * 51 + "s" + ")" * 51, "*".join(["s", *["9**1024"] * 5]), "s**1025"]


@pytest.mark.parametrize("size", HOSTILE, ids=["deep", "long", "high"])
def test_a_graph_with_such_a_size_is_no_graph(size: str, tmp_path: Path) -> None:
    graph = Graph("g")
    graph.set_outputs(graph.add_input("x", TensorType((graph.add_symbol("s"),), torch.float32)))
    path = tmp_path / "g.json"
    save_ir(graph, path)
    document = json.dumps(json.loads(path.read_text()))
    assert document.count('["s"]') == 1
    path.write_text(document.replace('["s"]', json.dumps([size])))

    with pytest.raises(SerializationError, match=r"too large|nested deeper than 50"):
        load_ir(path)
    with pytest.raises(ParseError, match=r"too large|nested deeper than 50"):
        parse_ir(program(size))

"""Literals: what an attribute may hold, and the two written forms that bring it back exactly."""

from __future__ import annotations

import enum
import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given

from npu_ir import GraphError, ParseError
from npu_ir.core.literals import (
    LAYOUTS,
    MEMORY_FORMATS,
    Literal,
    format_literal,
    literal_from_json,
    literal_to_json,
    same_literal,
    to_literal,
)
from npu_ir.text.reader import Reader
from tests.support.random_graphs import literals


def parsed(text: str) -> Literal:
    reader = Reader(text)
    literal = reader.literal()
    reader.finish()
    return literal


@given(literals)
def test_every_literal_comes_back_from_its_text(literal: Literal) -> None:
    assert same_literal(parsed(format_literal(literal)), literal)


@given(literals)
def test_every_literal_comes_back_from_its_json(literal: Literal) -> None:
    text = json.dumps(literal_to_json(literal), allow_nan=False)

    assert same_literal(literal_from_json(json.loads(text)), literal)


@pytest.mark.parametrize(
    ("literal", "text"),
    [
        pytest.param(None, "None", id="none"),
        pytest.param(True, "True", id="bool"),
        pytest.param(-7, "-7", id="int"),
        pytest.param(1e-05, "1e-05", id="small"),
        pytest.param(-0.0, "-0.0", id="minus_zero"),
        pytest.param(math.nan, "nan", id="nan"),
        pytest.param(-math.inf, "-inf", id="minus_inf"),
        pytest.param(complex(-0.0, math.inf), "complex(-0.0, inf)", id="complex"),
        pytest.param('a "b"\n', r'"a \"b\"\n"', id="str"),
        pytest.param("\ud800", r'"\ud800"', id="lone_surrogate"),
        pytest.param(torch.bfloat16, "bf16", id="dtype"),
        pytest.param(torch.device("cuda", 1), 'device("cuda:1")', id="device"),
        pytest.param(torch.strided, "strided", id="layout"),
        pytest.param(torch.channels_last, "channels_last", id="memory_format"),
        pytest.param([1, [2.0, None], []], "[1, [2.0, None], []]", id="nested"),
        pytest.param({"b": 1, "a b": {}}, '{"b": 1, "a b": {}}', id="dict"),
    ],
)
def test_a_literal_reads_like_python(literal: Literal, text: str) -> None:
    assert format_literal(literal) == text
    assert same_literal(parsed(text), literal)


def test_words_of_the_text_form_mean_one_thing_each() -> None:
    words = [*LAYOUTS, *MEMORY_FORMATS, "None", "True", "False", "inf", "nan"]

    assert len(set(words)) == len(words)
    assert all(format_literal(parsed(word)) == word for word in words)


def test_tuples_and_sizes_become_lists() -> None:
    assert to_literal((1, torch.Size([2, 3]), [(4,)])) == [1, [2, 3], [[4]]]


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


@pytest.mark.parametrize(
    "value",
    [
        pytest.param(torch.ones(1), id="tensor"),
        pytest.param({1: "a"}, id="dict_by_number"),
        pytest.param({Text("a"): 1}, id="dict_by_str_subclass"),
        pytest.param({1}, id="set"),
        pytest.param(b"x", id="bytes"),
        pytest.param(Colour.RED, id="enum"),
        pytest.param(Text("x"), id="str_subclass"),
        pytest.param(len, id="function"),
        pytest.param(torch.Generator(), id="generator"),
        pytest.param([1, [object()]], id="nested"),
    ],
)
def test_anything_else_is_no_literal(value: object) -> None:
    with pytest.raises(
        GraphError, match=r"of type \w+ is not plain data\n  fix: attributes hold None, bools, numbers"
    ):
        to_literal(value)


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth - 1):
        value = [value]
    return value


def test_lists_may_nest_64_deep() -> None:
    assert to_literal(nested(64)) == nested(64)
    assert parsed(format_literal(nested(64))) == nested(64)
    assert literal_from_json(literal_to_json(nested(64))) == nested(64)


def test_deeper_lists_are_refused() -> None:
    with pytest.raises(GraphError, match="lists nested deeper than 64 are not plain data"):
        to_literal(nested(65))
    with pytest.raises(ParseError, match=r"is not the JSON form of an attribute value"):
        literal_from_json(nested(65))


def test_integers_may_have_4096_bits() -> None:
    largest = -(2**4096 - 1)

    assert parsed(format_literal(to_literal(largest))) == largest
    with pytest.raises(GraphError, match="an integer of 4097 bits is too large: at most 4096"):
        to_literal(2**4096)


# The same literal


@pytest.mark.parametrize(
    ("left", "right"),
    [
        pytest.param(1, 1.0, id="int_float"),
        pytest.param(1, True, id="int_bool"),
        pytest.param(0.0, -0.0, id="zeros"),
        pytest.param(complex(0.0, 0.0), complex(0.0, -0.0), id="complex_zeros"),
        pytest.param("f32", torch.float32, id="str_dtype"),
        pytest.param([1, 2], [1, 2, 3], id="length"),
        pytest.param([1], 1, id="list"),
        pytest.param(None, False, id="none"),
        pytest.param(torch.device("cuda"), torch.device("cuda:0"), id="device"),
    ],
)
def test_literals_of_another_type_or_sign_differ(left: Literal, right: Literal) -> None:
    assert not same_literal(left, right)
    assert not same_literal([left], [right])


def test_nan_is_the_same_as_nan() -> None:
    assert same_literal([math.nan, complex(math.nan, 0.0)], [math.nan, complex(math.nan, 0.0)])


# JSON that is no literal


@pytest.mark.parametrize(
    ("data", "message"),
    [
        pytest.param({"dtype": "f31"}, "unknown dtype 'f31'", id="dtype"),
        pytest.param({"dtype": []}, r"\[\] is not a dtype", id="dtype_list"),
        pytest.param({"device": "nowhere"}, "'nowhere' is not a device", id="device"),
        pytest.param({"device": 0}, "0 is not a device", id="device_index"),
        pytest.param({"layout": "round"}, "'round' is not a layout", id="layout"),
        pytest.param({"memory_format": 3}, "3 is not a memory_format", id="memory_format"),
        pytest.param({"float": "1.0"}, "'1.0' is not a float", id="float"),
        pytest.param({"complex": [1.0]}, r"\[1\.0\] is not a complex", id="complex_of_one"),
        pytest.param({"complex": [1, 2]}, r"\[1, 2\] is not a complex", id="complex_of_ints"),
        pytest.param({"complex": 1.0}, "1.0 is not a complex", id="complex_number"),
        pytest.param({"set": [1]}, "is not the JSON form of an attribute value", id="kind"),
        pytest.param({"dtype": "f32", "layout": "strided"}, "is not the JSON form", id="two_keys"),
        pytest.param({}, "is not the JSON form", id="empty"),
        pytest.param([[{}]], "is not the JSON form", id="nested"),
    ],
)
def test_json_that_is_no_literal_is_refused(data: Any, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        literal_from_json(data)


# Text that is no literal


@pytest.mark.parametrize(
    ("text", "message"),
    [
        pytest.param("nope", "'nope' is not a literal", id="word"),
        pytest.param("complex(1.0)", r"complex\(1.0\) is not a complex", id="complex_of_one"),
        pytest.param('complex("1", 2.0)', r"complex\('1', 2.0\) is not a complex", id="complex_of_text"),
        pytest.param(
            f"complex(1.0, 1{'0' * 400})", r"complex\(1.0, 10+.* is not a complex", id="complex_too_large"
        ),
        pytest.param('device("nowhere")', r"device\('nowhere'\) is not a device", id="device"),
        pytest.param("device(0)", r"device\(0\) is not a device", id="device_index"),
        pytest.param("device", r"expected '\(', got the end of the text", id="no_arguments"),
        pytest.param("1" * 5000, r"1{40}\.\.\. is too long a number", id="too_long"),
        pytest.param(r'"\x"', r'"\\x" is not a JSON string', id="escape"),
        pytest.param("[1, 2", "expected ',', got the end of the text", id="open_list"),
        pytest.param("[1 2]", "expected ',', got '2'", id="comma"),
        pytest.param("(", r"expected a literal, got '\('", id="mark"),
        pytest.param("", "expected a literal, got the end of the text", id="empty"),
        pytest.param("[" * 500, "nested deeper than 164", id="deep"),
        pytest.param("٣", "unexpected '٣'", id="other_digits"),
        pytest.param("1.", "unexpected '1.'", id="no_fraction"),
        pytest.param("0x10", "unexpected '0x10'", id="hexadecimal"),
        pytest.param('"open', "unexpected '\"open'", id="open_string"),
    ],
)
def test_text_that_is_no_literal_is_refused_with_line_and_column(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=rf"{message}[\s\S]*at: line 1, column \d+"):
        parsed(text)

"""Literals: what an attribute may hold, and the two written forms that bring it back exactly."""

import enum
import json
import math
from typing import Any

import pytest
import torch
from hypothesis import given

from npu_ir import GraphError, ParseError
from npu_ir.core.literals import (
    Literal,
    format_literal,
    literal_from_json,
    literal_to_json,
    same_literal,
    to_literal,
)
from npu_ir.text.reader import Reader
from tests.support.random_graphs import literals
from tests.support.rows import each_row


def parsed(text: str) -> Literal:
    reader = Reader(text)
    literal = reader.literal()
    reader.finish()
    return literal


@given(literals)
def test_every_literal_comes_back_from_its_text_and_its_json(literal: Literal) -> None:
    text = json.dumps(literal_to_json(literal), allow_nan=False)

    assert same_literal(literal_from_json(json.loads(text)), literal)
    assert same_literal(parsed(format_literal(literal)), literal)


@each_row("literal, text", {
    "none": (None, "None"),
    "bool": (True, "True"),
    "int": (-7, "-7"),
    "small": (1e-05, "1e-05"),
    "minus_zero": (-0.0, "-0.0"),
    "nan": (math.nan, "nan"),
    "minus_inf": (-math.inf, "-inf"),
    "complex": (complex(-0.0, math.inf), "complex(-0.0, inf)"),
    "str": ('a "b"\n', r'"a \"b\"\n"'),
    "lone_surrogate": ("\ud800", r'"\ud800"'),
    "dtype": (torch.bfloat16, "bf16"),
    "device": (torch.device("cuda", 1), 'device("cuda:1")'),
    "layout": (torch.strided, "strided"),
    "memory_format": (torch.channels_last, "channels_last"),
    "nested": ([1, [2.0, None], []], "[1, [2.0, None], []]"),
    "tuples": (to_literal((1, torch.Size([2, 3]), [(4,)])), "[1, [2, 3], [[4]]]"),
    "dict": ({"b": 1, "a b": {}}, '{"b": 1, "a b": {}}'),
})  # fmt: skip
def test_a_literal_reads_like_python(literal: Literal, text: str) -> None:
    assert format_literal(literal) == text
    assert same_literal(parsed(text), literal)


class Colour(enum.IntEnum):
    RED = 1


class Text(str):
    __slots__ = ()


@each_row("value", {
    "tensor": torch.ones(1),
    "dict_by_number": {1: "a"},
    "dict_by_str_subclass": {Text("a"): 1},
    "set": {1},
    "bytes": b"x",
    "enum": Colour.RED,
    "str_subclass": Text("x"),
    "function": len,
    "generator": torch.Generator(),
    "nested": [1, [object()]],
})  # fmt: skip
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


@each_row("left, right", {
    "int_float": (1, 1.0),
    "int_bool": (1, True),
    "zeros": (0.0, -0.0),
    "complex_zeros": (complex(0.0, 0.0), complex(0.0, -0.0)),
    "str_dtype": ("f32", torch.float32),
    "length": ([1, 2], [1, 2, 3]),
    "list": ([1], 1),
    "none": (None, False),
    "device": (torch.device("cuda"), torch.device("cuda:0")),
})  # fmt: skip
def test_literals_of_another_type_or_sign_differ(left: Literal, right: Literal) -> None:
    assert not same_literal(left, right)
    assert not same_literal([left], [right])


@each_row("data, message", {
    "dtype": ({"dtype": "f31"}, "unknown dtype 'f31'"),
    "dtype_list": ({"dtype": []}, r"\[\] is not a dtype"),
    "device": ({"device": "nowhere"}, "'nowhere' is not a device"),
    "device_index": ({"device": 0}, "0 is not a device"),
    "layout": ({"layout": "round"}, "'round' is not a layout"),
    "memory_format": ({"memory_format": 3}, "3 is not a memory_format"),
    "float": ({"float": "1.0"}, "'1.0' is not a float"),
    "complex_of_one": ({"complex": [1.0]}, r"\[1\.0\] is not a complex"),
    "complex_of_ints": ({"complex": [1, 2]}, r"\[1, 2\] is not a complex"),
    "complex_number": ({"complex": 1.0}, "1.0 is not a complex"),
    "kind": ({"set": [1]}, "is not the JSON form of an attribute value"),
    "two_keys": ({"dtype": "f32", "layout": "strided"}, "is not the JSON form"),
    "empty": ({}, "is not the JSON form"),
    "nested": ([[{}]], "is not the JSON form"),
})  # fmt: skip
def test_json_that_is_no_literal_is_refused(data: Any, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        literal_from_json(data)


@each_row("text, message", {
    "word": ("nope", "'nope' is not a literal"),
    "complex_of_one": ("complex(1.0)", r"complex\(1.0\) is not a complex"),
    "complex_of_text": ('complex("1", 2.0)', r"complex\('1', 2.0\) is not a complex"),
    "complex_too_large": (f"complex(1.0, 1{'0' * 400})", r"complex\(1.0, 10+.* is not a complex"),
    "device": ('device("nowhere")', r"device\('nowhere'\) is not a device"),
    "device_index": ("device(0)", r"device\(0\) is not a device"),
    "device_index_beyond_a_byte": ('device("cuda:99999")', r"device\('cuda:99999'\) is not a device"),
    "no_arguments": ("device", r"expected '\(', got the end of the text"),
    "too_long": ("1" * 5000, r"1{40}\.\.\. is too long a number"),
    "escape": (r'"\x"', r'"\\x" is not a JSON string'),
    "open_list": ("[1, 2", "expected ',', got the end of the text"),
    "comma": ("[1 2]", "expected ',', got '2'"),
    "mark": ("(", r"expected a literal, got '\('"),
    "empty": ("", "expected a literal, got the end of the text"),
    "deep": ("[" * 500, "nested deeper than 164"),
    "other_digits": ("٣", "unexpected '٣'"),
    "no_fraction": ("1.", "unexpected '1.'"),
    "hexadecimal": ("0x10", "unexpected '0x10'"),
    "open_string": ('"open', "unexpected '\"open'"),
})  # fmt: skip
def test_text_that_is_no_literal_is_refused_with_line_and_column(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=rf"{message}[\s\S]*at: line 1, column \d+"):
        parsed(text)

"""Expressions of symbolic sizes: their algebra, their forms, and their limits."""

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from npu_ir import GraphError, ParseError
from npu_ir.serial.parser import parse_dim
from npu_ir.symbolic.constraints import RELATIONS, Constraint, Range
from npu_ir.symbolic.expressions import Expr, call, substitute_symbols, symbol, symbols_in
from npu_ir.symbolic.functions import FUNCTIONS
from tests.support.rows import each_row

A, B, N = symbol("a"), symbol("b"), symbol("n")
VALUES = {"a": 7, "b": 3, "n": 12}


@pytest.mark.smoke
@each_row("expression, text", {
    "distributed": (2 * (A + 1), "2*a+2"),
    "collected": (A + 1 + A - 3, "2*a-2"),
    "product_of_sums": ((A + B) * (A - B), "a**2-b**2"),
    "floordiv": ((A + 1) // 2, "(a+1)//2"),
    "floordiv_in_a_product": (2 * (A // 2) + 1, "2*(a//2)+1"),
    "mod": (A % 2, "mod(a, 2)"),
    "negative_divisor": (call("truediv", A, -2), "a/(-2)"),
    "float_coefficient": (call("trunc", 1.5 * A), "trunc(1.5*a)"),
    "sorted_arguments": (call("max", B, 3, A, 5), "max(5, a, b)"),
    "flattened_arguments": (call("min", call("min", A, 4), 3), "min(3, a)"),
    "power": (call("pow", A, 2), "a**2"),
    "symbolic_exponent": (call("pow", 2, A), "pow(2, a)"),
    "rounded_division": (call("ceil", call("truediv", A, 2)), "ceil(a/2)"),
    "rounded_root": (call("round", call("sqrt", A) + 1), "round(sqrt(a)+1)"),
})  # fmt: skip
def test_an_expression_has_one_written_form_that_is_read_back(expression: Any, text: str) -> None:
    assert str(expression) == repr(expression) == text
    assert parse_dim(text) == expression
    assert str(parse_dim(text)) == text


@each_row("left, right", {
    "square": ((A + 1) * (A + 1), A * A + 2 * A + 1),
    "max": (call("max", A, B), call("max", B, A, B)),
    "exact_division_of_a_sum": ((4 * A + 6) // 2, 2 * A + 3),
    "rounding_of_an_integer": (call("trunc", A + 1), A + 1),
    "whole_float": (call("trunc", 2.0 * A), 2 * A),
    "floats_that_add_up": (1.5 * A + 0.5 * A, 2 * A),
})  # fmt: skip
def test_equal_expressions_are_one_and_the_same(left: Expr, right: Expr) -> None:
    assert left == right
    assert hash(left) == hash(right)
    assert str(left) == str(right)


@each_row("found, number", {
    "difference": (A - A, 0),
    "only_a_number_left": (A + 2 - A, 2),
    "nothing_times": (A * 0, 0),
    "even": ((2 * A) % 2, 0),
    "by_itself": (A // A, 1),
    "modulo_itself": (A % A, 0),
    "numbers": (call("floordiv", 7, 2), 3),
    "max_of_numbers": (call("max", 1, 4, 2), 4),
    "power_of_nothing": (call("pow", A, 0), 1),
})  # fmt: skip
def test_an_expression_without_symbols_is_a_number(found: object, number: int) -> None:
    assert type(found) is int
    assert found == number


def test_the_symbols_of_an_expression_are_known_however_deep_they_are() -> None:
    expression = call("max", (A + 1) // B, 2) * N + 1

    assert expression.symbols == {"a", "b", "n"}
    assert symbols_in([expression, 3, None]) == {"a", "b", "n"}
    assert A.symbol == "a"
    assert [other.symbol for other in (2 * A, A + 1, A * A, A * B, A // 2)] == [None] * 5
    linear = {2 * A + B * B: True, A * B: False, A * A: False, A + A // 2: False}
    assert {other: other.is_linear_in("a") for other in linear} == linear


@each_row("expression, values, expected", [
    (call("pow", 2, A), VALUES, 128),
    (call("trunc", call("sqrt", N)), VALUES, 3),
    (call("round", call("truediv", A, 2)), VALUES, 4),
    (2 * A + B, {"b": 4}, 2 * A + 4),
    (A // B, {"a": N + 1}, (N + 1) // B),
    (A - B, {"a": B, "b": A}, B - A),
])  # fmt: skip
def test_an_expression_has_the_value_that_python_computes(
    expression: Expr, values: dict[str, Any], expected: Any
) -> None:
    assert expression.substitute(values) == expected


def test_plain_sizes_and_missing_ones_are_left_alone() -> None:
    assert substitute_symbols(5, VALUES) == 5
    assert substitute_symbols(None, VALUES) is None
    assert substitute_symbols(A, VALUES) == 7


@each_row("expression, values, message", {
    "floordiv": (A // B, {"a": 1, "b": 0}, r"a//b has no value for a = 1, b = 0: "),
    "mod": (A % B, {"a": 1, "b": 0}, r"mod\(a, b\) has no value for a = 1, b = 0"),
    "pow": (call("pow", A, 0.5), {"a": -1}, r"pow\(-1, 0.5\) is not a real number"),
    "sqrt": (call("sqrt", A), {"a": -1}, r"sqrt\(a\) has no value for a = -1: "),
})  # fmt: skip
def test_an_expression_without_a_value_says_for_what(
    expression: Expr, values: dict[str, int], message: str
) -> None:
    with pytest.raises(GraphError, match=message):
        expression.substitute(values)


@each_row("expression, total, value", {
    "symbol": (A, 5, 5),
    "offset": (A - 1, 5, 6),
    "factor": (2 * A, 6, 3),
    "both": (2 * A + 1, 7, 3),
    "negative_factor": (10 - 3 * A, 4, 2),
    "no_integer": (2 * A, 5, None),
    "power": (A * A, 4, None),
    "another_symbol": (A + B, 4, None),
    "function": (A // 2, 4, None),
    "not_in_it": (B + 1, 4, None),
})  # fmt: skip
def test_a_size_tells_the_value_of_its_symbol(expression: Expr, total: int, value: int | None) -> None:
    assert expression.solve("a", total) == value


numbers = st.integers(-5, 5)
expressions = st.recursive(
    st.sampled_from([A, B, N]) | numbers,
    lambda parts: st.one_of(
        st.tuples(parts, parts).map(lambda pair: pair[0] + pair[1]),
        st.tuples(parts, parts).map(lambda pair: pair[0] - pair[1]),
        st.tuples(parts, parts).map(lambda pair: pair[0] * pair[1]),
        st.tuples(parts, st.integers(1, 4)).map(lambda pair: call("floordiv", *pair)),
        st.tuples(parts, st.integers(1, 4)).map(lambda pair: call("mod", *pair)),
        st.tuples(parts, parts).map(lambda pair: call("max", *pair)),
        st.tuples(parts, parts).map(lambda pair: call("min", *pair)),
        parts.map(lambda part: call("ceil", call("truediv", part, 2))),
        parts.map(lambda part: call("trunc", part * 1.5)),
        parts.map(lambda part: call("floor", part * 1.0)),
        parts.map(lambda part: call("round", call("truediv", part * 0.25, 3))),
    ),
    max_leaves=6,
)
sizes = st.fixed_dictionaries({name: st.integers(0, 20) for name in "abn"})


@given(expressions)
def test_every_expression_comes_back_from_its_text(expression: Any) -> None:
    assert parse_dim(str(expression)) == expression
    assert str(parse_dim(str(expression))) == str(expression)


@given(expressions, sizes)
def test_every_written_expression_means_the_same_in_python(expression: Any, values: dict[str, int]) -> None:
    functions = {
        name: FUNCTIONS[name].evaluate
        for name in ("mod", "pow", "max", "min", "trunc", "floor", "ceil", "round")
    }

    expected = eval(str(expression), {}, {**functions, **values})  # noqa: S307

    assert substitute_symbols(expression, values) == expected


@given(expressions, expressions, sizes)
def test_arithmetic_commutes_with_substitution(left: Any, right: Any, values: dict[str, int]) -> None:
    first, second = substitute_symbols(left, values), substitute_symbols(right, values)

    assert substitute_symbols(left + right, values) == first + second
    assert substitute_symbols(left - right, values) == first - second
    assert substitute_symbols(left * right, values) == first * second


@given(expressions, sizes, st.permutations("abn"))
def test_symbols_may_be_replaced_one_by_one(
    expression: Any, values: dict[str, int], order: list[str]
) -> None:
    found = expression
    for name in order:
        found = substitute_symbols(found, {name: values[name]})

    assert found == substitute_symbols(expression, values)


@each_row("name", ["", "1a", "a b", "a.b", "-a", "max", "sqrt", "ß"])
def test_a_name_that_would_not_come_back_is_no_symbol(name: str) -> None:
    with pytest.raises(
        GraphError, match=r"cannot be the name of a symbol\n  fix: use an identifier such as 's0'"
    ):
        symbol(name)


def test_an_unknown_function_is_refused_with_those_there_are() -> None:
    with pytest.raises(
        GraphError, match="'sin' is not a function of expressions\n  fix: use one of floordiv, truediv"
    ):
        call("sin", A)


@each_row("text, message", {
    "empty": ("", "expected a word, got the end of the text"),
    "open_parenthesis": ("(a", r"expected '\)', got the end of the text"),
    "more": ("a b", "expected the end of the text, got 'b'"),
    "function": ("sin(a)", "'sin' is not a function: expected one of floordiv"),
    "function_as_symbol": ("max", "'max' is not a symbol"),
    "division_by_zero": ("7//0", r"floordiv\(7, 0\) has no value: "),
    "modulo_zero": ("mod(7, 0)", r"mod\(7, 0\) has no value: "),
    "too_many_arguments": ("sqrt(1, 2)", "sqrt takes 1 arguments, got 2"),
    "too_few_arguments": ("mod(a)", "mod takes 2 arguments, got 1"),
    "no_arguments": ("max()", "max takes one or more arguments, got 0"),
    "huge_float_power": ("pow(9, 1e9)", "a power of 1000000000.0 is too large"),
    "not_real": ("pow(-8, 0.5)", r"pow\(-8, 0.5\) is not a real number"),
    "infinite": ("1e400*a", "1e400 is too large a number"),
    "overflow": ("1.5*10**400*a", "too large a number: "),
    "power": ("a**1.5", "expected an integer, got 1.5"),
    "symbolic_power": ("a**b", "expected a number, got 'b'"),
    "float": ("1.5", "1.5 is not an integer"),
    "tower": ("pow(pow(9, 1024), 1024)", "a number of more than 4096 bits"),
    "shift": ("lshift(1, 4096)", "a number of more than 4096 bits"),
    "endless shift": ("lshift(1, 10**18)", "a number of more than 4096 bits"),
    "coefficient": ("*".join(["s", *["9**1024"] * 5]), "a number of more than 4096 bits"),
    "term": ("s+" + "*".join(["9**1024"] * 5), "a number of more than 4096 bits"),
    "float coefficient": ("1e308*s*1e10", "inf in an expression is too large a number"),
    "digits": ("9" * 5000 + "*s", r"9{40}\.\.\. is too long a number"),
})  # fmt: skip
def test_text_that_is_no_expression_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_dim(text)


def test_a_product_without_end_is_refused() -> None:
    many = call("pow", A + B + N + 1, 8)

    with pytest.raises(GraphError, match="an expression is too large: a product of more than 10000 terms"):
        many * many
    with pytest.raises(ParseError, match=r"an expression is too large: .*\n  at: line 1, column 1"):
        parse_dim("((a+b+c+d)**8)**8")


@each_row("range, text, inside, outside", [
    (Range(), "[0, inf]", [0, 10**9], [-1]),
    (Range(2, 5), "[2, 5]", [2, 5], [1, 6]),
    (Range(None, 5), "[-inf, 5]", [-(10**9), 5], [6]),
    (Range(2, 2), "[2, 2]", [2], [1, 3]),
])  # fmt: skip
def test_a_range_has_both_its_ends(range: Range, text: str, inside: list[int], outside: list[int]) -> None:
    assert str(range) == text
    assert not range.is_empty
    assert Range(3, 2).is_empty
    assert all(value in range for value in inside)
    assert not any(value in range for value in outside)


@each_row("relation", list(RELATIONS))
def test_a_constraint_holds_as_in_python(relation: str) -> None:
    compare: Callable[[int, int], bool] = RELATIONS[relation]
    constraint = Constraint(2 * A, relation, B + 1)

    for a, b in itertools.product(range(4), range(6)):
        assert constraint.holds({"a": a, "b": b}) is compare(2 * a, b + 1)
    assert str(constraint) == f"2*a {relation} b+1"
    assert constraint.symbols == {"a", "b"}


def test_a_constraint_without_a_value_does_not_hold() -> None:
    assert not Constraint(A % B, "==", 0).holds({"a": 1, "b": 0})
    assert not Constraint(0, "!=", A // B).holds({"a": 1, "b": 0})


def test_functions_are_those_of_python() -> None:
    assert FUNCTIONS["floordiv"].evaluate(-7, 2) == -4
    assert FUNCTIONS["mod"].evaluate(-7, 2) == 1
    assert FUNCTIONS["trunc"].evaluate(-1.5) == -1
    assert FUNCTIONS["floor"].evaluate(-1.5) == -2
    assert FUNCTIONS["sqrt"].evaluate(2) == math.sqrt(2)


# Limits on the depth and size of size expressions: text beyond them is refused, not computed.


S, T = symbol("s"), symbol("t")


@each_row("opened, closed", [("max(1, ", ")"), ("(", ")"), ("floor(", ")"), ("-(", ")"), ("2*(", "+t)")])
def test_an_expression_nests_fifty_deep_and_no_deeper(opened: str, closed: str) -> None:
    assert parse_dim("+".join(["max(s, (t))"] * 200)) == call("max", S, T) * 200
    assert "s" in str(parse_dim(opened * 50 + "s" + closed * 50))
    with pytest.raises(ParseError, match=r"an expression nested deeper than 50\n  at: line 1, column \d+"):
        parse_dim(opened * 51 + "s" + closed * 51)


@each_row("text, read", {
    "a power of a symbol": ("s**1024", "s**1024"),
    "a product of powers": ("s**9*s**9", "s**18"),
    "a low power of a sum": ("(s+1)**2", "s**2+2*s+1"),
    "a high power of a sum": ("(s+1)**9", "pow(s+1, 9)"),
    "a symbolic power": ("pow(2, s)", "pow(2, s)"),
    "a shift": ("lshift(s, 4)*0+lshift(1, 62)", str(1 << 62)),
})  # fmt: skip
def test_powers_have_one_written_form(text: str, read: str) -> None:
    assert str(parse_dim(text)) == read
    assert parse_dim(read) == parse_dim(text)


@each_row("power", [2, 8, 9, 100, 1024])
def test_a_power_is_what_multiplication_makes_of_it(power: int) -> None:
    product = 1
    for _ in range(power):
        product = product * S

    assert parse_dim(f"s**{power}") == call("pow", S, power) == product


def test_arithmetic_on_expressions_has_the_same_limit() -> None:
    large = call("pow", 2, 1024)

    with pytest.raises(GraphError, match="a number of more than 4096 bits in an expression is too large"):
        S * large * large * large * large * large
    with pytest.raises(GraphError, match="inf in an expression is too large a number"):
        S * 1e308 * 10.0

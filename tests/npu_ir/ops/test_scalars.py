"""Numbers as values: made, computed, read, passed, returned and asserted."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import ones, tensor
from torch.export import Dim

from npu_ir import (
    ExecutionError,
    Graph,
    GraphError,
    ParseError,
    ScalarType,
    TensorType,
    execute_ir,
    extract_ir,
    parse_ir,
)
from npu_ir.ops.scalar_functions import SCALAR_FUNCTIONS, scalar_function_name
from npu_ir.ops.schema import find_op, op_type_of, schema_of
from npu_ir.serial.parser import parse_type
from npu_ir.symbolic.expressions import symbol
from tests.support.corpus.case import Function
from tests.support.rows import each_row

F32 = TensorType((2,), torch.float32)


def program(text: str) -> Graph:
    """Return the graph with this body."""
    return parse_ir(f"graph g {{\n{text}\n}}")


# Types


@each_row("type, text", {
    "int": (ScalarType("int"), "int"),
    "float": (ScalarType("float"), "float"),
    "bool": (ScalarType("bool"), "bool"),
    "known": (ScalarType("int", 3), "int(3)"),
    "negative": (ScalarType("int", -3), "int(-3)"),
    "expression": (ScalarType("int", 2 * symbol("s0") - 1), "int(2*s0-1)"),
})  # fmt: skip
def test_a_number_has_a_type_that_may_say_what_it_is(type: ScalarType, text: str) -> None:
    assert str(type) == text
    assert parse_type(text) == type


def test_a_size_fills_in_what_a_number_is() -> None:
    type = ScalarType("int", 2 * symbol("s0"))

    assert type.symbols == {"s0"}
    assert type.substitute({"s0": 4}) == ScalarType("int", 8)
    assert ScalarType("float").substitute({"s0": 4}) == ScalarType("float")


@each_row("text, message", {
    "float": ("float(2)", "expected the end of the text, got '\\('"),
    "no_integer": ("int(2.5)", "2.5 is not an integer"),
    "empty": ("int()", "expected a word, got '\\)'"),
    "open": ("int(2", "expected '\\)'"),
})  # fmt: skip
def test_text_that_is_no_number_type_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_type(text)


# Functions of numbers

BINARY = [
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge", "and_",
    "or_", "xor", "lshift", "rshift",
]  # fmt: skip


@pytest.mark.parametrize("name", [f"operator.{name}" for name in BINARY])
@pytest.mark.parametrize("pair", [(7, 2), (-7, 2), (0, 3)])
def test_a_binary_operator_computes_what_python_computes(name: str, pair: tuple[int, int]) -> None:
    expected = getattr(operator, name.partition(".")[2])(*pair)
    kind = type(expected).__name__
    both = program(f"input %a: int input %b: int\n%y: {kind} = {name}(a=%a, b=%b) return %y")
    first = program(f"input %a: int\n%y: {kind} = {name}(a=%a) {{b={pair[1]}}} return %y")
    second = program(f"input %b: int\n%y: {kind} = {name}(b=%b) {{a={pair[0]}}} return %y")

    results = [execute_ir(both, pair), execute_ir(first, pair[:1]), execute_ir(second, pair[1:])]

    assert [repr(result) for result in results] == [repr(expected)] * 3


@each_row("name, number, expected", {
    "neg": ("operator.neg", 3, -3),
    "abs": ("operator.abs", -3, 3),
    "not": ("operator.not_", 3, False),
    "ceil": ("math.ceil", 2.5, 3),
    "floor": ("math.floor", -2.5, -3),
    "trunc": ("math.trunc", -2.5, -2),
    "sqrt": ("math.sqrt", 2.0, math.sqrt(2)),
    "log2": ("math.log2", 8.0, 3.0),
    "round": ("builtins.round", 2.5, 2),
    "sym_float": ("torch.sym_float", 3, 3.0),
    "sym_int": ("torch.sym_int", 3.7, 3),
    "sym_not": ("torch.sym_not", True, False),
})  # fmt: skip
def test_a_function_of_one_number_computes_what_python_computes(
    name: str, number: Any, expected: Any
) -> None:
    argument = schema_of(find_op(name)).args[0].name  # type: ignore[arg-type]
    graph = program(
        f"input %a: {type(number).__name__}\n%y: {type(expected).__name__} = {name}({argument}=%a) return %y"
    )

    assert repr(execute_ir(graph, (number,))) == repr(expected)


def test_every_function_is_found_by_its_name() -> None:
    assert len(SCALAR_FUNCTIONS) > 60
    for name, function in SCALAR_FUNCTIONS.items():
        assert find_op(name) is function
        assert SCALAR_FUNCTIONS[op_type_of(function)] is function
    assert scalar_function_name(len) is None
    assert scalar_function_name(3) is None


def test_every_function_can_be_bound_by_its_signature() -> None:
    for name, function in SCALAR_FUNCTIONS.items():
        schema = schema_of(function)
        assert schema.args, name
        assert schema.text.startswith(f"{schema.name}(")


def test_a_function_that_takes_any_number_of_numbers_gets_them_all() -> None:
    graph = program("input %a: int input %b: int\n%y: int = torch.sym_sum(args=((%a, 10, %b))) return %y")

    assert execute_ir(graph, (1, 2)) == 13


def test_a_function_that_fails_names_its_node() -> None:
    graph = program("input %a: int\n%y: int = operator.floordiv(a=%a) {b=0} return %y")

    with pytest.raises(
        ExecutionError,
        match=r"operator.floordiv failed: ZeroDivisionError: .*\n  at: node 'y'\n  fix: it was called on 3",
    ):
        execute_ir(graph, (3,))


@each_row("call, message", {
    "missing": ("operator.add(a=%a)", "operator.add needs its argument 'b'"),
    "unknown": ("operator.add(a=%a) {b=1, c=2}", "operator.add has no argument 'c'"),
    "not_said": ("operator.add(%a, %a)", "operator.add needs its argument 'a'"),
})  # fmt: skip
def test_a_call_of_a_function_that_cannot_be_is_refused(call: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        program(f"input %a: int\n%y: int = {call} return %y")


def test_a_function_that_returns_another_kind_is_refused() -> None:
    graph = program("input %a: int\n%y: int = operator.truediv(a=%a) {b=2} return %y")

    with pytest.raises(
        ExecutionError, match=r"operator.truediv returned 1.5 for %y, which is int in the graph"
    ):
        execute_ir(graph, (3,))


def test_a_number_that_is_not_what_its_type_says_is_refused() -> None:
    graph = program("symbol n in [0, 9] input %a: int(n)\n%y: int(2*n) = operator.add(a=%a) {b=2} return %y")

    assert execute_ir(graph, (2,)) == 4
    with pytest.raises(
        ExecutionError,
        match=(
            r"operator.add returned 5 for %y, which is int\(2\*n\) in the graph: %y is 5, the graph needs "
            r"2\*n, which is 6 \(n is 3 by %a\)"
        ),
    ):
        execute_ir(graph, (3,))


def test_a_number_that_is_fixed_by_its_type_is_checked() -> None:
    graph = program("input %x: f32[2]\n%y: int(3) = aten.sym_size.int(self=%x) {dim=0} return %y")

    with pytest.raises(ExecutionError, match=r"returned 2 for %y, which is int\(3\) in the graph"):
        execute_ir(graph, (ones(2),))


# Sizes and elements


def test_a_size_is_read_by_an_op() -> None:
    graph = program(
        "symbol s in [0, 9] input %x: f32[s, 3]\n"
        "%a: int(s) = aten.sym_size.int(self=%x) {dim=0}\n"
        "%b: int(3*s) = aten.sym_numel.default(self=%x)\n"
        "%c: int = aten.sym_stride.int(self=%x) {dim=0}\n"
        "return (%a, %b, %c)"
    )

    assert execute_ir(graph, (ones(4, 3),)) == (4, 12, 3)


@pytest.mark.parametrize("op", ["aten.item.default", "aten._local_scalar_dense.default"])
@pytest.mark.parametrize(
    ("content", "kind"), [(tensor(3), "int"), (tensor(2.5), "float"), (tensor(True), "bool")]
)
def test_an_element_is_read_as_a_number(op: str, content: torch.Tensor, kind: str) -> None:
    type = TensorType.of(content)
    graph = program(f"input %x: {type}\n%y: {kind} = {op}(self=%x) return %y")

    assert repr(execute_ir(graph, (content,))) == repr(content.item())


def test_a_symbol_of_an_element_is_known_from_there_on() -> None:
    graph = program(
        "symbol u in [0, 5] input %x: i64[]\n"
        "%n: int(u) = aten.item.default(self=%x)\n"
        "%y: f32[u, 2] = aten.ones.default() {size=[3, 2], dtype=f32} return (%y, %n)"
    )

    assert execute_ir(graph, (tensor(3),))[0].shape == (3, 2)
    with pytest.raises(
        ExecutionError,
        match=(
            r"for %y, which is f32\[u, 2\] in the graph: dimension 0 of %y is 3, the graph "
            r"needs u = 4 \(u is 4 by %n\)"
        ),
    ):
        execute_ir(graph, (tensor(4),))


def test_a_symbol_of_an_element_has_a_range() -> None:
    graph = program(
        "symbol u in [0, 5] input %x: i64[]\n"
        "%n: int(u) = aten.item.default(self=%x)\n"
        "%y: f32[u, 2] = aten.ones.default(size=(%n, 2)) {dtype=f32} return %y"
    )

    assert execute_ir(graph, (tensor(5),)).shape == (5, 2)
    with pytest.raises(ExecutionError, match=r"%n implies u = 6, the graph was made for u in \[0, 5\]"):
        execute_ir(graph, (tensor(6),))


# Lists of numbers and values

MIXED = """
  symbol s in [0, 99]
  input %x: f32[s, 6]
  %n: int(s) = aten.sym_size.int(self=%x) {dim=0}
  %y: f32[s, 2, 3] = aten.view.default(self=%x, size=(%n, -1, 3))
  return %y
"""


def test_a_list_may_mix_numbers_and_values() -> None:
    graph = program(MIXED)
    node = graph.node("y")

    assert node.operands == ("self", "size[0]")
    assert dict(node.attrs) == {"size": [None, -1, 3]}
    assert "aten.view.default(self=%x, size=(%n, -1, 3))" in str(graph)
    assert execute_ir(graph, (ones(5, 6),)).shape == (5, 2, 3)


def test_values_may_stand_anywhere_in_nested_lists() -> None:
    graph = Graph("g")
    values = [graph.add_input(name, ScalarType("int")) for name in "abc"]
    graph.insert(
        "my.op",
        values,
        {"tree": [[None, 1], [], [[None], "x"], None], "rest": [1, 2]},
        types=F32,
        operands=["tree[0][0]", "tree[2][0][0]", "tree[3]"],
    )

    text = str(graph)

    assert 'my.op(tree=((%a, 1), [], ((%b), "x"), %c)) {rest=[1, 2]}' in text
    assert parse_ir(text) == graph


def test_a_none_that_is_no_value_stays_none() -> None:
    graph = Graph("g")
    value = graph.add_input("a", ScalarType("int"))
    graph.insert("my.op", [value], {"l": [None, None, 3]}, types=F32, operands=["l[1]"])

    assert "my.op(l=(None, %a, 3))" in str(graph)
    assert parse_ir(str(graph)) == graph


@each_row("attrs, operand", {
    "behind_the_end": ({"size": [-1]}, "size[1]"),
    "taken": ({"size": [2, -1]}, "size[0]"),
    "no_list": ({"size": 3}, "size[0]"),
    "too_deep": ({"size": [None]}, "size[0][0]"),
})  # fmt: skip
def test_a_value_without_a_place_is_refused(attrs: dict[str, Any], operand: str) -> None:
    graph = Graph("g")
    x, n = graph.add_input("x", F32), graph.add_input("n", ScalarType("int"))
    graph.insert("aten.view.default", [x, n], attrs, types=F32, operands=["self", operand])

    with pytest.raises(GraphError, match=r"node 'view': there is no position for the input 'size"):
        graph.check()


# Inputs and results


def test_numbers_go_in_and_come_out() -> None:
    graph = program(
        "input %i: int input %f: float input %b: bool\n"
        '%y: float = operator.mul(a=%i, b=%f) return ({"y": %y, "b": %b}, [%i, 7])'
    )

    result = execute_ir(graph, (3, 2.5, True))

    assert repr(result) == repr(({"y": 7.5, "b": True}, [3, 7]))


@each_row(
    ("kind", "wrong"), [("int", 1.0), ("int", True), ("int", "1"), ("float", 1), ("bool", 1), ("bool", None)]
)
def test_a_number_of_another_kind_is_refused(kind: str, wrong: object) -> None:
    graph = program(f"input %a: {kind}\nreturn %a")

    with pytest.raises(
        ExecutionError, match=rf"input %a is {type(wrong).__name__}, the graph needs {kind}\n  at: args\[0\]"
    ):
        execute_ir(graph, (wrong,))


def test_a_number_that_torch_export_leaves_open_is_an_input() -> None:
    graph = extract_ir(
        Function(lambda x, n: (x * n, n + 1)), (ones(2), 3), dynamic_shapes={"args": (None, Dim.DYNAMIC)}
    )

    assert str(graph.inputs[1].type) == "int(s0)"
    result, number = execute_ir(graph, (ones(2), 9))
    assert torch.equal(result, ones(2) * 9)
    assert number == 10


# Assertions


def checked(x: Any) -> Any:
    n = x[0].item()
    torch._check(n > 2)
    torch._check(n % 2 == 1)
    return ones(n)


def test_an_assertion_is_executed() -> None:
    graph = extract_ir(Function(checked), (tensor([5]),))

    assert "aten._assert_scalar.default" in {node.op_type for node in graph.nodes}
    assert torch.equal(execute_ir(graph, (tensor([5]),)), ones(5))
    with pytest.raises(
        ExecutionError,
        match=r"_assert_scalar.default failed: RuntimeError: .*failed for expression .*\n  at: node '_assert",
    ):
        execute_ir(graph, (tensor([6]),))
    with pytest.raises(ExecutionError, match=r"Runtime assertion failed for expression u0 >= 3"):
        execute_ir(graph, (tensor([1]),))


def test_an_assertion_of_a_tensor_says_its_message() -> None:
    def function(x: Any) -> Any:
        torch._assert_async((x > 0).all(), "only positive numbers")
        return x.sqrt()

    graph = extract_ir(Function(function), (ones(3),))

    assert torch.equal(execute_ir(graph, (ones(3),)), ones(3))
    with pytest.raises(ExecutionError, match="only positive numbers"):
        execute_ir(graph, (-ones(3),))


def test_a_failed_assertion_says_its_message() -> None:
    graph = program(
        "input %n: int\n%ok: bool = operator.gt(a=%n) {b=2}\n"
        'aten._assert_scalar.default(self=%ok) {assert_msg="three at least"}\n'
        "return %n"
    )

    assert execute_ir(graph, (3,)) == 3
    with pytest.raises(
        ExecutionError,
        match=(
            "aten._assert_scalar.default failed: RuntimeError: three "
            r"at least\n  at: node '_assert_scalar'"
        ),
    ):
        execute_ir(graph, (2,))


# What torch.export emits, by eager


@each_row("function", {
    "ring": lambda n: n + 1 - 2 * n,
    "division": lambda n: n // 2 * 2 + n % 2,
    "float": lambda n: n / 2 + 0.5,
    "rounding": lambda n: math.ceil(n / 3) + math.floor(n / 3),
    "round": lambda n: round(n / 4),
    "extremes": lambda n: torch.sym_max(n, 3) + torch.sym_min(n, 5),
    "power": lambda n: n**2 + 2,
    "root": lambda n: torch.sym_sqrt(n),
    "absolute": lambda n: abs(2 - n),
    "negative": lambda n: -n,
})  # fmt: skip
def test_arithmetic_on_a_size_is_that_of_python(function: Callable[[Any], Any]) -> None:
    graph = extract_ir(
        Function(lambda x: function(x.shape[0])), (ones(6, 2),), dynamic_shapes={"args": ({0: Dim.AUTO},)}
    )

    for rows in itertools.chain(range(3, 9), [64]):
        assert repr(execute_ir(graph, (ones(rows, 2),))) == repr(function(rows))

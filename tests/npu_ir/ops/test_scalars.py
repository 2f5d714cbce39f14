"""Numbers as values: made, computed, read, passed, returned and asserted."""

import math
import operator
from typing import Any

import pytest
import torch
from torch import ones, tensor

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
from npu_ir.ops.schema import SCALAR_FUNCTIONS, find_op, op_type_of, scalar_function_name, schema_of
from npu_ir.serial.parser import parse_type
from npu_ir.symbolic.expressions import symbol
from tests.support.corpus.case import Function
from tests.support.rows import each_row
from tests.support.small_programs import program

F32 = TensorType((2,), torch.float32)


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


@each_row("text, message", {
    "float": ("float(2)", "expected the end of the text, got '\\('"),
    "no_integer": ("int(2.5)", "2.5 is not an integer"),
    "empty": ("int()", "expected a word, got '\\)'"),
    "open": ("int(2", "expected '\\)'"),
})  # fmt: skip
def test_text_that_is_no_number_type_is_refused(text: str, message: str) -> None:
    with pytest.raises(ParseError, match=message):
        parse_type(text)


UNSOLVED_SIZE = """
  symbol u in [0, 5]
  input %x: i64[]
  %n: int(u) = aten.item.default(self=%x)
"""
SIZES = """
  symbol s in [0, 9]
  input %x: f32[s, 3]
  %a: int(s) = aten.sym_size.int(self=%x) {dim=0}
  %b: int(3*s) = aten.sym_numel.default(self=%x)
  %c: int = aten.sym_stride.int(self=%x) {dim=0}
  return (%a, %b, %c)
"""
DOUBLED = "symbol n in [0, 9] input %a: int(n)\n%y: int(2*n) = operator.add(a=%a) {b=2} return %y"
CHECKED = """
  input %n: int
  %ok: bool = operator.gt(a=%n) {b=2}
  aten._assert_scalar.default(self=%ok) {assert_msg="three at least"}
  return %n
"""
ONES = UNSOLVED_SIZE + "%y: f32[u, 2] = aten.ones.default(size=(%n, 2)) {dtype=f32} return %y"


@each_row("text, args, expected", {
    "any number of numbers": (
        "input %a: int input %b: int\n%y: int = torch.sym_sum(args=((%a, 10, %b))) return %y", (1, 2), 13),
    "sizes": (SIZES, (ones(4, 3),), (4, 12, 3)),
    "in and out": (
        'input %i: int input %f: float %y: float = operator.mul(a=%i, b=%f) return ({"y": %y}, [%i, 7])',
        (3, 2.5), ({"y": 7.5}, [3, 7])),
    "float element": ("input %x: f64[]\n%y: float = aten._local_scalar_dense.default(self=%x) return %y",
        (tensor(2.5).double(),), 2.5),
    "element as size": (ONES, (tensor(1),), ones(1, 2)),
    "as its type says": (DOUBLED, (2,), 4),
    "assertion that holds": (CHECKED, (3,), 3),
})  # fmt: skip
def test_a_program_on_numbers_computes(text: str, args: tuple[Any, ...], expected: Any) -> None:
    assert repr(execute_ir(program(text), args)) == repr(expected)


@each_row("text, args, message", {
    "function fails": ("input %a: int\n%y: int = operator.floordiv(a=%a) {b=0} return %y", (3,),
        r"operator.floordiv failed: ZeroDivisionError: .*\n  at: node 'y'\n  fix: it was called on 3"),
    "another kind": ("input %a: int\n%y: int = operator.truediv(a=%a) {b=2} return %y", (3,),
        r"operator.truediv returned 1.5 for %y, which is int in the graph"),
    "another number": (DOUBLED, (3,),
        r"operator.add returned 5 for %y, which is int\(2\*n\).* needs 2\*n, which is 6 \(n is 3 by %a\)"),
    "fixed number": ("input %x: f32[2]\n%y: int(3) = aten.sym_size.int(self=%x) {dim=0} return %y",
        (ones(2),),
        r"returned 2 for %y, which is int\(3\) in the graph"),
    "size known by an element": (
        UNSOLVED_SIZE + "%y: f32[u, 2] = aten.ones.default() {size=[3, 2], dtype=f32} return %y",
        (tensor(4),),
        r"for %y, which is f32\[u, 2\] in the graph: dimension 0 .* needs u = 4 \(u is 4 by %n\)"),
    "range of an element": (ONES, (tensor(6),), r"%n implies u = 6, the graph was made for u in \[0, 5\]"),
    "assertion that fails": (CHECKED, (2,),
        r"_assert_scalar.default failed: RuntimeError: three at least\n  at: node '_assert_scalar'"),
})  # fmt: skip
def test_a_program_on_numbers_that_goes_wrong_says_where(
    text: str, args: tuple[Any, ...], message: str
) -> None:
    with pytest.raises(ExecutionError, match=message):
        execute_ir(program(text), args)


def test_an_assertion_of_torch_export_is_executed() -> None:
    def checked(x: Any) -> Any:
        torch._check(x[0].item() > 2)
        torch._assert_async((x > 0).all(), "only positive numbers")
        return x + 1

    graph = extract_ir(Function(checked), (tensor([5, 1]),))

    assert execute_ir(graph, (tensor([3, 1]),)).tolist() == [4, 2]
    with pytest.raises(ExecutionError, match=r"Runtime assertion failed for expression u0 >= 3"):
        execute_ir(graph, (tensor([1, 1]),))
    with pytest.raises(ExecutionError, match="only positive numbers"):
        execute_ir(graph, (tensor([3, -1]),))


BINARY = [
    "add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "eq", "ne", "lt", "le", "gt", "ge", "and_",
        "or_",
    "xor", "lshift", "rshift",
]  # fmt: skip


@each_row("name", [f"operator.{name}" for name in BINARY])
@each_row("pair", [(7, 2), (-7, 2), (0, 3)])
def test_a_binary_operator_computes_what_python_computes(name: str, pair: tuple[int, int]) -> None:
    expected = getattr(operator, name.partition(".")[2])(*pair)
    kind = type(expected).__name__
    both = program(f"input %a: int input %b: int\n%y: {kind} = {name}(a=%a, b=%b) return %y")
    first = program(f"input %a: int\n%y: {kind} = {name}(a=%a) {{b={pair[1]}}} return %y")
    second = program(f"input %b: int\n%y: {kind} = {name}(b=%b) {{a={pair[0]}}} return %y")

    results = [execute_ir(both, pair), execute_ir(first, pair[:1]), execute_ir(second, pair[1:])]

    assert [repr(result) for result in results] == [repr(expected)] * 3


@each_row("name, number, expected", [
    ("operator.neg", 3, -3), ("operator.abs", -3, 3), ("operator.not_", 3, False), ("math.ceil", 2.5, 3),
    ("math.floor", -2.5, -3), ("math.trunc", -2.5, -2), ("math.sqrt", 2.0, math.sqrt(2)),
    ("math.log2", 8.0, 3.0), ("builtins.round", 2.5, 2), ("torch.sym_float", 3, 3.0),
    ("torch.sym_int", 3.7, 3), ("torch.sym_not", True, False),
])  # fmt: skip
def test_a_function_of_one_number_computes_what_python_computes(
    name: str, number: Any, expected: Any
) -> None:
    argument = schema_of(find_op(name)).args[0].name  # type: ignore[arg-type]
    graph = program(
        f"input %a: {type(number).__name__}\n%y: {type(expected).__name__} = {name}({argument}=%a) return %y"
    )

    assert repr(execute_ir(graph, (number,))) == repr(expected)


def test_every_function_is_found_by_its_name_and_bound_by_its_signature() -> None:
    assert len(SCALAR_FUNCTIONS) > 60
    for name, function in SCALAR_FUNCTIONS.items():
        schema = schema_of(function)
        assert find_op(name) is function
        assert SCALAR_FUNCTIONS[op_type_of(function)] is function
        assert schema.args, name
        assert schema.text.startswith(f"{schema.name}(")
    assert scalar_function_name(len) is None
    assert scalar_function_name(3) is None


@each_row("call, message", {
    "missing": ("operator.add(a=%a)", "operator.add needs its argument 'b'"),
    "unknown": ("operator.add(a=%a) {b=1, c=2}", "operator.add has no argument 'c'"),
    "not_said": ("operator.add(%a, %a)", "operator.add needs its argument 'a'"),
})  # fmt: skip
def test_a_call_of_a_function_that_cannot_be_is_refused(call: str, message: str) -> None:
    with pytest.raises(GraphError, match=message):
        program(f"input %a: int\n%y: int = {call} return %y")


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


@each_row("attrs, operands, shown", [
    ({"tree": [[None, 1], [], [[None], "x"], None], "rest": [1, 2]},
        ["tree[0][0]", "tree[2][0][0]", "tree[3]"],
        'my.op(tree=((%a, 1), [], ((%b), "x"), %c)) {rest=[1, 2]}'),
    ({"l": [None, None, 3]}, ["l[1]"], "my.op(l=(None, %a, 3))"),
])  # fmt: skip
def test_values_may_stand_anywhere_in_nested_lists(
    attrs: dict[str, Any], operands: list[str], shown: str
) -> None:
    graph = Graph("g")
    values = [graph.add_input(name, ScalarType("int")) for name in "abc"[: len(operands)]]
    graph.insert("my.op", values, attrs, types=F32, operands=operands)

    assert shown in str(graph)
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


@each_row(
    ("kind", "wrong"), [("int", 1.0), ("int", True), ("int", "1"), ("float", 1), ("bool", 1), ("bool", None)]
)
def test_a_number_of_another_kind_is_refused(kind: str, wrong: object) -> None:
    graph = program(f"input %a: {kind}\nreturn %a")

    with pytest.raises(
        ExecutionError, match=rf"input %a is {type(wrong).__name__}, the graph needs {kind}\n  at: args\[0\]"
    ):
        execute_ir(graph, (wrong,))

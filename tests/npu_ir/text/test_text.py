"""The text form: how graphs read, that they come back, and what is said of text that is no graph."""

import itertools
import math
from collections.abc import Callable

import pytest
import torch

from npu_ir import Graph, GraphError, ParseError, Provenance, TensorType, format_ir, parse_ir
from npu_ir.text.data import INLINE_ELEMENTS, content_hash
from npu_ir.text.lexer import KEYWORDS
from tests.support.corpus.dtypes import float64_default
from tests.support.full_text import FULL_TEXT
from tests.support.random_graphs import DTYPES, LAYOUTS_OF_24, laid_out, random_bits
from tests.support.rows import each_row

F32 = TensorType((2,), torch.float32)


def line(graph: Graph) -> str:
    return str(graph).splitlines()[-4].strip()


def one_node(
    op_type: str,
    *,
    operands: list[str] | None = None,
    attrs: dict[str, object] | None = None,
    inputs: int = 1,
) -> Graph:
    graph = Graph()
    values = [graph.add_input(f"x{index}", F32) for index in range(inputs)]
    graph.insert(op_type, values, attrs, types=F32, operands=operands, name="y")
    return graph


@pytest.mark.smoke
def test_a_graph_reads_as_its_text() -> None:
    graph = parse_ir(FULL_TEXT)

    assert str(graph) == FULL_TEXT
    assert graph.parameters["w"].argument.aliases == ("tied",)
    assert graph.buffers["mean"].name == "m"
    assert not graph.buffers["mask"].argument.persistent
    assert graph.node("i").operands == ("self", "indices[1]")
    assert graph.updates == {graph.value("m"): graph.value("half")}


@each_row("name, printed", [
    ("a.b_1", "a.b_1"), ("inf", "inf"), ("graph", "graph"), ("", '""'), ("two words", '"two words"'),
    ("1st", '"1st"'), ("Größe", r'"Gr\u00f6\u00dfe"'), ('"\n', r'"\"\n"'),
])  # fmt: skip
def test_a_name_is_quoted_where_it_is_no_word(name: str, printed: str) -> None:
    assert str(Graph(name)) == f"graph {printed} {{\n\n\n  return ()\n}}\n"
    assert parse_ir(str(Graph(name))).name == name


@each_row("op_type", [*sorted(KEYWORDS), "None", "f32", "", "my op", "<built-in function getitem>", "{"])
def test_nodes_without_results_of_any_op_type_come_back(op_type: str) -> None:
    graph = Graph()
    x = graph.add_input("x", F32)
    graph.insert(op_type, [x], types=())
    graph.insert("first", [x], types=())
    graph.insert(op_type, [x], {"a": 1}, types=())
    graph.set_update(x, x)

    assert parse_ir(str(graph)) == graph


@each_row("op_type, operands, attrs, shown", [
    ("aten.relu.default", None, {}, "(%x0)"),
    ("aten.nan_to_num.default", ["self"], {"nan": math.nan, "posinf": math.inf},
        "(self=%x0) {nan=nan, posinf=inf}"),
    ("aten.cat.default", ["tensors[0]", "tensors[1]"], {"_tensor_list_sizes": [2]}, "(tensors=[%x0, %x1])"),
    ("aten.cat.default", [], {"_tensor_list_sizes": [0]}, "(tensors=[])"),
    ("aten.cat.default", [], {"_tensor_list_sizes": [None]}, "() {_tensor_list_sizes=[None]}"),
    ("aten.cat.default", ["tensors[0]"], {"_tensor_list_sizes": [10**12]},
        "(tensors[0]=%x0) {_tensor_list_sizes=[1000000000000]}"),
    ("aten.index.Tensor", ["self", "indices[1]"], {"_tensor_list_none_masks": [[True, False, True]]},
        "(self=%x0, indices=?[None, %x1, None])"),
    ("aten.index.Tensor", ["self"], {"_tensor_list_none_masks": [[True]]}, "(self=%x0, indices=?[None])"),
    ("my.op.default", [], {}, "()"),
    ("aten._foreach_add.List", ["self[0]", "other[0]", "other[1]"], {"_tensor_list_sizes": [1, 2]},
        "(self=[%x0], other=[%x1, %x2])"),
    ("my.op.default", ["a[0]", "a[1]"], {"_tensor_list_sizes": [2]}, "(a=[%x0, %x1])"),
    ("my.op.default", ["a[0]"], {"_tensor_list_sizes": [1, 0]}, "(a[0]=%x0) {_tensor_list_sizes=[1, 0]}"),
    ("my.op.default", ["b[0]", "a"], {"_tensor_list_none_masks": [[False]]}, "(b=?[%x0], a=%x1)"),
    ("my.op.default", ["a[01]", "a[", "[0]", "a[0][1]", "]"], {},
        '("a[01]"=%x0, "a["=%x1, "[0]"=%x2, a[0][1]=%x3, "]"=%x4)'),
    ("my.op.default", ["a", "a"], {}, "(a=%x0, a=%x1)")
])  # fmt: skip
def test_inputs_are_shown_with_the_arguments_they_fill(
    op_type: str, operands: list[str] | None, attrs: dict[str, object], shown: str
) -> None:
    graph = one_node(op_type, operands=operands, attrs=attrs, inputs=1 if operands is None else len(operands))

    assert line(graph) == f"%y: f32[2] = {op_type}{shown}"
    if "[None]" not in shown and "1000000000000" not in shown:
        assert parse_ir(str(graph)) == graph


def test_constants_of_every_dtype_and_layout_come_back_to_the_bit() -> None:
    graph = Graph()
    tensors = {}
    for dtype, layout in itertools.product(DTYPES, LAYOUTS_OF_24):
        data = laid_out(random_bits(dtype, 7), layout)
        tensors |= {f"c {dtype} {layout}": data, f"b {dtype} {layout}": data}
        graph.add_constant(f"c {dtype} {layout}", data)
        graph.add_buffer(f"b {dtype} {layout}", TensorType.of(data), persistent=False, data=data)

    again = parse_ir(str(graph), constants=tensors)

    assert again == graph
    assert str(again) == str(graph)


@each_row("data, shown", [
    (torch.tensor(0.5), "[0.5]"),
    (torch.empty(0, 3), "[]"),
    (torch.tensor([1.0, -0.0, math.inf]), "[1.0, -0.0, inf]"),
    (torch.tensor([math.nan]), "[nan]"),
    (torch.tensor([0x7FC00001], dtype=torch.int32).view(torch.float32), 'bytes("0100c07f")'),
    (torch.tensor([2**63 - 1]), "[9223372036854775807]"),
    (torch.tensor([2**64 - 1], dtype=torch.uint64), "[18446744073709551615]"),
    (torch.tensor([1 + 2j]), "[complex(1.0, 2.0)]"),
    (torch.tensor([1 + 2j]).conj(), "[complex(1.0, -2.0)]"),
    (torch.tensor([True]), "[True]"),
    (torch.tensor([1.5], dtype=torch.float8_e5m2), "[1.5]"),
    pytest.param(torch.tensor([3], dtype=torch.uint8).view(torch.uint4), 'bytes("03")', id="sub-byte"),
    (torch.arange(6.0).view(2, 3).t(), "[0.0, 3.0, 1.0, 4.0, 2.0, 5.0]"),
])  # fmt: skip
def test_small_constants_stand_in_the_text(data: torch.Tensor, shown: str) -> None:
    graph = Graph("g")
    graph.add_constant("c", data)

    assert f"const %c: {TensorType.of(data)} = {shown}\n" in str(graph)
    assert parse_ir(str(graph)) == graph


def test_larger_constants_are_named_by_their_hash() -> None:
    graph, data = Graph(), torch.arange(INLINE_ELEMENTS + 1)
    graph.add_constant("table", data, name="t")

    text = str(graph)

    assert f'const %t: i64[17] target "table" = sha256:{content_hash(data)}' in text
    assert parse_ir(text, constants={"table": data.clone()}) == graph
    assert content_hash(data) == content_hash(data.clone())
    assert len({content_hash(other) for other in (data, data.int(), data.view(1, -1), data + 1)}) == 4
    assert content_hash(data[:16].view(4, 4).t().contiguous().t()) == content_hash(data[:16].view(4, 4))


def test_a_graph_reads_the_same_under_another_default_device_and_dtype() -> None:
    graph = Graph()
    for index, data in enumerate((torch.ones(2), torch.empty(0), torch.tensor([1.5], dtype=torch.float64))):
        graph.add_constant(f"c{index}", data)
    text = str(graph)

    with torch.device("meta"), float64_default():
        assert str(graph) == text
        assert parse_ir(text) == graph


@each_row("module, shown", [
    ("layer.1", "layer.1, net.py:3"),
    ("a\n  %y: f32[2] = evil()", r"'a\n  %y: f32[2] = evil(), net.py:3'"),
    ("\r", r"'\r, net.py:3'"),
    ("\u2028", r"'\u2028, net.py:3'"),
    ("\ud800", r"'\ud800, net.py:3'"),
])  # fmt: skip
def test_where_nodes_come_from_is_a_comment_on_its_line_that_parsing_ignores(module: str, shown: str) -> None:
    graph = one_node("aten.relu.default")
    graph.set_provenance(graph.nodes[0], Provenance(module, "net.py:3"))

    text = format_ir(graph, provenance=True)

    assert len(text.splitlines()) == len(str(graph).splitlines())
    assert f"%y: f32[2] = aten.relu.default(%x0)  # {shown}\n" in text
    assert "#" not in str(graph)
    assert parse_ir(text) == graph


def test_white_space_and_comments_are_free() -> None:
    text = """# a graph
    graph   g { input %x : f32 [ 2 ]   # x
      param %w:f32[2]target"v"aliases["u",]
      call(%x,scale # two
        = 2.0,)
      %y:f32[2]=aten.add.Tensor(self=%x,other=%w,){alpha=2,}as"add"   # y
      return{"a":%y,"b":[1,],}}
    # the end"""

    assert str(parse_ir(text)) == (
        "graph g {\n"
        "  input %x: f32[2]\n"
        '  param %w: f32[2] target "v" aliases ["u"]\n'
        "  call (%x, scale=2.0)\n"
        "\n"
        '  %y: f32[2] = aten.add.Tensor(self=%x, other=%w) {alpha=2} as "add"\n'
        "\n"
        '  return {"a": %y, "b": [1]}\n'
        "}\n"
    )


GOOD = """graph g {
  input %x: f32[2]
  input %n: int
  param %w: f32[2]
  buffer %b: f32[2] non_persistent = [1.0, 2.0]
  const %c: i64[2] = [1, 2]
  call (%x, n=%n)

  %y: f32[2] = aten.add.Tensor(self=%x, other=%w) {alpha=2}
  %z: f32[4] = aten.cat.default(tensors=[%y, %b]) {dim=0}

  update %b = %y
  return (%z, {"c": %c})
}
"""


@each_row("old, new, message, place", [
    ("graph g", "grph g", r"expected 'graph', got 'grph'", (1, 1)),
    ("graph g {", "graph {", r"expected a word or string, got '\{'", (1, 7)),
    ("%x: f32", "%x f32", "expected ':', got 'f32'", (2, 12)),
    ("input %x", "input x", "expected a value, got 'x'", (2, 9)),
    ("input %n", "input %x", "graph 'g' already has input 'x'", (3, 3)),
    ("%x: f32[2]", "%x: f33[2]", "unknown dtype 'f33'", (2, 13)),
    ("%x: f32[2]", "%x: f32[-2]", r"expected an integer from 0 to 2\*\*63 - 1, got -2", (2, 17)),
    ("%x: f32[2]", "%x: f32[2] = [1.0, 2.0]", "'=' cannot follow the type of an argument of kind 'input'",
        (2, 20)),
    ("%x: f32[2]", '%x: f32[2] aliases ["y"]',
        "'aliases' cannot follow the type of an argument of kind 'input'", (2, 20)),
    ("%w: f32[2]", "%w: f32[2] non_persistent",
        "'non_persistent' cannot follow the type of an argument of kind 'param'", (4, 20)),
    ("%w: f32[2]", "%w: f32[2] target x", "expected a string, got 'x'", (4, 27)),
    ("%w: f32[2]", "%w: f32[2] aliases [5]", "expected a string, got '5'", (4, 29)),
    ("non_persistent =", "=", "buffer 'b' is persistent: its content comes with the weights", (5, 3)),
    ("= [1, 2]", "", "constant %c has no content", (6, 3)),
    ("= [1, 2]", "= [1]", r"the content of constant 'c' is not of type i64\[2\]", (6, 22)),
    ("= [1, 2]", "= [[1], [2]]", r"the content of constant 'c' is not of type i64\[2\]", (6, 22)),
    ("= [1, 2]", '= ["1", "2"]', r"the content of constant 'c' is not of type i64\[2\]", (6, 22)),
    ("= [1, 2]", "= [1, 9223372036854775808]", r"the content of constant 'c' is not of type i64\[2\]",
        (6, 22)),
    ("= [1.0, 2.0]", "= [1.0, None]", r"the content of constant 'b' is not of type f32\[2\]", (5, 38)),
    ("= [1, 2]", '= bytes("00")', r"the content of constant 'c' is not of type i64\[2\]", (6, 22)),
    ("= [1, 2]", '= bytes("zz")', r"the content of constant 'c' is not of type i64\[2\]", (6, 22)),
    ("= [1, 2]", "= bytes(00)", "expected a string, got '00'", (6, 28)),
    ("= [1, 2]", "= sha256:0123456789abcdef", "the content of constant 'c' is not in the text", (6, 22)),
    ("i64[2] = [1, 2]", "i64[4611686018427387904, 4] = []",
        r"the content of constant 'c' is not of type i64\[4611", (6, 43)),
    ("call (%x, n=%n)", "call (%x, %w, n=%n)",
        "the call must use every input of the graph, and no other value", (7, 3)),
    ("call (%x, n=%n)", "call (n=%n, %x)", "a positional argument follows a keyword argument", (7, 15)),
    ("call (%x, n=%n)", "call (%x, n=%n, n=1)", "the argument 'n' is given twice", (7, 19)),
    ("self=%x,", "self=%z,", "%z is read before it is produced", (9, 37)),
    ("%z: f32[4]", "%y: f32[4]", "the name 'y' is used twice", (10, 3)),
    ("{dim=0}", "{dim=0, dim=1}", "the attribute 'dim' is given twice", (10, 3)),
    ("{dim=0}", "{_tensor_list_sizes=[2]}", "the attribute '_tensor_list_sizes' is given twice", (10, 3)),
    ("{dim=0}", "{_x=[[" + "[" * 70 + "]" * 70 + "]]}", "lists nested deeper than 64 are not plain data",
        (10, 3)),
    ("{dim=0}", "{dim=x}", "'x' is not a literal", (10, 56)),
    ("{dim=0}", "{dim=0} as z", "expected a string, got 'z'", (10, 62)),
    ("self=%x,", "%x,", "expected a value, got 'other'", (9, 36)),
    ("self=%x,", "self[0.5]=%x,", "expected an integer from 0", (9, 37)),
    ("%y: f32[2] =", "%y: f32[2], =", "expected a value, got '='", (9, 15)),
    ("%y: f32[2] =", "%q: f32[2] = %y: f32[2] =", "expected a word or string, got 'y'", (9, 16)),
    ("update %b", "update %c", "%c cannot be updated", (12, 3)),
    ("update %b = %y", "update %b = %y update %b = %x", "%b is updated twice", (12, 18)),
    ('{"c": %c}', '{"c": %c, "c": 1}', "two keys of a dict are equal", (13, 3)),
    ('{"c": %c}', '{"c" %c}', "expected ':', got 'c'", (13, 20)),
    ('{"c": %c}', "(" * 500, "nested deeper than 164", (13, 179)),
    ('{"c": %c}', "(" * 100 + ")" * 100, "containers nested deeper than 100", (13, 3)),
    ('{"c": %c}', '@"leaf"(None, %c)', "a leaf is not a container", (13, 3)),
    ('{"c": %c}', "@x(None)", "expected a string, got 'x'", (13, 16)),
    ('(%z, {"c": %c})\n}', '(%z, {"c": %c})\n', r"expected '\}', got the end of the text", (15, 1)),
    ('(%z, {"c": %c})\n}', '(%z, {"c": %c})\n} end', "expected the end of the text, got 'end'", (14, 3)),
    ("  return", "  retrun", "expected 'return', got 'retrun'", (13, 3)),
    ("call (", "call ;", "unexpected ';%x, n=%n", (7, 8)),
    ('"c"', '"c', "unexpected '\"c: %c", (13, 16)),
    ('"c"', r'"\q"', r'"\\q" is not a JSON string', (13, 16)),
    ("%x: f32[2]", r'%"\q": f32[2]', r'"\\q" is not a JSON string', (2, 9)),
    ("dim=0", "dim=1" + "0" * 5000, r"1{1}0{39}\.\.\. is too long a number", (10, 56)),
    ("dim=0", "dim=1" + "0" * 4000, "an integer of .* bits is too large", (10, 3))
])  # fmt: skip
def test_text_that_is_no_graph_is_refused_with_line_and_column(
    old: str, new: str, message: str, place: tuple[int, int]
) -> None:
    assert GOOD.count(old) == 1, "the text to replace is not unique"

    with pytest.raises(ParseError, match=message) as caught:
        parse_ir(GOOD.replace(old, new))

    assert caught.value.where == "line {}, column {}".format(*place)


@each_row("given, message", [
    ({}, r"the content of constant 'c' is not in the text[\s\S]*fix: pass it: parse_ir\(text, constants="),
    ({"c": torch.ones(20)}, "the tensor passed for constant 'c' is not the one the text names"),
    ({"c": torch.zeros(4, 5)}, "the tensor passed for constant 'c' is not the one the text names"),
    ({"c": torch.zeros(20).int()}, "the tensor passed for constant 'c' is not the one the text names")
])  # fmt: skip
def test_a_constant_that_is_not_the_one_the_text_names_is_refused(
    given: dict[str, torch.Tensor], message: str
) -> None:
    graph = Graph()
    graph.add_constant("c", torch.zeros(20))

    with pytest.raises(ParseError, match=message):
        parse_ir(str(graph), constants=given)


@each_row("edit, message", [
    (lambda text: text.replace("alpha=2", "beta=2"), "aten.add.Tensor has no argument 'beta'"),
    (lambda text: text.replace("%w: f32[2]", '%w: f32[2] aliases ["w"]'),
        "'w' names more than one parameter")
])  # fmt: skip
def test_a_graph_that_breaks_a_rule_is_refused(edit: Callable[[str], str], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        parse_ir(edit(GOOD))


def test_text_costs_no_memory_that_it_does_not_hold() -> None:
    graph = parse_ir("graph g {\n const %c: f32[2]@[1000000000000] = [1.0, 2.0]\n return %c\n}")

    assert graph.value("c").type == TensorType((2,), torch.float32, (10**12,))
    assert graph.value("c").argument.data.untyped_storage().nbytes() == 8  # type: ignore[union-attr]

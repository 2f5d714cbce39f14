"""canonicalize: one form for each computation, equal to the bit, and no bookkeeping."""

import itertools
from typing import Any

import torch
from torch import Tensor
from torch.export import Dim

from npu_ir import Graph, Provenance, execute_ir, extract_ir
from npu_ir.core.tensor_bytes import same_data
from npu_ir.ops.schema import resolve
from npu_passes import Checked, PassManager, PassResult
from npu_passes.library.cleanup.canonicalize import Canonicalize
from npu_passes.library.cleanup.canonicalize.canonical_calls import _OF_TENSORS
from tests.support.corpus.case import Function
from tests.support.rows import each_row
from tests.support.small_programs import program


def run(graph: Graph) -> PassResult:
    return PassManager([Canonicalize], checked=Checked()).run(graph)


def canonical(text: str) -> Graph:
    return PassManager([Canonicalize]).run(program(text)).graph


def of_node(line: str, inputs: str = "f32[2, 3]") -> str:
    """Return a graph in which a node called ``out`` reads a fresh tensor, ``%x``, and is read by ``end``."""
    type_of_out = line.partition("%out: ")[2].partition(" = ")[0].partition(", %")[0]
    return f"""
        input %given: {inputs}
        %x: {inputs} = aten.neg.default(self=%given)
        {line}
        %end: {type_of_out} = aten.abs.default(self=%out)
        return (%x, %end)
    """


def made_of(graph: Graph) -> str:
    """Return the node that ``end`` reads, as text."""
    node = graph.node("end").inputs[0].producer
    attrs = ", ".join(f"{name}={value!r}" for name, value in node.attrs.items())
    return f"{node.op_type.removeprefix('aten.')} {{{attrs}}}"


@each_row("line, form", [
    # One op for what changes the shape alone.
    ("%out: f32[3, 2] = aten.view.default(self=%x) {size=[3, -1]}", "reshape.default {shape=[3, 2]}"),
    ("%out: f32[6] = aten._unsafe_view.default(self=%x) {size=[-1]}", "reshape.default {shape=[6]}"),
    ("%out: f32[6] = aten.flatten.using_ints(self=%x)", "reshape.default {shape=[6]}"),
    ("%out: f32[2, 3, 1] = aten.unflatten.int(self=%x) {dim=1, sizes=[3, 1]}",
        "reshape.default {shape=[2, 3, 1]}"),
    ("%out: f32[2, 3] = aten.view_as.default(self=%x, other=%given)", "reshape.default {shape=[2, 3]}"),
    ("%out: f32[2, 3] = aten.reshape_as.default(self=%x, other=%given)", "reshape.default {shape=[2, 3]}"),
    ("%out: f32[2, 3] = aten.expand_as.default(self=%x, other=%given)", "expand.default {size=[2, 3]}"),
    ("%out: f32[2, 3] = aten.broadcast_to.default(self=%x) {size=[2, -1]}", "expand.default {size=[2, 3]}"),
    ("%out: f32[3, 2] = aten.reshape.default(self=%x) {shape=[-1, 2]}", "reshape.default {shape=[3, 2]}"),
    ("%out: i32[2, 3] = aten.view.dtype(self=%x) {dtype=i32}", "view.dtype {dtype=torch.int32}"),
    # One op for what reorders axes.
    ("%out: f32[3, 2]@[1, 3] = aten.t.default(self=%x)", "permute.default {dims=[1, 0]}"),
    ("%out: f32[3, 2]@[1, 3] = aten.transpose.int(self=%x) {dim0=-1, dim1=0}",
        "permute.default {dims=[1, 0]}"),
    ("%out: f32[3, 2]@[1, 3] = aten.mT.default(self=%x)", "permute.default {dims=[1, 0]}"),
    ("%out: f32[3, 2]@[1, 3] = aten.numpy_T.default(self=%x)", "permute.default {dims=[1, 0]}"),
    ("%out: f32[3, 2]@[1, 3] = aten.swapaxes.default(self=%x) {axis0=0, axis1=1}",
        "permute.default {dims=[1, 0]}"),
    ("%out: f32[3, 2]@[1, 3] = aten.movedim.int(self=%x) {source=0, destination=-1}",
        "permute.default {dims=[1, 0]}"),
    ("%out: f32[3, 2]@[1, 3] = aten.permute.default(self=%x) {dims=[-1, 0]}",
        "permute.default {dims=[1, 0]}"),
    # Overloads and operands.
    ("%out: f32[2, 3] = aten.add.Scalar(self=%x) {other=2, alpha=3}", "add.Tensor {other=2.0, alpha=3}"),
    ("%out: f32[2, 3] = aten.mul.Scalar(self=%x) {other=2}", "mul.Tensor {other=2.0}"),
    ('%out: f32[2, 3] = aten.div.Scalar_mode(self=%x) {other=2, rounding_mode="floor"}',
        "div.Tensor_mode {other=2, rounding_mode='floor'}"),
    ("%out: f32[2, 3] = aten.true_divide.Scalar(self=%x) {other=2}", "div.Tensor {other=2.0}"),
    ("%out: f32[2, 3] = aten.true_divide.Tensor(self=%x, other=%given)", "div.Tensor {}"),
    ("%out: f32[2, 3] = aten.floor_divide.Scalar(self=%x) {other=2}", "floor_divide.default {other=2}"),
    ("%out: f32[2, 3] = aten.sub.Tensor(self=%x) {other=2}", "sub.Tensor {other=2.0}"),
    ("%out: f32[2, 3] = aten.div.Tensor(self=%x) {other=9007199254740993}",
        "div.Tensor {other=9007199254740993}"),
    ("%out: f32[2, 3] = aten.mul.Tensor(self=%x) {other=True}", "mul.Tensor {other=True}"),
    ("%out: f32[2, 3] = aten.remainder.Scalar(self=%x) {other=2}", "remainder.Scalar {other=2}"),
    # Defaults and axes.
    ("%out: f32[2, 3] = aten.add.Tensor(self=%x, other=%given) {alpha=1}", "add.Tensor {}"),
    ("%out: f32[2, 3] = aten.add.Tensor(self=%x, other=%given) {alpha=1.0}", "add.Tensor {alpha=1.0}"),
    ("%out: f32[2, 3] = aten.gelu.default(self=%x) {approximate=\"none\"}", "gelu.default {}"),
    ("%out: f32[2, 3] = aten.softmax.int(self=%x) {dim=-1, dtype=None}", "softmax.int {dim=1}"),
    ("%out: f32[2] = aten.sum.dim_IntList(self=%x) {dim=[-1], keepdim=False}", "sum.dim_IntList {dim=[1]}"),
    ("%out: f32[2, 3, 1] = aten.unsqueeze.default(self=%x) {dim=-1}", "unsqueeze.default {dim=2}"),
    ("%out: f32[2, 6] = aten.cat.default(tensors=[%x, %x]) {dim=-1}",
        "cat.default {_tensor_list_sizes=[2], dim=1}"),
    ("%out: f32[2, 3, 2] = aten.stack.default(tensors=[%x, %x]) {dim=-1}",
        "stack.default {_tensor_list_sizes=[2], dim=2}"),
    ("%out: f32[2, 3] = aten.flip.default(self=%x) {dims=[-2, 1]}", "flip.default {dims=[0, 1]}"),
    ("%out: f32[3] = aten.select.int(self=%x) {dim=-2, index=-1}", "select.int {dim=0, index=-1}"),
    ("%out: f32[2, 2]@[3, 1] = aten.slice.Tensor(self=%x) {dim=-1, start=0, end=2, step=1}",
        "slice.Tensor {dim=1, start=0, end=2}"),
    ("%out: f32[2, 3], %i: i64[2, 3] = aten.sort.default(self=%x) {dim=1} as \"sort\"", "sort.default {}"),
])  # fmt: skip
def test_a_call_gets_its_form(line: Any, form: Any) -> None:
    graph = program(of_node(line))

    result = run(graph)

    assert made_of(result.graph) == form
    assert result.graph.node("end").inputs[0].type == graph.node("end").inputs[0].type


@each_row("shape, size", [("[1, s0]", [2, -1]), ("[s0]", [2, -1]), ("[2, 1]", None), ("[1]", None)])
def test_an_open_size_is_expanded_to_only_where_it_is_there(shape: str, size: Any) -> None:
    graph = canonical(f"""
        symbol s0 in [1, 8]
        input %x: f32{shape}
        input %y: f32[2, s0]
        %out: f32[2, s0] = aten.expand_as.default(self=%x, other=%y)
        %end: f32[2, s0] = aten.abs.default(self=%out)
        return %end
    """)

    assert made_of(graph) == ("expand_as.default {}" if size is None else f"expand.default {{size={size}}}")


def test_numbers_that_meet_integers_stay_integers() -> None:
    graph = canonical(of_node("%out: i64[2, 3] = aten.add.Tensor(self=%x) {other=2}", "i64[2, 3]"))

    assert made_of(graph) == "add.Tensor {other=2}"


DTYPES = [
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64, torch.bool),
    *(torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64),
]
INTEGERS = [0, 1, 3, -1, 100000, 16777217, 2**40]
NUMBERS = [*INTEGERS, 0.0, -0.0, 0.1, 1e30, float("inf"), float("nan"), True, 1 + 2j]


@each_row("dtype, overload", itertools.product(DTYPES, sorted(_OF_TENSORS)))
def test_the_overload_for_tensors_takes_numbers_and_is_equal_to_the_bit(dtype: Any, overload: Any) -> None:
    scalar, tensor = resolve(overload), resolve(_OF_TENSORS[overload])
    kwargs = {"rounding_mode": "floor"} if "mode" in overload else {}
    x = torch.tensor([-3.0, 0.0, 2.0, 7.0, 100.0]).to(dtype)

    for number in NUMBERS:
        expected, found = (outcome(op, x, number, kwargs) for op in (scalar, tensor))
        assert (found is None) is (expected is None), number
        assert found is None or same_data(found, expected), number


def outcome(op: Any, x: Tensor, number: Any, kwargs: dict[str, Any]) -> Tensor | None:
    try:
        return op(x, number, **kwargs)
    except RuntimeError:
        return None


@each_row("text", {
    "a sparse matrix": of_node(
        "%out: f32[3, 2]@sparse_coo = aten.t.default(self=%x)", "f32[2, 3]@sparse_coo"
    ),
    "defaults of arguments that are not recorded": """
        input %x: f32[2, 3]
        param %mean: f32[3]
        param %var: f32[3]
        %y: f32[2, 3] = aten.instance_norm.default(%x, %mean, %var) \
{weight=None, bias=None, use_input_stats=False, momentum=0.1, eps=1e-05, cudnn_enabled=True}
        return %y
    """,
    "numbers of arguments that are not recorded": """
        input %x: f32[2]
        %n: int(2) = aten.sym_size.int(self=%x) {dim=0}
        %y: f32[2] = test_ops.thing.default(%x, %n)
        return %y
    """,
    "two updates": """
        input %x: f32[2]
        buffer %a: f32[2]
        buffer %b: f32[2]
        %y: f32[2] = aten.sin.default(self=%x)
        %z: f32[2] = aten.clone.default(self=%y)
        update %a = %y
        update %b = %z
        return %x
    """,
    "a number that data tells": """
        input %x: i64[1]
        %n: int = aten.item.default(self=%x)
        %m: int = operator.add(a=%n) {b=1}
        return %m
    """,
    "what fails, and is to say so": """
        input %x: f32[2]
        %n: int = operator.floordiv() {a=1, b=0}
        aten._assert_scalar.default() {self=False, assert_msg="no"}
        return (%x, %n)
    """,
    "the prologue": """
        param %w: f32[2, 3]
        prologue {
          %t: f32[3, 2]@[1, 3] = aten.t.default(self=%w)
        }
        %out: f32[3, 2]@[1, 3] = aten.neg.default(self=%t)
        return %out
    """,
})  # fmt: skip
def test_what_has_its_form_or_cannot_be_known_stays(text: Any) -> None:
    assert Canonicalize().run(program(text)) is False


def test_a_part_of_a_tuple_is_the_value_itself() -> None:
    graph = canonical("""
        input %x: f32[4]
        %m.0: f32[], %m.1: i64[] = aten.max.dim(self=%x) {dim=0}
        %part: i64[] = "<built-in function getitem>"(%m.0, %m.1) {index=1}
        %last: i64[] = "<built-in function getitem>"(%m.0, %m.1) {index=-1}
        return (%part, %last)
    """)

    assert [node.name for node in graph.nodes] == ["m"]
    assert [value.name for value in graph.outputs] == ["m.1", "m.1"]


COPIES = ["alias", "clone", "detach", "lift", "lift_fresh", "lift_fresh_copy"]


@each_row("name", COPIES)
def test_a_copy_that_nobody_can_tell_from_its_source_goes(name: Any) -> None:
    graph = canonical(of_node(f"%out: f32[2, 3] = aten.{name}.default(self=%x)"))

    assert graph.node("end").inputs[0].name == "x"


@each_row("name, stays", [(name, name in ("clone", "lift_fresh_copy")) for name in COPIES])
def test_a_copy_of_an_input_stays_a_result_of_its_own(name: Any, stays: Any) -> None:
    node = f"%y: f32[2] = aten.{name}.default(self=%x)"

    result = PassManager([Canonicalize]).run(program(f"input %x: f32[2]\n{node}\nreturn %y"))

    assert (result.graph.outputs == result.graph.inputs) is not stays
    reason = "it is a result of the graph, and would share the memory of %x"
    assert [item.reason for item in result.journal.refusals] == [reason] * stays


def test_a_constant_is_not_returned_itself() -> None:
    graph = extract_ir(Function(lambda x: (x + torch.tensor(2.0), torch.tensor(3.0))), (torch.ones(2),))

    result = run(graph).graph

    assert [node.op_type for node in result.nodes] == ["aten.add.Tensor", "aten.lift_fresh_copy.default"]


def test_a_copy_that_changes_strides_stays() -> None:
    line = "%out: f32[2, 3] = aten.clone.default(self=%x) {memory_format=contiguous_format}"

    graph = canonical(of_node(line, "f32[2, 3]@[1, 2]"))

    assert made_of(graph).startswith("clone.default")


SIZES = """
    input %given: f32[4, 3]
    %x: f32[4, 3] = aten.neg.default(self=%given)
    %n: int = aten.sym_size.int(self=%x) {dim=0}
    %m: int = aten.sym_size.int(self=%x) {dim=-1}
    %count: int = aten.sym_numel.default(self=%x)
    %known: int(3) = aten.sym_stride.int(self=%x) {dim=0}
    %half: float = operator.truediv(a=%n) {b=2}
    %whole: int = math.floor(x=%half)
    %small: bool = operator.lt(a=%n) {b=9}
    aten._assert_scalar.default(self=%small) {assert_msg="small"}
    %v: f32[3, 4] = aten.view.default(self=%x, size=(%m, -1))
    %s: f32[3, 4] = aten.mul.Tensor(self=%v, other=%half)
    %r: f32[3, 4] = aten.add.Tensor(self=%s, other=%count)
    return (%r, %n, %whole, %known)
"""


def test_sizes_that_types_tell_and_what_is_computed_with_them_become_plain_data() -> None:
    result = canonical(SIZES)

    assert [(node.op_type, dict(node.attrs)) for node in result.nodes] == [
        ("aten.neg.default", {}),
        ("aten.reshape.default", {"shape": [3, 4]}),
        ("aten.mul.Tensor", {"other": 2.0}),
        ("aten.add.Tensor", {"other": 12.0}),
    ]
    assert result.results[1][1:] == (4, 2, 3)


def test_an_input_that_is_a_known_number_becomes_plain_data_where_it_is_read() -> None:
    graph = canonical("""
        input %x: f32[2]
        input %n: int(3)
        %y: f32[2] = aten.mul.Tensor(self=%x, other=%n)
        return (%y, %n)
    """)

    assert dict(graph.node("y").attrs) == {"other": 3.0}
    assert graph.results[1][1] == 3
    assert [value.name for value in graph.inputs] == ["x", "n"]


OPEN = {
    "flatten": (lambda x: x.flatten(), ("reshape.default", {"shape": [-1]})),
    "view": (lambda x: x.view(x.shape[0], 1, 3), ("reshape.default", {"shape": [-1, 1, 3]})),
    "unflatten": (lambda x: x.unflatten(1, (3, 1)), ("reshape.default", {"shape": [-1, 3, 1]})),
    "t": (lambda x: x.t(), ("permute.default", {"dims": [1, 0]})),
    # A size of zero tells no other.
    "empty": (lambda x: x[:, :0].reshape(x.shape[0], 0, 2), ("reshape.default", {"shape": [None, 0, 2]})),
}


def open_graph(function: Any, *names: str) -> Graph:
    sizes = {index: Dim(name, min=2) for index, name in enumerate(names)}
    return extract_ir(Function(function), (torch.randn(4, 3),), dynamic_shapes=((sizes,),))


@each_row("function, expected", OPEN)
def test_one_open_size_is_told_by_the_others(function: Any, expected: Any) -> None:
    result = run(open_graph(function, "n")).graph

    (node,) = (node for node in result.nodes if node.op_type.startswith(("aten.resh", "aten.perm")))
    assert (node.op_type.removeprefix("aten."), dict(node.attrs)) == expected
    x = torch.randn(7, 3)
    assert torch.equal(execute_ir(result, (x,)), function(x))


def test_several_open_sizes_stay_arguments() -> None:
    def function(x: Tensor) -> Tensor:
        return x.view(x.shape[1], x.shape[0]).flatten(0, 0)

    result = run(open_graph(function, "n", "m")).graph

    (reshape,) = result.nodes_of("aten.reshape.default")
    assert reshape.operands == ("self", "shape[0]", "shape[1]")
    x = torch.randn(5, 2)
    assert torch.equal(execute_ir(result, (x,)), function(x))


def test_a_new_node_carries_where_the_old_one_came_from_and_its_name() -> None:
    graph = program(of_node("%out: f32[6] = aten.view.default(self=%x) {size=[-1]}"))
    graph.set_provenance(graph.node("out"), Provenance("layer.1", "model.py:3"))

    result = PassManager([Canonicalize]).run(graph)

    node = result.graph.node("out#1")
    assert result.graph.node("end").inputs == node.outputs
    assert node.provenance == Provenance("layer.1", "model.py:3")
    assert [(item.rule, item.nodes, item.made) for item in result.journal.rewrites] == [
        ("reshape", ("out",), ("out#1",))
    ]

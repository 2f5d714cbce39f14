"""elim-identity: what returns its input unchanged goes, and only that."""

import re
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.export import Dim
from torch.nn import functional as fn

from npu_ir import Graph, execute_ir, extract_ir
from npu_passes import Checked, PassManager, PassResult
from npu_passes.library.cleanup.elim_identity import ElimIdentity
from npu_passes.library.cleanup.elim_identity.copies import is_lossless
from tests.support.corpus.case import Function
from tests.support.passes.pattern_cases import reasons
from tests.support.rows import each_row
from tests.support.small_programs import program


def of_node(line: str, *, inputs: str = "f32[2, 3]", constant: str = "") -> Graph:
    """Return a graph in which a node of a fresh tensor, ``%x``, is read; it is called ``out``.

    The last line may be a call alone, of an ATen op that returns f32[2, 3].
    """
    if "%out" not in line:
        *others, call = line.split("\n")
        line = "\n".join([*others, f"%out: f32[2, 3] = aten.{call}"])
    return program(f"""
        input %given: {inputs}
        {constant}
        %x: {inputs} = aten.neg.default(self=%given)
        {line}
        %end: {_type_of(line)} = aten.neg.default(self=%out)
        return (%x, %end)
    """)


def _type_of(line: str) -> str:
    found = re.search(r"%out: (.*?)(?= = |, %)", line)
    return found[1]


def run(graph: Graph, **options: Any) -> PassResult:
    return PassManager([ElimIdentity(**options)], checked=Checked()).run(graph)


def is_gone(result: PassResult) -> bool:
    return result.graph.node("end").inputs[0].name == "x"


@each_row("line", [
    # 1. dropout
    "dropout.default(input=%x) {p=0.5, train=False}",
    "dropout.default(input=%x) {p=0.0, train=True}",
    "alpha_dropout.default(input=%x) {p=0.5, train=False}",
    "feature_dropout.default(input=%x) {p=0.5, train=False}",
    '%out: f32[2, 3], %mask: bool[2, 3] = aten.native_dropout.default(input=%x) {p=0.5, train=False} as "d"',
    # 2. arithmetic
    "add.Tensor(self=%x) {other=0}",
    "add.Tensor(self=%x) {other=-0.0}",
    "add.Tensor(self=%x) {other=False}",
    "add.Tensor(self=%x) {other=0, alpha=3}",
    "add.Tensor(self=%x) {other=5, alpha=0}",
    "add.Scalar(self=%x) {other=0.0}",
    "sub.Tensor(self=%x) {other=0.0}",
    "mul.Tensor(self=%x) {other=1}",
    "mul.Scalar(self=%x) {other=1.0}",
    "div.Tensor(self=%x) {other=1}",
    "pow.Tensor_Scalar(self=%x) {exponent=1}",
    # 3. views
    "view.default(self=%x) {size=[2, -1]}",
    "reshape.default(self=%x) {shape=[2, 3]}",
    "expand.default(self=%x) {size=[-1, 3]}",
    "slice.Tensor(self=%x) {dim=1, start=0, end=9223372036854775807}",
    "slice.Tensor(self=%x) {dim=1, start=-3}",
    "narrow.default(self=%x) {dim=0, start=0, length=2}",
    "permute.default(self=%x) {dims=[0, -1]}",
    "transpose.int(self=%x) {dim0=1, dim1=-1}",
    "squeeze.default(self=%x)",
    "repeat.default(self=%x) {repeats=[1, 1]}",
    "contiguous.default(self=%x)",
    "split.Tensor(self=%x) {split_size=2}",
    '%out: f32[2, 3], %rest: f32[0, 3] = aten.split_with_sizes.default(self=%x) {split_sizes=[2, 0]} as "s"',
    "flatten.using_ints(self=%x) {start_dim=1}",
    "%t: f32[3, 2]@[1, 3] = aten.t.default(self=%x)\ntranspose.int(self=%t) {dim0=0, dim1=1}",
    "%u: f32[2, 1, 3] = aten.unsqueeze.default(self=%x) {dim=1}\nsqueeze.dim(self=%u) {dim=1}",
    "%u: f32[6] = aten.view.default(self=%x) {size=[6]}\nview.default(self=%u) {size=[2, 3]}",
    # 4. casts
    "to.dtype(self=%x) {dtype=f32}",
    "_to_copy.default(self=%x) {dtype=f32}",
    'to.dtype_layout(self=%x) {dtype=f32, layout=strided, device=device("cpu")}',
    "%out: f32[2, 3] = prims.convert_element_type.default(a=%x) {dtype=f32}",
    "type_as.default(self=%x, other=%given)",
    "%w: f64[2, 3] = aten.to.dtype(self=%x) {dtype=f64}\nto.dtype(self=%w) {dtype=f32}",
    # 5. copies
    "clone.default(self=%x)",
    "positive.default(self=%x)",
    "cat.default(tensors=[%x])",
    "constant_pad_nd.default(self=%x) {pad=[0, 0, 0, 0]}",
    "copy.default(self=%given, src=%x)",
])  # fmt: skip
def test_an_identity_goes(line: Any) -> None:
    result = run(of_node(line))

    assert is_gone(result)
    assert result.converged
    assert reasons(result) == []


@each_row("line, reason", [
    # 1.
    ("dropout.default(input=%x) {p=0.5, train=True}", "it is in training mode, with p=0.5"),
    # 2.
    ("add.Tensor(self=%x) {other=1}", None),
    ("add.Tensor(self=%x) {other=0, alpha=nan}", None),
    ("add.Tensor(self=%x) {other=nan, alpha=0}", None),
    ("rsub.Scalar(self=%x) {other=0}", None),
    ("%out: c64[2, 3] = aten.add.Tensor(self=%x) {other=complex(0.0, 0.0)}", "it promotes f32 to c64"),
    ("floor_divide.default(self=%x) {other=1}", "it rounds"),
    ('div.Tensor_mode(self=%x) {other=1, rounding_mode="trunc"}', "it rounds"),
    # 3.
    ("%out: f32[1, 3] = aten.slice.Tensor(self=%x) {dim=0, start=0, end=2, step=2}", None),
    ("%out: f32[3, 2] = aten.view.default(self=%x) {size=[3, 2]}", None),
    ("%out: f32[3, 2]@[1, 3] = aten.t.default(self=%x)", None),
    ("%out: f32[4, 3] = aten.repeat.default(self=%x) {repeats=[2, 1]}", None),
    ("flip.default(self=%x) {dims=[0]}", None),
    # 4.
    ("%w: bf16[2, 3] = aten.to.dtype(self=%x) {dtype=bf16}\nto.dtype(self=%w) {dtype=f32}",
        "bf16 does not hold every f32"),
    ("%w: i32[2, 3] = aten.to.dtype(self=%x) {dtype=i32}\nto.dtype(self=%w) {dtype=f32}",
        "i32 does not hold every f32"),
    (
        (
            '%out: f32[2, 3] = aten.to.device(self=%x) {device=device("cpu"), dtype=f32}\n'
            '  %other: f32[1] = aten.zeros.default() {size=[1], device=device("meta")}'
        ),
        "it may move the tensor: the graph names the devices cpu, meta",
    ),
    # 5.
    ("constant_pad_nd.default(self=%x) {pad=[1, -1]}", None),
    ("%out: f32[4, 3] = aten.cat.default(tensors=[%x, %x])", None),
    ("%out: f32[2, 3]@[1, 2] = aten.clone.default(self=%x) {memory_format=preserve_format}", None),
])  # fmt: skip
def test_what_changes_something_stays(line: Any, reason: Any) -> None:
    graph = of_node(line)

    result = PassManager([ElimIdentity]).run(graph)

    assert not is_gone(result)
    assert reasons(result) == ([] if reason is None else [reason])


def test_a_mask_that_is_read_keeps_a_dropout() -> None:
    graph = program("""
        input %x: f32[2]
        %out: f32[2], %mask: bool[2] = aten.native_dropout.default(input=%x) {p=0.5, train=False} as "d"
        %end: f32[2] = aten.add.Tensor(self=%out, other=%mask)
        return %end
    """)

    assert reasons(run(graph)) == ["its mask %mask is read"]


@each_row("op, operands, constant, expected", [
    ("mul.Tensor", "self=%x, other=%c", "f32[] = [1.0]", True),
    ("mul.Tensor", "self=%c, other=%x", "f32[1] = [1.0]", True),
    ("mul.Tensor", "self=%x, other=%c", "i64[2, 3] = [1, 1, 1, 1, 1, 1]", True),
    ("add.Tensor", "self=%c, other=%x", "f32[3] = [0.0, -0.0, 0.0]", True),
    ("div.Tensor", "self=%x, other=%c", "f64[] = [1.0]", True),
    ("pow.Tensor_Tensor", "self=%x, exponent=%c", "f32[] = [1.0]", True),
    ("mul.Tensor", "self=%x, other=%c", "f32[3] = [1.0, 1.0, 2.0]", False),
    ("mul.Tensor", "self=%x, other=%c", "f32[] = [nan]", False),
    ("sub.Tensor", "self=%c, other=%x", "f32[] = [0.0]", False),
    ("add.Tensor", "self=%c, other=%x) {alpha=2}", "f32[] = [0.0]", False),
    ("div.Tensor", "self=%c, other=%x", "f32[] = [1.0]", False),
])  # fmt: skip
def test_a_constant_of_zeros_or_ones_is_seen(op: Any, operands: Any, constant: Any, expected: Any) -> None:
    result = run(
        of_node(
            f"%out: f32[2, 3] = aten.{op}({operands}{'' if '}' in operands else ')'}",
            constant=f"const %c: {constant}",
        )
    )

    assert is_gone(result) is expected
    assert reasons(result) == []


@each_row("inputs, line, constant, reason", [
    ("f32[2, 3]", "f64[2, 3] = aten.mul.Tensor(self=%x, other=%c)", "f64[1] = [1.0]",
        "it promotes f32 to f64"),
    ("i64[2, 3]", "f32[2, 3] = aten.div.Tensor(self=%x) {other=1}", "", "it promotes i64 to f32"),
    ("bool[2, 3]", "i64[2, 3] = aten.mul.Tensor(self=%x) {other=1}", "", "it promotes bool to i64"),
    ("f32[2, 3]", "f32[4, 2, 3] = aten.mul.Tensor(self=%x, other=%c)", "f32[4, 1, 1] = [1.0, 1.0, 1.0, 1.0]",
     "it broadcasts [2, 3] to [4, 2, 3]"),
    ("f32[2, 3]@[0, 1]", "f32[2, 3] = aten.mul.Tensor(self=%x) {other=1}", "",
     "it changes the layout from f32[2, 3]@[0, 1] to f32[2, 3]"),
    ("c64[2, 3]", "c64[2, 3] = aten.mul.Tensor(self=%x) {other=1}", "",
        "complex arithmetic makes NaN of infinities"),
])  # fmt: skip
def test_neither_promotion_nor_broadcasting_is_lost(
    inputs: Any, line: Any, constant: Any, reason: Any
) -> None:
    graph = program(f"""
        input %x: {inputs}
        {"const %c: " + constant if constant else ""}
        %out: {line}
        %end: {line.partition(" = ")[0]} = aten.neg.default(self=%out)
        return %end
    """)

    result = PassManager([ElimIdentity]).run(graph)

    assert result.graph.node("end").inputs[0].name == "out"
    assert reasons(result)[0] == reason


@each_row("call, keeps_sign", [
    ("aten.add.Tensor(self=%x) {other=0}", False),
    ("aten.add.Tensor(self=%x) {other=0.0}", False),
    ("aten.add.Tensor(self=%x) {other=-0.0}", True),
    ("aten.add.Tensor(self=%x) {other=0.0, alpha=-1}", True),
    ("aten.sub.Tensor(self=%x) {other=0.0}", True),
    ("aten.sub.Tensor(self=%x) {other=-0.0}", False),
    ("aten.sub.Tensor(self=%x) {other=0}", True),
    ("aten.mul.Tensor(self=%x) {other=1}", True),
    ("aten.add.Tensor(self=%x, other=%c)", False),
    ("aten.sub.Tensor(self=%x, other=%c)", True),
])  # fmt: skip
def test_a_sum_that_may_change_the_sign_of_zero_stays_if_signs_of_zeros_matter(
    call: Any, keeps_sign: Any
) -> None:
    graph = of_node(f"%out: f32[2, 3] = {call}", constant="const %c: f32[] = [0.0]")
    given = torch.tensor([[0.0, -0.0, 1.0]] * 2)

    result = run(graph, signed_zeros=True)

    assert is_gone(result) is keeps_sign
    assert keeps_sign or reasons(result) == ["it makes 0.0 of -0.0, and signed_zeros is set"]
    before, after = (execute_ir(item, (given,))[1] for item in (graph, result.graph))
    assert torch.equal(before.signbit(), after.signbit())
    unsigned = execute_ir(run(graph).graph, (given,))[1]
    assert torch.equal(unsigned.signbit(), before.signbit()) is keeps_sign


DTYPES = [
    *(torch.bool, torch.int8, torch.int16, torch.int32, torch.int64, torch.uint8, torch.uint16, torch.uint32),
    *(torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.float8_e5m2, torch.float8_e4m3fn),
]


def test_a_cast_is_lossless_exactly_where_it_keeps_every_number(subtests: pytest.Subtests) -> None:
    for narrow in DTYPES:
        for wide in DTYPES:
            with subtests.test(narrow=narrow, wide=wide):
                numbers = every_number(narrow)

                kept = same_numbers(numbers, numbers.to(wide))

                assert is_lossless(narrow, wide) is kept


def same_numbers(before: Tensor, after: Tensor) -> bool:
    if before.dtype.itemsize > 2:  # a double does not hold every integer
        return before.tolist() == after.tolist()
    return torch.allclose(before.double(), after.double(), rtol=0, atol=0, equal_nan=True)


def every_number(dtype: torch.dtype) -> Tensor:
    """Return every number of a dtype of up to 16 bits, and the ends of larger ones."""
    if dtype == torch.bool:
        return torch.tensor([False, True])
    if dtype.itemsize <= 2:
        bits = torch.arange(256**dtype.itemsize, dtype=torch.int32)
        return bits.to({1: torch.uint8, 2: torch.int16}[dtype.itemsize]).view(dtype)
    if dtype.is_floating_point:
        info = torch.finfo(dtype)
        return torch.tensor(
            [info.max, info.smallest_normal, info.smallest_normal * info.eps, 1 + info.eps], dtype=dtype
        )
    info = torch.iinfo(dtype)
    return torch.tensor([info.max, info.max - 1, info.min, info.min + 1], dtype=dtype)


FRESH = {
    "clone": (lambda x: x.clone()),
    "sum": (lambda x: x + 0),
    "product": (lambda x: x * 1),
    "repeat": (lambda x: x.repeat(1, 1)),
    "cat": (lambda x: torch.cat([x])),
    "pad": (lambda x: fn.pad(x, (0, 0))),
    "casts": (lambda x: x.double().float()),
    "view_of_a_sum": (lambda x: (x + 0).view(-1)),
}
SHARED = {
    "dropout": (lambda x: fn.dropout(x, training=False)),
    "view": (lambda x: x.view(x.shape)),
    "transpositions": (lambda x: x.t().t()),
    "contiguous": (lambda x: x.contiguous()),
    "cast": (lambda x: x.to(torch.float32)),
    "slice": (lambda x: x[:]),
}


@each_row("function", FRESH)
def test_a_copy_goes_only_where_it_is_not_a_result(function: Any) -> None:
    x = torch.randn(2, 3)
    inner = extract_ir(Function(lambda x: function(x.neg())), (x,))
    returned = PassManager([ElimIdentity]).run(extract_ir(Function(function), (x,)))

    assert len(run(inner).graph) < len(inner)
    assert memory(execute_ir(returned.graph, (x,))) != memory(x)
    assert reasons(returned) == ["it is a result of the graph, and would share the memory of %args_0"]


def test_one_of_two_copies_that_are_results_stays() -> None:
    x = torch.randn(2, 3)

    result = run(extract_ir(Function(lambda x: (lambda y: (y + 0, y * 1))(x.neg())), (x,)))

    found = execute_ir(result.graph, (x,))
    assert memory(found[0]) != memory(found[1])
    assert len(result.graph) == 2
    assert reasons(result) == ["it is a result of the graph, and would share the memory of another, %neg"]


@each_row("function, shape", {
    "a turned square": (lambda x: x.sin().t().contiguous().cos(), (3, 3)),
    "parts": (lambda x: (lambda y: y[:1] - y[1:])(x.sin()), (2, 3)),
    "one of two parts": (lambda x: (lambda y: y[0] * y[1])(x.sin().split(1)), (2, 3)),
})  # fmt: skip
def test_what_has_the_type_of_its_input_by_chance_stays(function: Any, shape: Any) -> None:
    graph = extract_ir(Function(function), (torch.randn(shape),))

    assert len(run(graph).graph) == len(graph)


@each_row("function", SHARED)
def test_what_is_the_input_in_the_model_becomes_the_input(function: Any) -> None:
    x = torch.randn(2, 3)
    graph = extract_ir(Function(function), (x,))

    result = run(graph)

    assert memory(function(x)) == memory(x)
    assert result.graph.outputs == result.graph.inputs
    assert reasons(result) == []


def test_a_copy_of_what_the_prologue_computes_stays_a_result_of_its_own() -> None:
    graph = program("""
        param %w: f32[2]
        prologue {
          %p: f32[2] = aten.sin.default(self=%w)
        }
        %out: f32[2] = aten.clone.default(self=%p)
        return %out
    """)

    assert reasons(run(graph)) == ["it is a result of the graph, and would share the memory of %p"]


def memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def test_identities_of_open_sizes_go() -> None:
    def function(x: Tensor) -> Tensor:
        y = x.sin()
        y = y.reshape(x.shape[0], 4)[:].expand(x.shape[0], 4).transpose(0, 1).transpose(1, 0) * 1
        return y.unsqueeze(0).squeeze(0).view(x.shape[0], 4).cos()

    graph = extract_ir(Function(function), (torch.randn(3, 4),), dynamic_shapes=(({0: Dim("n", min=2)},),))

    result = PassManager(["elim-identity,dead-code"], checked=Checked()).run(graph).graph

    assert [node.op_type for node in result.nodes] == ["aten.sin.default", "aten.cos.default"]
    x = torch.randn(5, 4)
    assert torch.equal(execute_ir(result, (x,)), function(x))


def test_identities_in_regions_go_and_a_region_does_not_return_its_input() -> None:
    def function(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda a: (a * 1).sin(), lambda a: a.clone(), (x,))

    graph = extract_ir(Function(function), (torch.ones(3),))

    result = run(graph).graph

    (cond,) = (node for node in result.nodes if node.regions)
    ops = {name: [node.op_type for node in region.nodes] for name, region in cond.regions.items()}
    assert ops == {"true_fn": ["aten.sin.default"], "false_fn": ["aten.clone.default"]}

"""scalars-to-tensors: numbers are 0-d tensors, and what is computed with them stays the same."""

import itertools
import math
from typing import Any

import pytest
import torch

from npu_ir import Graph, Interpreter, ScalarType, execute_ir
from npu_passes import Checked, PassError, PassManager, PassResult
from npu_passes.library.training.fuse_optimizer import FuseOptimizer
from npu_passes.library.training.scalars_to_tensors import ScalarsToTensors, tensor_inputs
from npu_passes.manager.checked_mode import relative_error
from npu_passes.testing import check_pass
from tests.support.passes.pattern_cases import reasons
from tests.support.passes.training_graphs import KINDS, call_of, data_of, ops, step_graph, trained, weights_of
from tests.support.rows import each_row
from tests.support.small_programs import program

BOUNDARY = "aten.scalar_tensor.default"
NUMBER = 0.3


def called(lines: str, type: str = "f32[2, 3]", result: str = "%out") -> Graph:
    """Return a graph of a tensor ``%x``, another one ``%y`` and a number ``%n``."""
    return program(f"""
        input %x: {type}
        input %y: {type}
        input %n: float
        call (%x, %y, %n)
        {lines}
        return {result}
    """)


def data(graph: Graph, number: float = NUMBER) -> Checked:
    generator = torch.Generator().manual_seed(0)
    types = [value.tensor_type for value in graph.inputs[:2]]
    made = [torch.rand(type.static_shape, generator=generator) + 0.5 for type in types]
    tensors = [(4 * item).to(type.dtype) for item, type in zip(made, types, strict=True)]
    return Checked(calls=[((*tensors, number), {})])


def run(graph: Graph, **options: Any) -> PassResult:
    return PassManager([ScalarsToTensors(**options)]).run(graph)


def readers(graph: Graph) -> set[str]:
    return {
        node.op_type for node in graph.nodes for value in node.inputs if isinstance(value.type, ScalarType)
    }


def lists(op: str, rest: str, type: str = "f32[2, 3]", tensors: str = "self=[%x, %y]") -> str:
    return f"%out: {type}, %other: {type} = aten._foreach_{op}({tensors}, {rest})"


SINGLE = [
    "aten.mul.Scalar(self=%x, other=%n)",
    "aten.mul.Tensor(self=%x, other=%n)",
    "aten.div.Scalar(self=%x, other=%n)",
    "aten.add.Scalar(self=%x, other=%n)",
    "aten.add.Tensor(self=%x, other=%y, alpha=%n)",
    "aten.sub.Tensor(self=%x, other=%y, alpha=%n)",
    "aten.sub.Scalar(self=%x, other=%n) {alpha=2}",
    "aten.rsub.Tensor(self=%x, other=%y, alpha=%n)",
    "aten.rsub.Scalar(self=%x, other=%n)",
    "aten.lerp.Scalar(self=%x, end=%y, weight=%n)",
    "aten.addcmul.default(self=%x, tensor1=%y, tensor2=%x, value=%n)",
    "aten.addcdiv.default(self=%x, tensor1=%y, tensor2=%x, value=%n)",
    "aten.pow.Tensor_Scalar(self=%x, exponent=%n)",
    "aten.pow.Scalar(self=%n, exponent=%x)",
    "aten.clamp.default(self=%x, min=%n)",
    "aten.clamp_max.default(self=%x, max=%n)",
    "aten.fmod.Scalar(self=%x, other=%n)",
    "aten.full_like.default(self=%x, fill_value=%n)",
    "aten.full.default(fill_value=%n) {size=[2, 3], dtype=f32}",
]
ON_LISTS = [
    lists("mul.Scalar", "scalar=%n"),
    lists("div.Scalar", "scalar=%n"),
    lists("add.Scalar", "scalar=%n"),
    lists("sub.Scalar", "scalar=%n"),
    lists("add.List", "other=[%y, %x], alpha=%n"),
    lists("sub.List", "other=[%y, %x], alpha=%n"),
    lists("lerp.Scalar", "tensors1=[%y, %x], weight=%n"),
    lists("addcmul.Scalar", "tensor1=[%y, %x], tensor2=[%x, %y], value=%n"),
    lists("addcdiv.Scalar", "tensor1=[%y, %x], tensor2=[%x, %y], value=%n"),
    lists("pow.Scalar", "exponent=%n"),
    lists("pow.ScalarAndTensor", "exponent=[%x, %y]", tensors="self=%n"),
    lists("maximum.Scalar", "scalar=%n"),
    lists("clamp_min.Scalar", "scalar=%n"),
]


def assert_takes_a_tensor(graph: Graph) -> None:
    assert check_pass(ScalarsToTensors, graph, data=data(graph)) == 1
    assert readers(run(graph).graph) == {BOUNDARY}


def test_an_op_with_a_number_becomes_one_with_a_tensor(subtests: pytest.Subtests) -> None:
    for type, call in itertools.product(["f32[2, 3]", "f32[]", "f64[2, 3]"], SINGLE):
        if "full.default" in call and type != "f32[2, 3]":
            continue
        with subtests.test(type=type, call=call):
            assert_takes_a_tensor(called(f"%out: {type} = {call}", type))


@each_row("type, call", itertools.product(["f32[2, 3]", "f32[]", "f64[]"], ON_LISTS))
def test_an_op_on_lists_with_a_number_becomes_one_with_a_tensor(type: Any, call: Any) -> None:
    assert_takes_a_tensor(called(call.replace("f32[2, 3]", type), type, "(%out, %other)"))


@each_row("type", ["bf16[2, 3]", "f16[2, 3]"])
def test_a_coarse_tensor_does_not_round_the_number(type: str) -> None:
    graph = called(f"%out: {type} = aten.mul.Scalar(self=%x, other=%n)", type)
    thousand = torch.full((2, 3), 1000, dtype=graph.inputs[0].tensor_type.dtype)

    found, expected = (
        execute_ir(item, (thousand, thousand, 0.999), {}) for item in (run(graph).graph, graph)
    )

    assert torch.equal(found, expected)


@each_row("function, expected", [
    ("operator.sub(b=%n) {a=1.0}", 1 - NUMBER),
    ("operator.sub(a=%n) {b=1.0}", NUMBER - 1),
    ("operator.mul(a=%n, b=%n)", NUMBER * NUMBER),
    ("operator.truediv(b=%n) {a=2}", 2 / NUMBER),
    ("operator.truediv(a=%n) {b=2}", NUMBER / 2),
    ("operator.pow(a=%n) {b=3}", NUMBER**3),
    ("operator.pow(b=%n) {a=2.0}", 2**NUMBER),
    ("operator.neg(a=%n)", -NUMBER),
    ("torch.sym_max(a=%n) {b=0.5}", 0.5),
    ("math.sqrt(x=%n)", math.sqrt(NUMBER)),
])  # fmt: skip
def test_arithmetic_on_numbers_is_arithmetic_on_tensors(function: str, expected: Any) -> None:
    graph = called(
        f"%m: float = {function}\n%out: f64[2, 3] = aten.mul.Scalar(self=%x, other=%m)", "f64[2, 3]"
    )
    ones = torch.ones(2, 3, dtype=torch.float64)

    assert check_pass(ScalarsToTensors, graph, data=data(graph)) == 1
    found = run(graph).graph
    assert readers(found) == {BOUNDARY}
    assert execute_ir(found, (ones, ones, NUMBER), {})[0, 0].item() == pytest.approx(expected, rel=1e-15)


@each_row("type, number, call", [
    ("f32[1]", "float", "operator.truediv(a=%item) {b=2}"),
    ("i64[]", "int", "operator.truediv(a=%item) {b=3}"),
])  # fmt: skip
def test_what_is_read_from_a_tensor_stays_one(type: str, number: str, call: str) -> None:
    graph = program(f"""
        input %x: f64[2, 3]
        input %t: {type}
        %item: {number} = aten._local_scalar_dense.default(self=%t)
        %part: float = {call}
        %out: f64[2, 3] = aten.mul.Scalar(self=%x, other=%part)
        return %out
    """)

    assert check_pass(ScalarsToTensors, graph) == 1
    assert not any(isinstance(value.type, ScalarType) for value in run(graph).graph.values)


@each_row("kind", list(KINDS))
def test_no_number_is_left_of_an_optimizer_but_those_that_become_tensors(kind: Any) -> None:
    graph = step_graph(kind)

    assert check_pass(ScalarsToTensors, graph, data=data_of(graph)) == 1
    result = run(graph)
    assert readers(result.graph) == {BOUNDARY}
    assert reasons(result) == []


@each_row("kind", ["adamw, all", "sgd, all"])
def test_steps_that_are_called_with_tensors_train_alike(kind: str) -> None:
    graph = step_graph(kind, dtype=torch.float64)

    found = tensor_inputs(run(graph).graph)

    found.check()
    assert not any(isinstance(value.type, ScalarType) for value in found.values)
    now, before = trained(found), trained(graph)
    assert max(relative_error(now[name], before[name]) for name in before) < 1e-12


def test_a_graph_with_tensors_is_called_as_before() -> None:
    graph = step_graph("adamw")

    found = tensor_inputs(run(graph).graph)

    assert [value.name for value in found.inputs] == [value.name for value in graph.inputs]
    assert str(found.value("group0.lr").type) == "f64[]"
    assert str(found).count("call (") == 1
    assert graph.call[0] == found.call[0]
    args, kwargs = call_of(found)
    Interpreter(found, weights_of(found)).run_flat(args, kwargs)


def test_of_an_optimizer_that_is_one_op_the_rate_becomes_a_tensor() -> None:
    graph = PassManager([FuseOptimizer()]).run(step_graph("adamw")).graph

    assert check_pass(ScalarsToTensors, graph, data=data_of(graph)) == 1
    result = run(graph)
    assert ops(result.graph)[-3:] == [BOUNDARY, "aten._to_copy.default", "npu.adam_step.tensor_lr"]
    no_form = "%group0.{} stays a number: npu.adam_step.default has no form that takes a tensor for {!r}"
    rest = {"betas.0": "beta1", "betas.1": "beta2", "eps": "eps", "weight_decay": "weight_decay"}
    assert sorted(reasons(result)) == [no_form.format(name, argument) for name, argument in rest.items()]
    left = [value.name for value in tensor_inputs(result.graph).inputs if isinstance(value.type, ScalarType)]
    assert left == [f"group0.{name}" for name in rest]


def test_all_numbers_of_a_step_are_in_memory_where_its_backend_reads_them() -> None:
    graph = PassManager([FuseOptimizer()]).run(step_graph("adamw")).graph
    to_memory = ScalarsToTensors(in_memory=True)

    assert check_pass(to_memory, graph, data=data_of(graph)) == 1
    result = PassManager([to_memory]).run(graph)

    assert ops(result.graph)[-6:] == [BOUNDARY] * 5 + ["npu.adam_step.tensor_numbers"]
    assert not reasons(result)
    moved = tensor_inputs(result.graph)
    assert {str(value.type) for value in moved.inputs if value.name.startswith("group0.")} == {"f64[]"}


def test_literals_of_a_step_are_tensors_beside_its_numbers() -> None:
    graph = PassManager([FuseOptimizer()]).run(step_graph("sgd, momentum")).graph
    assert graph.nodes[-1].attrs["weight_decay"] == 0.0

    result = PassManager([ScalarsToTensors(in_memory=True)]).run(graph)

    (step,) = result.graph.nodes_of("npu.sgd_step.tensor_numbers")
    assert "weight_decay" not in step.attrs
    assert check_pass(ScalarsToTensors(in_memory=True), graph, data=data_of(graph)) == 1


def test_a_number_that_is_needed_as_one_stays(subtests: pytest.Subtests) -> None:
    rows = [
        ("%out: f32[2, 3] = aten.mul.Scalar(self=%x, other=%n)", "(%out, %n)",
            "%n stays a number: the graph returns it"),
        ("%out: f32[2, 3] = aten.dropout.default(input=%x, p=%n) {train=True}", "%out",
            "%n stays a number: aten.dropout.default has no form that takes a tensor for 'p'"),
        ("%m: float = operator.neg(a=%n)\n%out: f32[2, 3] = aten.elu.default(self=%x, alpha=%m)", "%out",
            "%m stays a number: aten.elu.default has no form that takes a tensor for 'alpha'"),
        (lists("mul.ScalarList", "scalars=(%n, %n)"), "%out",
            "%n stays a number: aten._foreach_mul.ScalarList takes it in a list of numbers"),
        ("%m: int = builtins.int(x=%n)\n%out: f32[2, 3] = aten.mul.Scalar(self=%x, other=%m)", "%out",
            "%n stays a number: builtins.int takes numbers"),
    ]  # fmt: skip
    for lines, result, reason in rows:
        with subtests.test(lines=lines, result=result, reason=reason):
            graph = called(lines, result=result)

            found = run(graph)

            assert found.graph == graph
            assert reasons(found)[0] == reason


def test_a_number_stays_with_all_that_hangs_on_it() -> None:
    graph = called(
        "%m: float = operator.neg(a=%n)\n"
        "%z: f32[2, 3] = aten.mul.Scalar(self=%x, other=%m)\n"
        "%out: f32[2, 3] = aten.elu.default(self=%z, alpha=%n)"
    )

    assert "%m stays a number: %n does, which it is computed from" in reasons(run(graph))


def test_floats_may_stand_in_another_dtype() -> None:
    graph = called("%out: f32[2, 3] = aten.mul.Scalar(self=%x, other=%n)")

    found = tensor_inputs(run(graph, dtype="float32").graph)

    assert str(found.value("n").type) == "f32[]"
    assert ops(found) == ["aten.mul.Tensor"]


@each_row("dtype", ["int64", "float31"])
def test_floats_stand_in_floats(dtype: str) -> None:
    with pytest.raises(PassError, match=f"the option 'dtype' of scalars-to-tensors .* not '{dtype}'"):
        ScalarsToTensors(dtype=dtype)

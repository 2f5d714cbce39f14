"""Each rule of an elementwise op computes what PyTorch computes, for the arguments of its schema."""

import re
from collections.abc import Iterator
from typing import Any

import pytest
import torch

import npu_cuda
from npu_cuda import OpKind
from npu_cuda.backend import HostBackend, rules
from npu_cuda.backend.pointwise_rules import ELEMENTWISE_RULES
from npu_cuda.backend.rules import RULES
from npu_cuda.errors import InvalidArgumentError
from npu_ir import BackendError, Graph, extract_ir, parse_ir
from npu_ir.core.types import dtype_name
from npu_runtime import IRExecutor, explain_graph
from tests.support.corpus.case import Function
from tests.support.cuda.programs import registered
from tests.support.rows import each_row

HOST = HostBackend()
ATEN = sorted(op for op in ELEMENTWISE_RULES if op.startswith("aten."))
INTEGER_OPS = ("bitwise", "floor_divide", "__and__", "__or__", "__xor__")
NUMBERS = {"threshold": 0, "reduction": 0, "self_is_result": False, "is_result": False, "approximate": None}


def overload_of(name: str) -> Any:
    _, op, overload = name.split(".")
    return getattr(getattr(torch.ops.aten, op), overload)


def arguments_of(name: str, dtype: torch.dtype) -> Iterator[tuple[str, Any]]:
    torch.manual_seed(0)
    for index, argument in enumerate(overload_of(name)._schema.arguments):
        if "Tensor" in str(argument.type):
            values = torch.rand(4, 5).add(0.25 * (index + 1)) * 3
            yield argument.name, values > 1.5 if argument.name in {"mask", "condition"} else values.to(dtype)
        elif argument.name in NUMBERS:
            if NUMBERS[argument.name] is not None:
                yield argument.name, NUMBERS[argument.name]
        elif not argument.has_default_value() or argument.name in {"alpha", "value", "beta", "min"}:
            yield argument.name, 0.5 if dtype.is_floating_point else 2


def graph_of(name: str, arguments: dict[str, Any], result: torch.Tensor) -> Graph:
    tensors = {key: value for key, value in arguments.items() if isinstance(value, torch.Tensor)}
    attrs = [f"{key}={value}" for key, value in arguments.items() if key not in tensors]
    inputs = [f"input %{key}: {dtype_name(value.dtype)}{list(value.shape)}" for key, value in tensors.items()]
    call = f"{name}({', '.join(f'{key}=%{key}' for key in tensors)}) {{{', '.join(attrs)}}}"
    result_type = f"{dtype_name(result.dtype)}{list(result.shape)}"
    return parse_ir("\n".join(["graph g {", *inputs, f"%y: {result_type} = {call}", "return %y", "}"]))


def run(graph: Graph, inputs: list[torch.Tensor]) -> torch.Tensor:
    program = HOST.prepare(graph, HOST.lower(graph), torch.device("cpu"))
    (result,) = HOST.run(program, inputs)
    return result


@pytest.mark.parametrize("name", ATEN)
def test_a_node_gives_what_pytorch_gives(name: str) -> None:
    dtype = torch.int64 if any(part in name for part in INTEGER_OPS) else torch.float32
    arguments = dict(arguments_of(name, dtype))
    expected = overload_of(name)(**arguments)
    tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]

    result = run(graph_of(name, arguments, expected), tensors)

    torch.testing.assert_close(result, expected, rtol=2e-6, atol=1e-6)


def error_of(name: str, dtype: torch.dtype) -> str | None:
    """Return how the native op of a node differs from PyTorch's; None if it doesn't, or there is none."""
    arguments = dict(arguments_of(name, dtype))
    try:
        expected = overload_of(name)(**arguments)
    except (RuntimeError, NotImplementedError):  # PyTorch has no op of this dtype
        return None
    graph = graph_of(name, arguments, expected)
    if HOST.supports(graph.nodes[0]) is not None:
        return None
    tensors = [value for value in arguments.values() if isinstance(value, torch.Tensor)]
    rounds_twice = {"rtol": 2 * torch.finfo(dtype).eps, "atol": 1e-5} if dtype == torch.float16 else {}
    try:
        torch.testing.assert_close(run(graph, tensors), expected, **rounds_twice)
    except AssertionError as error:
        return str(error)
    return None


@pytest.mark.parametrize("dtype", [
    torch.complex64, torch.complex128, torch.float16, torch.bfloat16, torch.float64,
    torch.uint8, torch.int8, torch.int16, torch.int32, torch.uint16, torch.bool,
])  # fmt: skip
def test_every_dtype_is_computed_as_pytorch_does_or_refused(dtype: torch.dtype) -> None:
    errors = {name: error_of(name, dtype) for name in ATEN}

    assert {name: error for name, error in errors.items() if error is not None} == {}


@pytest.mark.parametrize(("call", "reason"), [
    ("aten.remainder.Tensor(self=%i, other=%i)", "an integer is divided by 0"),
    ("aten.remainder.Scalar(self=%i) {other=0}", "an integer is divided by 0"),
    ("aten.pow.Tensor_Scalar(self=%i) {exponent=-1}", "integers have no negative powers"),
    ("aten.lt.Scalar(self=%i) {other=2.5}", "takes no other=2.5 for integers"),
    ("aten.mul.Scalar(self=%i) {other=9007199254740993}", "has more than 53 bits"),
    ("aten.threshold_backward.default(grad_output=%i, self=%i) {threshold=1}", "has no threshold=1"),
    ("aten.mse_loss.default(self=%i, target=%i) {reduction=1}", "has no reduction=1"),
    ("aten.lt.Scalar(self=%i) {other=True}", "takes a real other and nothing else"),
    ("aten.lt.Scalar(self=%b) {other=1000}", "other=1000 is not in the range of torch.int8"),
    ("aten.floor_divide.default(self=%b) {other=-129}", "other=-129 is not in the range of torch.int8"),
])  # fmt: skip
def test_what_pytorch_computes_otherwise_is_refused(call: str, reason: str) -> None:
    (node,) = parse_ir(
        f"graph g {{\ninput %i: i64[3]\ninput %b: i8[3]\n%y: i64[3] = {call}\nreturn %y\n}}"
    ).nodes

    answer = HOST.supports(node)

    assert answer is not None
    assert reason in answer


@each_row("function, dtypes", {
    "a difference": (torch.sub, (torch.bool, torch.int8)),
    "of a number": (lambda x: 2 - x, (torch.bool,)),
    "an absolute value": (torch.abs, (torch.bool,)),
    "relu": (torch.relu, (torch.bool,)),
    "a power": (torch.pow, (torch.bool, torch.bool)),
    "a product that is added": (torch.addcmul, (torch.bool,) * 3),
    "a quotient that is added": (torch.addcdiv, (torch.float32, torch.bool, torch.bool)),
})  # fmt: skip
def test_truth_values_that_pytorch_refuses_are_left_to_it(
    function: Any, dtypes: tuple[torch.dtype, ...]
) -> None:
    tensors = tuple(torch.tensor([1, 0]).to(dtype) for dtype in dtypes)
    (node,) = extract_ir(Function(function), tensors).nodes

    with pytest.raises((RuntimeError, NotImplementedError), match=r"not supported|not implemented|no longer"):
        function(*tensors)
    assert "truth values" in str(HOST.supports(node))


@pytest.mark.parametrize(("dtype", "number"), [("u8", -1), ("i8", 200), ("i32", 2**31)])
def test_a_number_that_is_out_of_the_range_of_the_result_is_refused(dtype: str, number: int) -> None:
    text = (
        f"graph g {{\n%y: {dtype}[3] = aten.full.default() {{size=[3], fill_value={number}}}\nreturn %y\n}}"
    )
    (node,) = parse_ir(text).nodes

    assert f"fill_value={number} is not in the range of" in str(HOST.supports(node))


def test_inputs_that_pytorch_rounds_first_are_refused() -> None:
    text = (
        "graph g {\ninput %a: f16[3]\ninput %b: i64[3]\n"
        "%y: f16[3] = aten.mul.Tensor(self=%a, other=%b)\nreturn %y\n}"
    )
    (node,) = parse_ir(text).nodes

    assert "are rounded before they are computed with" in str(HOST.supports(node))


def test_inputs_are_broadcast_strided_and_of_several_dtypes() -> None:
    text = (
        "graph g {\ninput %a: f32[3, 4]@[1, 3]\ninput %b: i64[4]\n"
        "%y: f32[3, 4] = aten.mul.Tensor(self=%a, other=%b)\nreturn %y\n}"
    )
    a, b = torch.randn(4, 3).t(), torch.arange(4)

    torch.testing.assert_close(run(parse_ir(text), [a, b]), a * b, rtol=0, atol=0)


def test_a_rule_of_others_is_asked_first(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "aten.leaky_relu.default"
    monkeypatch.setitem(RULES, name, RULES[name])
    npu_cuda.lowering_rule(name, "Clamp", numbers={"low": "negative_slope"})
    text = f"graph g {{\ninput %a: f32[3]\n%y: f32[3] = {name}(self=%a) {{negative_slope=1.0}}\nreturn %y\n}}"

    (op,) = HOST.lower(parse_ir(text))

    assert op.kind == "Clamp"
    assert run(parse_ir(text), [torch.tensor([-1.0, 0.5, 2.0])]).tolist() == [1, 1, 2]


def test_a_number_that_a_node_lacks_is_the_default_of_its_op(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "aten.leaky_relu.default"
    monkeypatch.setitem(RULES, name, RULES[name])
    npu_cuda.lowering_rule(name, "Clamp", numbers={"low": "negative_slope"})
    text = f"graph g {{\ninput %a: f32[3]\n%y: f32[3] = {name}(self=%a)\nreturn %y\n}}"

    assert run(parse_ir(text), [torch.tensor([-1.0, 0.5, 2.0])]).tolist() == pytest.approx([0.01, 0.5, 2])


EDGES = torch.tensor([0.1, 0.3, 3.0, float("inf")] * 16)
NUMBERS_AND_SCALARS = {
    f"{dtype}, {number}": (
        lambda a, number=number: (a == number, a < number, a >= number, a + number, number - a, a % number),
        (EDGES.to(dtype),),
    )
    for dtype in (torch.float16, torch.bfloat16)
    for number in (0.1, 2.0, 1e30)
} | {
    "alpha": (lambda a: (torch.add(a, a, alpha=0.1), torch.sub(a, 0.3, alpha=0.1)), (EDGES.half(),)),
    "power": (lambda a: (a**0.1,), (EDGES.bfloat16(),)),
    "integers and a float": (lambda a: (a == 16777216.0, a < 3.0), (torch.tensor([16777217, 2]),)),
    "a wide scalar tensor": (
        lambda a, b: (torch.maximum(a, b), torch.minimum(b, a), a < b, a == b, a + b, a * b),
        (torch.tensor([100, 1], dtype=torch.int8), torch.tensor(300)),
    ),
    "a precise scalar tensor": (
        lambda a, b: (a == b, a > b),
        (torch.tensor([0.1, 0.3]), torch.tensor(0.1).double() + 1e-9),
    ),
    "a power of small integers": (
        lambda a, b: (a**b,),
        (torch.tensor([3, 1], dtype=torch.uint8), torch.tensor(-3)),
    ),
}  # fmt: skip


@each_row("function, inputs", NUMBERS_AND_SCALARS)
def test_numbers_and_scalar_tensors_are_rounded_as_in_pytorch(function: Any, inputs: Any) -> None:
    graph = extract_ir(Function(function), inputs)

    actual, expected = IRExecutor(graph, {}, backend=HOST)(*inputs), function(*inputs)

    torch.testing.assert_close(actual, expected, rtol=0, atol=0, equal_nan=True)


def test_a_rule_for_an_op_that_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match=re.escape("there is no native op 'docs.gelu'")):
        npu_cuda.lowering_rule("aten.gelu.default", "docs.gelu")


@each_row("given, message", [
    ({"numbers": {"slop": "negative_slope"}}, "LeakyRelu has no attribute 'slop'; it has slope"),
    ({"numbers": {"slope": "slop"}},
        "leaky_relu.default has no argument 'slop'; it has self, negative_slope"),
    ({"condition": 5}, "condition=5 is not a function of a node"),
    ({"numbers": ["slope"]}, "numbers=['slope'] is not a dict of fields to arguments"),
    ({"op_type": 3}, "op_type=3 is not the name of an op"),
    ({"op_type": "aten.leaky_relu"},
        "there is no op aten.leaky_relu (did you mean 'aten.leaky_relu.default'?)"),
    ({"op_type": "aten.sigmiod.default"},
        "there is no op aten.sigmiod.default (did you mean 'aten.sigmoid.default'?)"),
    ({"kind": "EltwiseAdd"},
        "EltwiseAdd takes 2 tensors, and nodes of aten.leaky_relu.default have 1 tensor"),
    ({"op_type": "aten.add.Tensor"}, "LeakyRelu takes 1 tensor, and nodes of aten.add.Tensor have 2 tensors"),
    ({"op_type": "aten.aminmax.default"}, "LeakyRelu returns 1 tensor, and aten.aminmax.default 2"),
])  # fmt: skip
def test_a_rule_that_cannot_be_followed_is_refused(given: dict[str, Any], message: str) -> None:
    known = RULES["aten.leaky_relu.default"]

    with pytest.raises(InvalidArgumentError, match=re.escape(message)):
        npu_cuda.lowering_rule(**{"op_type": "aten.leaky_relu.default", "kind": "LeakyRelu", **given})

    assert RULES["aten.leaky_relu.default"] is known


def test_a_rule_of_an_op_whose_library_is_not_loaded_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "RULES", {})

    npu_cuda.lowering_rule("a_library.relu.default", "EltwiseRelu")

    assert [*rules.RULES] == ["a_library.relu.default"]


def test_a_condition_that_gives_no_reason_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "aten.leaky_relu.default"
    monkeypatch.setitem(RULES, name, RULES[name])
    npu_cuda.lowering_rule(name, "LeakyRelu", condition=lambda node: True)  # type: ignore[arg-type, return-value]

    with pytest.raises(
        BackendError,
        match="(?s)rule of aten.leaky_relu.default by LeakyRelu returned True.*in words, or None",
    ):
        HOST.supports(leaky_relu().nodes[0])


def test_all_rules_that_refuse_a_node_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "aten.leaky_relu.default"
    monkeypatch.setitem(RULES, name, ())
    for reason in ("it rains", "it is late"):
        npu_cuda.lowering_rule(name, "LeakyRelu", condition=lambda node, reason=reason: reason)

    assert HOST.supports(leaky_relu().nodes[0]) == "it is late; it rains"


def test_explain_shows_what_was_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "aten.leaky_relu.default"
    monkeypatch.setitem(RULES, name, RULES[name])
    npu_cuda.lowering_rule(name, "Clamp", condition=lambda node: "it rains")

    with registered(no_call, op="LeakyRelu", supported=lambda call: "it is late"):
        explanation = explain_graph(leaky_relu(), HOST)

    assert explanation.nodes[0].passed_over == (
        "the rule of Clamp: it rains",
        "the kernel test.kernel: it is late",
    )
    assert "the rule of Clamp: it rains" in str(explanation)


def no_call(call: npu_cuda.KernelCall) -> None:
    raise AssertionError(call)


def leaky_relu() -> Graph:
    return parse_ir(
        "graph g {\ninput %a: f32[3]\n%y: f32[3] = aten.leaky_relu.default(self=%a)\nreturn %y\n}"
    )


def test_every_op_of_the_table_is_named() -> None:
    variants = {"Cast", "SgdStepLr", "SgdMomentumStepLr", "AdamStepLr", "AmsgradStepLr"}
    assert {op["name"] for op in npu_cuda.pointwise_ops()} - variants <= {kind.name for kind in OpKind}

"""Each rule of a reduction computes what PyTorch computes, over any axes."""

from typing import Any

import pytest
import torch

from npu_cuda.backend import HostBackend
from npu_cuda.backend.reduction_rules import REDUCTION_RULES, lower_mse_loss
from npu_ir import Graph, parse_ir

HOST = HostBackend()
SHORT = {torch.float32: "f32", torch.float64: "f64", torch.float16: "f16", torch.bfloat16: "bf16"}
NAMES = {**SHORT, torch.int64: "i64", torch.int32: "i32", torch.uint8: "u8", torch.bool: "bool"}


def literal(value: Any) -> Any:
    return NAMES[value] if isinstance(value, torch.dtype) else value


def call_of(name: str, *tensors: torch.Tensor, **arguments: Any) -> tuple[Graph, tuple[torch.Tensor, ...]]:
    _, op, overload = name.split(".")
    result = getattr(getattr(torch.ops.aten, op), overload)(*tensors, **arguments)
    results = result if isinstance(result, tuple) else (result,)
    inputs = [f"input %x{i}: {NAMES[x.dtype]}{list(x.shape)}" for i, x in enumerate(tensors)]
    operands = ", ".join(f"{key}=%x{i}" for i, key in enumerate(("self", "target")[: len(tensors)]))
    attrs = ", ".join(f"{key}={literal(value)}" for key, value in arguments.items())
    outputs = ", ".join(f"%y{i}: {NAMES[y.dtype]}{list(y.shape)}" for i, y in enumerate(results))
    returned = "%y0" if len(results) == 1 else "(%y0, %y1)"
    lines = [*inputs, f"{outputs} = {name}({operands}) {{{attrs}}}", f"return {returned}"]
    return parse_ir("\n".join(["graph g {", *lines, "}"])), results


def run(graph: Graph, *tensors: torch.Tensor) -> list[torch.Tensor]:
    program = HOST.prepare(graph, HOST.lower(graph), torch.device("cpu"))
    return list(HOST.run(program, list(tensors)))


def check(name: str, *tensors: torch.Tensor, **arguments: Any) -> None:
    graph, expected = call_of(name, *tensors, **arguments)
    for actual, wanted in zip(run(graph, *tensors), expected, strict=True):
        torch.testing.assert_close(actual, wanted, rtol=3e-6, atol=3e-6, equal_nan=True)


def arguments_of(name: str) -> list[dict[str, Any]]:
    if name in {"aten.prod.dim_int", "aten.any.dim", "aten.all.dim", "aten.max.dim", "aten.min.dim"}:
        return [{"dim": 1}, {"dim": -1, "keepdim": True}]
    if name == "aten.cumsum.default":
        return [{"dim": 0}, {"dim": -1}]
    if "arg" in name:
        return [{}, {"dim": 0}, {"dim": -1, "keepdim": True}]
    if name.endswith(".default") and not name.startswith(("aten.logsumexp", "aten.amax", "aten.amin")):
        return [{}]
    return [{"dim": [0]}, {"dim": [-1], "keepdim": True}, {"dim": [0, 2]}, {"dim": [0, 1, 2]}]


@pytest.mark.parametrize("name", REDUCTION_RULES)
def test_a_node_gives_what_pytorch_gives(name: str) -> None:
    torch.manual_seed(0)
    for arguments in arguments_of(name):
        check(name, torch.randn((4, 5, 6, 7) if "3d" in name else (4, 19, 33)), **arguments)


@pytest.mark.parametrize("order", [0, 1, 2, 3, 0.5, float("inf"), float("-inf")])
def test_norms_of_any_order(order: float) -> None:
    check("aten.linalg_vector_norm.default", torch.rand(7, 30) + 0.1, ord=order, dim=[1])


@pytest.mark.parametrize("correction", [None, 0, 1, 2.5, 40])
def test_a_variance_divides_by_what_the_correction_leaves(correction: float | None) -> None:
    check("aten.var.correction", torch.randn(5, 33) + 100, dim=[1], correction=correction)


@pytest.mark.parametrize(("name", "dtype", "arguments"), [
    ("aten.sum.default", torch.int32, {}),
    ("aten.sum.default", torch.bool, {}),
    ("aten.sum.default", torch.uint8, {"dtype": torch.float32}),
    ("aten.sum.dim_IntList", torch.float32, {"dim": [0], "dtype": torch.float64}),
    ("aten.sum.dim_IntList", torch.float16, {"dim": [1], "dtype": torch.float32}),
    ("aten.sum.dim_IntList", torch.float32, {"dim": []}),
    ("aten.mean.default", torch.int64, {"dtype": torch.float32}),
    ("aten.mean.dim", torch.float16, {"dim": [0]}),
    ("aten.prod.default", torch.bool, {}),
    ("aten.max.default", torch.int64, {}),
    ("aten.any.default", torch.uint8, {}),
    ("aten.all.default", torch.float32, {}),
    ("aten.cumsum.default", torch.bool, {"dim": 1}),
    ("aten.cumsum.default", torch.float16, {"dim": 0, "dtype": torch.float32}),
    ("aten.argmax.default", torch.bfloat16, {"dim": 1}),
    ("aten.max.dim", torch.uint8, {"dim": 1}),
    ("aten.logsumexp.default", torch.int64, {"dim": [0]}),
])  # fmt: skip
def test_dtypes_are_those_of_pytorch(name: str, dtype: torch.dtype, arguments: dict[str, Any]) -> None:
    check(name, (torch.rand(6, 40) * 9).to(dtype), **arguments)


@pytest.mark.parametrize("reduction", [0, 1, 2])
def test_a_loss_is_reduced(reduction: int) -> None:
    check("aten.mse_loss.default", torch.randn(9, 30), torch.randn(9, 30), reduction=reduction)


@pytest.mark.parametrize("shape", [(), (1,), (0,), (0, 3), (3, 0)])
@pytest.mark.parametrize("name", ["sum", "mean", "any", "var"])
@pytest.mark.filterwarnings("ignore:var():UserWarning")
def test_few_elements_or_none(name: str, shape: tuple[int, ...]) -> None:
    check(f"aten.{name}.default", torch.randn(shape))


@pytest.mark.parametrize(("result", "call", "reason"), [
    ("f16[]", "sum.default(self=%a) {dtype=f16}", "is rounded to torch.float16"),
    ("f16[3]", "cumsum.default(self=%a) {dim=0, dtype=f16}", "is rounded to torch.float16"),
    ("f32[]", "sum.dim_IntList(self=%a) {dim=[1]}", "takes axes of f32[3], not [1]"),
    ("bool[3]", "any.dims(self=%a) {dim=[]}", "reduces one axis or more"),
])  # fmt: skip
def test_what_no_reduction_computes_is_refused(result: str, call: str, reason: str) -> None:
    text = f"graph g {{\ninput %a: f32[3]\n%y: {result} = aten.{call}\nreturn %y\n}}"
    (node,) = parse_ir(text).nodes

    assert reason in str(HOST.supports(node))


@pytest.mark.parametrize(("types", "reduction", "reason"), [
    (("f32[3]", "f32[3]"), 3, "a mean or a sum, not reduction=3"),
    (("f32[3]", "f32[1, 3]"), 1, "that of two tensors of one type"),
])  # fmt: skip
def test_what_is_no_loss_of_two_tensors_is_refused(
    types: tuple[str, str], reduction: int, reason: str
) -> None:
    inputs = [f"input %{name}: {type}" for name, type in zip("ab", types, strict=True)]
    call = f"%y: f32[] = aten.mse_loss.default(self=%a, target=%b) {{reduction={reduction}}}"
    (node,) = parse_ir("\n".join(["graph g {", *inputs, call, "return %y", "}"])).nodes

    assert reason in str(lower_mse_loss(node))

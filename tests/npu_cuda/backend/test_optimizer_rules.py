"""Steps of optimizers, loss scaling, and copies of views in graphs: each gives what PyTorch gives."""

import re
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import npu_passes.ops.training  # noqa: F401 - registers the steps of optimizers
from npu_cuda import _C
from npu_cuda.backend import CudaBackend, HostBackend
from npu_ir import Graph, OpNode, parse_ir
from npu_ir.capture.graph_module import convert_graph_module

aten, npu = torch.ops.aten, torch.ops.npu
BACKENDS = [HostBackend(), *([] if _C.build_info()["mode"] == "OFF" else [CudaBackend()])]
SHAPES = ((3,), (), (4, 5), (0, 2), (300, 7))
Tensors = list[torch.Tensor]


def flat(result: Any) -> Tensors:
    if isinstance(result, torch.Tensor):
        return [result]
    return [x for each in result if each is not None for x in flat(each)]


def graph_of(function: Callable[..., Any], tensors: Sequence[torch.Tensor]) -> Graph:
    return convert_graph_module(make_fx(lambda *given: flat(function(*given)), pre_dispatch=True)(*tensors))


def assert_like_eager(
    function: Callable[..., Any], tensors: Sequence[torch.Tensor], tolerance: float
) -> Graph:
    wanted = flat(function(*tensors))
    graph = graph_of(function, tensors)
    for backend in BACKENDS:
        for node in graph.nodes:
            assert backend.supports(node) is None, node.op_type
        devices = backend.devices()
        if not devices or devices[0].type == "cuda":
            continue
        results = backend.run(backend.prepare(graph, backend.lower(graph), devices[0]), tensors)
        for result, each in zip(results, wanted, strict=True):
            torch.testing.assert_close(result, each, rtol=tolerance, atol=tolerance)
    return graph


def lists(count: int, dtype: torch.dtype = torch.float32, *, turned: bool = False) -> list[Tensors]:
    torch.manual_seed(0)
    made = [[torch.rand(shape).to(dtype) + 0.1 for shape in SHAPES] for _ in range(count)]
    if turned:  # a gradient often has other strides than its parameter
        made[1][2] = made[1][2].t().contiguous().t()
    return made


def split(tensors: Sequence[torch.Tensor], count: int) -> list[Tensors]:
    return [list(tensors[i * len(SHAPES) : (i + 1) * len(SHAPES)]) for i in range(count)]


STEPS = [torch.tensor(float(i)) for i in range(len(SHAPES))]
ADAM = {"beta1": 0.9, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.0}
SGD = {"momentum": 0.0, "dampening": 0.0, "weight_decay": 0.0, "nesterov": False, "maximize": False}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("amsgrad", "decoupled", "maximize"), [(0, 0, 0), (1, 0, 1), (0, 1, 0), (1, 1, 0)])
@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)])
def test_a_step_of_adam(dtype: torch.dtype, amsgrad: bool, decoupled: bool, maximize: bool, lr: Any) -> None:
    count = 5 if amsgrad else 4
    options = {**ADAM, "weight_decay": 0.1, "amsgrad": bool(amsgrad), "decoupled": bool(decoupled)}

    def step(*tensors: torch.Tensor) -> Any:
        *moments, steps = split(tensors, count + 1)
        largest = moments.pop() if amsgrad else []
        rate = tensors[-1] if isinstance(lr, torch.Tensor) else lr
        return npu.adam_step(*moments, largest, steps, lr=rate, maximize=bool(maximize), **options)

    tensors = [x for each in lists(count, dtype, turned=True) for x in each]
    graph = assert_like_eager(
        step, [*tensors, *STEPS, torch.tensor(0.1)], 1e-5 if dtype is torch.float32 else 1e-6
    )

    ops = BACKENDS[0].lower(graph)
    kinds = ["Copy", "MultiStepInc", "MultiBiasCorr", "MultiAmsgrad" if amsgrad else "MultiAdam"]
    assert sorted(op.kind for op in ops) == sorted(kinds)


@pytest.mark.parametrize("options", [
    {},
    {"weight_decay": 0.5, "maximize": True},
    {"momentum": 0.75, "nesterov": True},
    {"momentum": 0.5, "dampening": 0.25},
])  # fmt: skip
@pytest.mark.parametrize("lr", [0.1, torch.tensor(0.1)])
def test_a_step_of_sgd(options: dict[str, Any], lr: Any) -> None:
    count = 3 if "momentum" in options else 2

    def step(*tensors: torch.Tensor) -> Any:
        columns = split(tensors, count)
        rate = tensors[-1] if isinstance(lr, torch.Tensor) else lr
        return npu.sgd_step(*columns, *([[]] if count == 2 else []), lr=rate, **{**SGD, **options})

    tensors = [x for each in lists(count, turned=True) for x in each]
    assert_like_eager(step, [*tensors, torch.tensor(0.1)], 1e-6)


IN_MEMORY = "lr=%lr, momentum=%m, dampening=%d, weight_decay=%w"


def step_in_memory(dtype: str, number: str = "f64[]") -> OpNode:
    return node_of(
        f"input %a: {dtype}[3]", f"input %b: {dtype}[3]", f"input %c: {dtype}[3]",
        f"input %lr: {number}", "input %m: f64[]", "input %d: f64[]", "input %w: f64[]",
        f"%x: {dtype}[3], %y: {dtype}[3] = npu.sgd_step.tensor_numbers(params=[%a], grads=[%b], "
        f"momentum_buffers=[%c], {IN_MEMORY}) {{nesterov=False, maximize=False}}",
    )  # fmt: skip


def test_numbers_of_a_step_in_memory_are_read_by_the_host() -> None:
    host = BACKENDS[0]
    assert host.supports(step_in_memory("f32")) is None

    assert host.supports(step_in_memory("f64")) == "numbers in memory are stored in float32"
    refusal = host.supports(step_in_memory("f32", "i64[]")) or ""
    assert "lr is int64[], not one number of 32 or 64 bits" in refusal
    for backend in BACKENDS[1:]:
        refusal = backend.supports(step_in_memory("f32")) or ""
        assert "its numbers in memory are read on the host alone" in refusal


@pytest.mark.parametrize("op", [aten._fused_adam, aten._fused_adamw])
@pytest.mark.parametrize("amsgrad", [False, True])
def test_a_fused_step_of_adam_of_pytorch(op: Any, amsgrad: bool) -> None:
    count = 5 if amsgrad else 4

    def step(*tensors: torch.Tensor) -> Any:
        *moments, steps = split(tensors, count + 1)
        largest = moments.pop() if amsgrad else []
        return op(*moments, largest, steps, lr=0.1, amsgrad=amsgrad, maximize=False, **ADAM)

    tensors = [x for each in lists(count) for x in each]
    assert_like_eager(step, [*tensors, *[x + 1 for x in STEPS]], 1e-5)


@pytest.mark.parametrize(("momentum", "first"), [(0.0, False), (0.9, False), (0.9, True)])
def test_a_fused_step_of_sgd_of_pytorch(momentum: float, first: bool) -> None:
    count = 3 if momentum else 2

    def step(*tensors: torch.Tensor) -> Any:
        columns = split(tensors, count)
        options = {**SGD, "momentum": momentum, "is_first_step": first}
        return aten._fused_sgd(*columns, *([[]] if count == 2 else []), lr=0.1, **options)

    assert_like_eager(step, [x for each in lists(count) for x in each], 1e-6)


@pytest.mark.parametrize("value", [1.0, torch.inf])
def test_loss_scaling(value: float) -> None:
    (grads,) = lists(1)
    grads[2][1, 1] = value

    def unscale(*tensors: torch.Tensor) -> Any:
        *scaled, found, inverse = tensors
        return aten._amp_foreach_non_finite_check_and_unscale(scaled, found, inverse)

    def update(scale: torch.Tensor, growth: torch.Tensor, found: torch.Tensor) -> Any:
        return aten._amp_update_scale(scale, growth, found, 2.0, 0.5, 3)

    assert_like_eager(unscale, [*grads, torch.zeros(1), torch.tensor(0.25)], 0)
    for growth in (1, 2):
        found = torch.tensor(float(value != 1))
        assert_like_eager(update, [torch.tensor(8.0), torch.tensor(growth, dtype=torch.int32), found], 0)


def test_the_gradient_of_dropout() -> None:
    grad, mask = torch.randn(5, 7), torch.rand(5, 7) > 0.5

    assert_like_eager(lambda dy, kept: aten.native_dropout_backward(dy, kept, 2.0), [grad, mask], 0)


X = torch.randn(4, 6, 5)


@pytest.mark.parametrize("function", [
    lambda x: aten._unsafe_view(x, [24, 5]),
    lambda x: aten.alias_copy(x),
    lambda x: aten.detach_copy(x),
    lambda x: aten.diagonal_copy(x, 1, 0, 2),
    lambda x: aten.expand_copy(x, [2, 4, 6, 5]),
    lambda x: aten.narrow_copy(x, 1, 2, 3),
    lambda x: aten.permute_copy(x, [2, 0, 1]),
    lambda x: aten.select_copy.int(x, 1, -2),
    lambda x: aten.split_copy.Tensor(x, 4, 1),
    lambda x: aten.split_with_sizes_copy(x, [1, 3, 2], 1),
    lambda x: aten.squeeze_copy.dim(x[:1], 0),
    lambda x: aten.t_copy(x[0]),
    lambda x: aten.transpose_copy.int(x, 0, 1),
    lambda x: aten.unbind_copy.int(x, 2),
    lambda x: aten.unsqueeze_copy(x, 1),
    lambda x: aten.view_copy(x, [-1, 10]),
])  # fmt: skip
@pytest.mark.parametrize("dtype", [torch.float32, torch.int64, torch.bool])
def test_a_copy_of_a_view(function: Callable[[torch.Tensor], Any], dtype: torch.dtype) -> None:
    assert_like_eager(function, [X.to(dtype)], 0)


def node_of(*lines: str) -> OpNode:
    (node,) = parse_ir("\n".join(["graph g {", *lines, "return %y", "}"])).nodes
    return node


@pytest.mark.parametrize("op", ["_softmax", "_log_softmax"])
def test_softmax_of_half_is_rounded_to_float(op: str) -> None:
    node = node_of(
        "input %a: f16[3, 9]", f"%y: f32[3, 9] = aten.{op}.default(self=%a) {{dim=1, half_to_float=True}}"
    )
    x, host = torch.randn(3, 9).half(), BACKENDS[0]
    assert node.graph is not None

    (result,) = host.run(host.prepare(node.graph, host.lower(node.graph), torch.device("cpu")), [x])

    wanted = getattr(aten, op)(x.float(), 1, False)
    torch.testing.assert_close(result, wanted, rtol=1e-5, atol=1e-5)


SGD_TEXT = "momentum=0.0, dampening=0.0, weight_decay=0.0, nesterov=False, maximize=False"


@pytest.mark.parametrize(("types", "numbers", "reason"), [
    ("f32 f16", "lr=0.5", "a step takes tensors of one dtype, not torch.float16, torch.float32"),
    ("f64 f64", "lr=0.1", "lr=0.1 is stored in float32"),
    ("i64 i64", "lr=0.5", "MultiSgd: .*place 0 of the lists: SgdStep has no result of int64"),
])  # fmt: skip
def test_a_step_is_refused_with_the_reason(types: str, numbers: str, reason: str) -> None:
    param, grad = types.split()
    node = node_of(
        f"input %a: {param}[3]",
        f"input %b: {grad}[3]",
        f"%y: {param}[3] = npu.sgd_step.default(params=[%a], grads=[%b], momentum_buffers=[]) "
        f"{{{numbers}, {SGD_TEXT}}}",
    )

    assert re.search(reason, BACKENDS[0].supports(node) or "")

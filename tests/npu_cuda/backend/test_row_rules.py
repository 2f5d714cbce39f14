"""Each rule of softmax, norms and losses computes what PyTorch computes, and refuses what it cannot."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import npu_passes.ops.fused  # noqa: F401 - registers the fused ops
from npu_cuda import _C
from npu_cuda.backend import HostBackend
from npu_ir import Graph, parse_ir
from npu_ir.capture.graph_module import convert_graph_module
from npu_ir.errors import BackendError

HOST = HostBackend()
aten, npu = torch.ops.aten, torch.ops.npu
TOLERANCE = {torch.float32: 2e-5, torch.float64: 1e-12, torch.float16: 4e-3, torch.bfloat16: 3e-2}

X, DY = torch.randn(4, 6, 5), torch.randn(4, 6, 5)
GAMMA, BETA, CHANNELS = torch.randn(5), torch.randn(5), torch.randn(6)
MEAN = X.mean(2, keepdim=True)
RSTD = torch.rsqrt(X.var(2, keepdim=True, correction=0) + 1e-5)
GROUP_MEAN, GROUP_RSTD = torch.randn(4, 3), torch.rand(4, 3)
LOGITS = torch.randn(7, 9)
TARGETS = torch.tensor([1, 0, 8, 3, 3, 5, 2])
WEIGHTS, SLOPES = torch.rand(9), torch.randn(7)
# PyTorch rounds their sums after each term where the dtype is short.
ROUNDED = (aten.nll_loss_forward, aten.cross_entropy_loss, npu.cross_entropy_with_grad)
MASKS = [[True, True, True], [True, False, False], [False, True, True], [True, True, False]]

CALLS: list[tuple[Any, Sequence[Any]]] = [
    *((op, (X, dim, False)) for op in (aten._softmax, aten._log_softmax) for dim in (0, 1, -1)),
    *((op, (X, 1)) for op in (aten.softmax.int, aten.log_softmax.int)),
    (aten.softmax.int, (X.half(), 1, torch.float32)),
    (aten._softmax_backward_data, (DY, X.softmax(1), 1, torch.float32)),
    (aten._log_softmax_backward_data, (DY, X.log_softmax(0), 0, torch.float32)),
    *(
        (aten.native_layer_norm, (X, [5], *affine, 1e-5))
        for affine in ((GAMMA, BETA), (GAMMA, None), (None, None))
    ),
    (aten.native_layer_norm, (X, [6, 5], None, None, 1e-3)),
    (aten.layer_norm, (X, [5], GAMMA, BETA, 0.1)),
    *((aten.native_layer_norm_backward, (DY, X, [5], MEAN, RSTD, GAMMA, BETA, mask)) for mask in MASKS),
    (aten.native_layer_norm_backward, (DY, X, [5], MEAN, RSTD, None, None, [True, False, False])),
    (aten.rms_norm, (X, [5], GAMMA)),
    (aten.rms_norm, (X, [6, 5], None, 0.1)),
    *(
        (aten.native_group_norm, (X, *affine, 4, 6, 5, 3, 1e-5))
        for affine in ((CHANNELS, CHANNELS), (None, None))
    ),
    (aten.group_norm, (X, 2, CHANNELS, CHANNELS)),
    *(
        (aten.native_group_norm_backward, (DY, X, GROUP_MEAN, GROUP_RSTD, CHANNELS, 4, 6, 5, 3, mask))
        for mask in MASKS
    ),
    *(
        (aten.nll_loss_forward, (LOGITS, TARGETS, weight, reduction, 3))
        for weight in (None, WEIGHTS)
        for reduction in (0, 1, 2)
    ),
    (aten.nll_loss_forward, (LOGITS[0], TARGETS[0], None, 1, -100)),
    *(
        (aten.nll_loss_backward, (slope, LOGITS, TARGETS, weight, reduction, 3, SLOPES[1]))
        for weight in (None, WEIGHTS)
        for reduction, slope in ((0, SLOPES), (1, SLOPES[0]), (2, SLOPES[0]))
    ),
    (aten.cross_entropy_loss, (LOGITS, TARGETS)),
    (aten.cross_entropy_loss, (LOGITS, TARGETS, WEIGHTS, 2, 3)),
    (npu.add_layer_norm, (X, DY, [5], GAMMA, BETA, 1e-5)),
    (npu.add_rms_norm, (X, DY, [5], GAMMA, None)),
    (npu.cross_entropy_with_grad, (LOGITS, TARGETS, 1, 3, 0.5)),
]  # fmt: skip


def present(result: Any) -> list[torch.Tensor]:
    results = result if isinstance(result, (tuple, list)) else [result]
    return [each for each in results if each is not None]


def graph_of(op: Any, arguments: Sequence[Any]) -> tuple[Graph, list[torch.Tensor]]:
    tensors = [each for each in arguments if isinstance(each, torch.Tensor)]

    def function(*inputs: torch.Tensor) -> list[torch.Tensor]:
        left = iter(inputs)
        return present(op(*(next(left) if isinstance(each, torch.Tensor) else each for each in arguments)))

    return convert_graph_module(make_fx(function, pre_dispatch=True)(*tensors)), tensors


def run(graph: Graph, inputs: Sequence[torch.Tensor]) -> Sequence[torch.Tensor]:
    for node in graph.nodes:
        assert HOST.supports(node) is None, node.op_type
    return HOST.run(HOST.prepare(graph, HOST.lower(graph), torch.device("cpu")), inputs)


def cast(each: Any, dtype: torch.dtype) -> Any:
    is_float = isinstance(each, torch.Tensor) and each.is_floating_point()
    return each.to(dtype) if is_float else dtype if each is torch.float32 else each


def assert_like_eager(op: Any, arguments: Sequence[Any], tolerance: float) -> None:
    expected = present(op(*arguments))
    graph, tensors = graph_of(op, arguments)

    results = run(graph, tensors)

    assert len(results) == len(expected)
    for result, wanted in zip(results, expected, strict=True):
        torch.testing.assert_close(result, wanted, rtol=tolerance, atol=tolerance, equal_nan=True)


@pytest.mark.parametrize(("op", "arguments"), CALLS)
def test_a_node_gives_what_pytorch_gives(op: Any, arguments: Sequence[Any]) -> None:
    assert_like_eager(op, arguments, 2e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(
    ("op", "arguments"), [call for call in CALLS if "backward" not in str(call[0]) and call[0] not in ROUNDED]
)
def test_a_node_of_another_dtype_gives_what_pytorch_gives(
    op: Any, arguments: Sequence[Any], dtype: torch.dtype
) -> None:
    changed = [cast(each, dtype) for each in arguments]
    assert_like_eager(op, changed, TOLERANCE[dtype])


@pytest.mark.parametrize("row", [
    [float("-inf")] * 5,
    [float("nan"), 1, 2, 3, 4],
    [float("inf"), 1, 2, 3, 4],
    [float("-inf"), 1, 2, 3, 4],
    [1e38, -1e38, 0, 0, 3e38],
])  # fmt: skip
@pytest.mark.parametrize("op", [aten._softmax, aten._log_softmax])
def test_rows_of_special_values_are_those_of_pytorch(op: Any, row: list[float]) -> None:
    assert_like_eager(op, (torch.tensor([row, row]), 1, False), 1e-6)


@pytest.mark.parametrize("width", [1, 7, 64, 1000, 4097, 100_000])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_rows_have_any_width(width: int, dtype: torch.dtype) -> None:
    x = torch.randn(3, width).to(dtype)
    gamma = torch.randn(width).to(dtype)
    tolerance = TOLERANCE[dtype]

    assert_like_eager(aten._softmax, (x, 1, False), tolerance)
    assert_like_eager(aten.native_layer_norm, (x, [width], gamma, gamma, 1e-5), tolerance)


def test_the_variance_of_numbers_far_from_0_keeps_its_digits() -> None:
    x = torch.randn(4, 300) + 1e4

    (result, _, _) = run(*graph_of(aten.native_layer_norm, (x, [300], None, None, 1e-5)))

    exact = torch.nn.functional.layer_norm(x.double(), (300,))
    torch.testing.assert_close(result.double(), exact, rtol=1e-3, atol=2e-3)


def test_threads_do_not_change_a_bit_of_the_sums_over_rows() -> None:
    x, dy = torch.randn(3000, 40), torch.randn(3000, 40)
    mean, rstd = x.mean(1, keepdim=True), torch.rand(3000, 1)
    graph, tensors = graph_of(
        aten.native_layer_norm_backward, (dy, x, [40], mean, rstd, x[0], x[1], [True] * 3)
    )
    before = _C.thread_count()
    results = []
    try:
        for count in (1, 2, 5):
            _C.set_thread_count(count)
            results.append([each.clone() for each in run(graph, tensors)])
    finally:
        _C.set_thread_count(before)

    for others in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], others, strict=True))


@pytest.mark.parametrize("target", [9, -1])
def test_a_class_that_is_not_there_is_an_error(target: int) -> None:
    graph, _ = graph_of(aten.nll_loss_forward, (LOGITS, TARGETS, None, 1, -100))
    wrong = TARGETS.clone()
    wrong[3] = target

    with pytest.raises(BackendError, match=f"target {target} of row 3 is not one of 9 classes"):
        run(graph, [LOGITS, wrong])


@pytest.mark.parametrize(("inputs", "call", "reason"), [
    ("%x: f32[3]", "f16[3] = aten.softmax.int(self=%x) {dim=0, dtype=f16}", "torch.float32 to torch.float16"),
    ("%x: f64[3]", "f32[3] = aten.softmax.int(self=%x) {dim=0, dtype=f32}", "torch.float64 to torch.float32"),
    (
        "%x: f32[3]\ninput %y: f32[3]",
        (
            "f16[3] = aten._softmax_backward_data.default(grad_output=%x, output=%y) "
            "{dim=0, input_dtype=f16}"
        ),
        "SoftmaxBwd has tensors of one dtype",
    ),
    ("%x: f32[2, 3]\ninput %b: f32[3]",
        "f32[2, 3] = aten.layer_norm.default(input=%x, bias=%b) {normalized_shape=[3]}",
        "no native op has a bias without a weight"),
    ("%x: f32[2, 3]\ninput %t: i64[2]",
        "f32[] = aten.cross_entropy_loss.default(self=%x, target=%t) {label_smoothing=0.5}",
        "cross-entropy has no label_smoothing=0.5"),
    ("%x: f32[2, 3]\ninput %t: f32[2, 3]", "f32[] = aten.cross_entropy_loss.default(self=%x, target=%t)",
        "cross-entropy takes rows of logits and classes"),
    (
        "%x: f32[2, 3]\ninput %r: f64[2, 3]",
        (
            "f64[2, 3], %s: f64[2, 3] = npu.add_rms_norm.default(input=%x, residual=%r) "
            "{normalized_shape=[3], eps=0.1}"
        ),
        "adds tensors of one dtype",
    ),
])  # fmt: skip
def test_what_pytorch_computes_otherwise_is_refused(inputs: str, call: str, reason: str) -> None:
    (node,) = parse_ir(f"graph g {{\ninput {inputs}\n%z: {call}\nreturn %z\n}}").nodes

    answer = HOST.supports(node)

    assert answer is not None
    assert reason in answer

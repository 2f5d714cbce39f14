"""The stream of launches, and their dependencies."""

from collections.abc import Callable

import pytest
import torch

import npu_cuda
from npu_cuda import OpKind
from tests.npu_cuda.gpu.steps import relu_program

pytestmark = pytest.mark.gpu

LONG = 200_000_000  # cycles, about a tenth of a second
Pair = tuple[torch.Tensor, torch.Tensor]


@pytest.fixture
def tensors() -> Pair:
    return torch.zeros(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")


def relu_by_call(x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    return lambda: npu_cuda.op_call(OpKind.EltwiseRelu, [x], [y])


def relu_by_graph_of_calls(x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    npu_cuda.op_call(OpKind.EltwiseRelu, [x], [y])
    stream = npu_cuda.graph_begin("cuda")
    npu_cuda.op_call(OpKind.EltwiseRelu, [x], [y], stream_handle=stream)
    return npu_cuda.graph_end().launch


def relu_by_graph_of_program(x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    return relu_program(x, y).capture().launch


@pytest.mark.parametrize("on_side_stream", [False, True])
@pytest.mark.parametrize("prepare", [relu_by_call, relu_by_graph_of_calls, relu_by_graph_of_program])
def test_launches_are_ordered_with_what_torch_does_on_its_current_stream(
    tensors: Pair, prepare: Callable[..., Callable[[], object]], on_side_stream: bool
) -> None:
    x, y = tensors
    launch = prepare(x, y)
    torch.cuda.synchronize()
    stream = torch.cuda.Stream() if on_side_stream else torch.cuda.default_stream()

    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        x.fill_(8)
        launch()
        after = y.clone()
    stream.synchronize()

    assert torch.equal(after, torch.full_like(y, 8))


def test_a_graph_does_not_wait_for_other_streams(tensors: Pair) -> None:
    x, y = tensors
    graph = relu_program(x.fill_(2), y).capture()
    torch.cuda.synchronize()
    busy, free = torch.cuda.Stream(), torch.cuda.Stream()

    with torch.cuda.stream(busy):
        torch.cuda._sleep(10 * LONG)
    with torch.cuda.stream(free):
        graph.launch()
        first = float(y[0])

    assert first == 2.0
    assert not busy.query()


def test_a_handle_says_which_stream(tensors: Pair) -> None:
    x, y = tensors
    graph = relu_program(x, y).capture()
    stream = torch.cuda.Stream()
    torch.cuda.synchronize()

    with torch.cuda.stream(stream):
        torch.cuda._sleep(LONG)
        x.fill_(5)
    graph.launch(1, stream.cuda_stream)
    stream.synchronize()

    assert torch.equal(y, torch.full_like(y, 5))


def test_torch_and_npu_cuda_share_a_stream_of_npu_cuda(tensors: Pair) -> None:
    x, y = tensors
    torch.cuda.synchronize()
    handle = npu_cuda.create_stream("cuda")

    with torch.cuda.stream(torch.cuda.ExternalStream(handle)):
        torch.cuda._sleep(LONG)
        x.fill_(6)
        npu_cuda.op_call(OpKind.EltwiseRelu, [x], [y])
        y.add_(1)
    npu_cuda.synchronize("cuda", handle)
    npu_cuda.destroy_stream("cuda", handle)

    assert torch.equal(y, torch.full_like(y, 7))


class WithoutTable(torch.Tensor):
    """As tensors of versions of PyTorch that have only ``__dlpack__``."""

    __dlpack_c_exchange_api__ = None


@pytest.mark.parametrize("in_graph", [False, True])
def test_tensors_without_a_table_are_used_on_the_current_stream(tensors: Pair, in_graph: bool) -> None:
    x, y = tensors
    old = [tensor.as_subclass(WithoutTable) for tensor in tensors]
    npu_cuda.op_call(OpKind.EltwiseRelu, old[:1], old[1:])
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()

    with torch.cuda.graph(graph) if in_graph else torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda._sleep(LONG)
        x.fill_(3)
        npu_cuda.op_call(OpKind.EltwiseRelu, old[:1], old[1:])
        y.add_(1)
    if in_graph:
        graph.replay()
    torch.cuda.synchronize()

    assert torch.equal(y, torch.full_like(y, 4))

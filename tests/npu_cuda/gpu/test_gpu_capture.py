"""Captures beside PyTorch: what disturbs them, what they record, and what is left after one that failed."""

import threading
from collections.abc import Callable

import pytest
import torch

import npu_cuda
from npu_cuda import OpKind
from tests.npu_cuda.gpu.steps import branches_program, relu_program

pytestmark = pytest.mark.gpu


def pair(size: int = 1 << 16) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randn(size, device="cuda"), torch.zeros(size, device="cuda")


def captured_beside(mode: str, work: Callable[[], object]) -> npu_cuda.Graph:
    """Capture one op, while another thread does something."""
    x, y = pair()
    npu_cuda.op_call(OpKind.EltwiseRelu, [x], [y])  # the code of the kernel is loaded
    torch.cuda.synchronize()
    stream = npu_cuda.graph_begin("cuda", mode)
    try:
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        npu_cuda.op_call(OpKind.EltwiseRelu, [x], [y], stream_handle=stream)
        return npu_cuda.graph_end()
    except BaseException:
        npu_cuda.graph_abort()
        raise


def allocate_by_cuda() -> None:
    torch.cuda.empty_cache()
    torch.empty(1 << 28, dtype=torch.uint8, device="cuda")


def expect_that_capture_works() -> None:
    x, y = pair()
    graph = relu_program(x, y).capture()
    graph.launch()
    assert torch.equal(y, torch.relu(x))


def test_chain_and_dag_give_the_same() -> None:
    x = torch.randn(1 << 18, device="cuda")
    results = []
    for topology in ("chain", "dag"):
        outputs = [torch.empty_like(x) for _ in range(8)]
        total = torch.empty_like(x)
        branches_program(x, outputs, total).capture(topology=topology).launch(3)
        results.append(total)

    assert torch.equal(*results)
    torch.testing.assert_close(results[0], 8 * (torch.relu(x) + x))


def test_other_threads_may_allocate_in_mode_thread_local() -> None:
    graph = captured_beside("thread_local", allocate_by_cuda)
    graph.launch()

    assert len(graph.nodes) > 0


def test_other_threads_may_not_allocate_in_mode_global() -> None:
    def allocate() -> None:
        with pytest.raises(RuntimeError, match="(?i)captur"):  # of PyTorch; its text depends on its version
            allocate_by_cuda()

    with pytest.raises(npu_cuda.InvalidArgumentError, match="cudaErrorStreamCapture"):
        captured_beside("global", allocate)
    expect_that_capture_works()


def test_waiting_for_the_device_in_another_thread(answer: Callable[[str], None]) -> None:
    """What the documentation of CUDA leaves open: whether that ends a capture in mode thread_local."""

    def wait() -> None:
        try:
            torch.cuda.synchronize()
        except RuntimeError as error:
            answer(
                "waiting for the device during a capture of another thread fails there: "
                f"{str(error).splitlines()[0]}"
            )

    try:
        captured_beside("thread_local", wait)
        answer("waiting for the device in another thread does not end a capture")
    except npu_cuda.InvalidArgumentError as error:
        answer(f"waiting for the device in another thread ends a capture: {error}")
    expect_that_capture_works()


def test_our_allocator_refuses_in_a_capture_which_goes_on() -> None:
    x, y = pair()
    stream = npu_cuda.graph_begin("cuda")
    with pytest.raises(npu_cuda.InvalidArgumentError, match="while this thread captures a graph"):
        npu_cuda.empty([16], device="cuda")
    npu_cuda.op_call(OpKind.EltwiseRelu, [x], [y], stream_handle=stream)
    graph = npu_cuda.graph_end()
    graph.launch()

    assert torch.equal(y, torch.relu(x))


def test_op_calls_and_programs_become_part_of_a_graph_of_torch_and_graphs_do_not() -> None:
    (x, y), (z, w) = pair(), pair()
    program, inner = relu_program(z, w, ops=3), relu_program(x, y).capture()
    npu_cuda.op_call(OpKind.EltwiseRelu, [x], [y])
    program.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x.mul_(-1)
        npu_cuda.op_call(OpKind.EltwiseRelu, [x], [y])
        y.add_(1)
        program.run()
        with pytest.raises(
            npu_cuda.InvalidArgumentError, match="a graph does not become part of another one"
        ):
            inner.launch()
    expected = torch.relu(-x) + 1
    z.fill_(9)

    graph.replay()

    assert torch.equal(y, expected)
    assert torch.equal(w, torch.full_like(w, 9))


def test_an_allocation_of_torch_that_reaches_the_driver_breaks_the_capture_until_it_is_aborted() -> None:
    x, y = pair()
    torch.cuda.empty_cache()
    stream = npu_cuda.graph_begin("cuda")
    with pytest.raises(RuntimeError, match="(?i)captur"):  # of PyTorch; its text depends on its version
        torch.empty(1 << 28, dtype=torch.uint8, device="cuda")
    with pytest.raises(npu_cuda.InvalidArgumentError, match="cudaErrorStreamCapture"):
        npu_cuda.op_call(OpKind.EltwiseRelu, [x], [y], stream_handle=stream)
    npu_cuda.graph_abort()

    assert float(torch.ones(1 << 20, device="cuda").sum()) == 1 << 20
    assert not y.any()
    expect_that_capture_works()

"""What is kept while launches on other streams, and graphs of PyTorch, use it."""

import gc
import struct
import threading

import pytest
import torch

import npu_cuda
from npu_cuda import OpKind, TensorSpec
from tests.npu_cuda.gpu.steps import relu_program

pytestmark = pytest.mark.gpu
SIZE = 1 << 22


def test_own_tensors_are_read_after_launches_on_the_current_stream_of_torch() -> None:
    x, y = torch.full((SIZE,), 3.0, device="cuda"), npu_cuda.empty([SIZE], device="cuda:0")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        npu_cuda.op_call(OpKind.EltwiseRelu, [x], [y])

    assert torch.from_dlpack(y)[-1].item() == 3.0
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        npu_cuda.op_call(OpKind.EltwiseAdd, [x, x], [y])
    assert struct.unpack("<f", y.to_bytes()[-4:]) == (6.0,)


def test_memory_of_a_program_is_not_reused_before_its_launches_on_another_stream_have_passed() -> None:
    spec = TensorSpec("float32", [SIZE])
    program = npu_cuda.Program("cuda")
    slots = [program.slot(spec, external=external) for external in (True, False, True)]
    program.add(OpKind.EltwiseRelu, [slots[0]], [slots[1]])
    program.add(OpKind.EltwiseRelu, [slots[1]], [slots[2]])
    program.finalize(lambda size: torch.empty(size, dtype=torch.uint8, device="cuda"))
    x, y = torch.full((SIZE,), 3.0, device="cuda"), torch.zeros(SIZE, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(100_000_000)
        program.call([x, y], side.cuda_stream)
    del program, x
    gc.collect()

    for _ in range(4):
        torch.full((SIZE,), -9.0, device="cuda")

    torch.cuda.synchronize()
    assert y.eq(3.0).all()


def test_a_graph_of_torch_keeps_the_memory_of_a_program() -> None:
    x, y = torch.randn(SIZE, device="cuda"), torch.zeros(SIZE, device="cuda")
    program = relu_program(x, y, ops=3)
    program.run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program.run()
    del program
    gc.collect()
    taken = [npu_cuda.empty([SIZE], device="cuda:0") for _ in range(4)]
    for tensor in taken:
        tensor.copy_from(bytes(tensor.nbytes))

    graph.replay()

    torch.cuda.synchronize()
    assert torch.equal(y, torch.relu(x))


def test_a_capture_that_another_thread_aborts_is_over() -> None:
    npu_cuda.graph_begin("cuda")
    thread = threading.Thread(target=npu_cuda.graph_abort)
    thread.start()
    thread.join()

    npu_cuda.empty([16], device="cuda:0")

    assert torch.empty(1 << 28, dtype=torch.uint8, device="cuda").numel() == 1 << 28

"""Questions that only a GPU can answer, one per test."""

from collections.abc import Callable

import pytest
import torch

import npu_cuda
from npu_cuda import OpKind, Program
from tests.npu_cuda.gpu.steps import bound, spec_of
from tests.support.cuda.programs import registered
from tests.support.processes import run_python

pytestmark = pytest.mark.gpu


def test_the_build_is_for_this_gpu(answer: Callable[[str], None]) -> None:
    answer(
        f"{npu_cuda.build_info()}\n{npu_cuda.devices()}\ntorch {torch.__version__}, CUDA {torch.version.cuda}"
    )
    major, minor = torch.cuda.get_device_capability()
    gpu = next(device for device in npu_cuda.devices() if device["name"] == "cuda:0")

    assert gpu["compute_capability"] == 10 * major + minor
    assert npu_cuda.cuda_absence() == ""


def test_torch_exports_its_tensors_streams_and_allocator(answer: Callable[[str], None]) -> None:
    has = hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
    answer(f"torch {torch.__version__}: __dlpack_c_exchange_api__ {'is there' if has else 'is missing'}")
    x = torch.randn(100, device="cuda")

    npu_cuda.op_call(OpKind.EltwiseRelu, [x], [x])

    assert bool((x >= 0).all())


def test_two_cuda_runtimes_share_a_process(answer: Callable[[str], None]) -> None:
    x = torch.randn(1 << 10, device="cuda")
    ours = npu_cuda.empty([1 << 10], device="cuda")
    npu_cuda.op_call(OpKind.Copy, [x], [ours])
    theirs = torch.from_dlpack(ours)
    theirs.mul_(2)
    answer(
        f"torch's view of our memory is on {theirs.device}; its current device is "
        f"{torch.cuda.current_device()}"
    )

    assert torch.equal(theirs, 2 * x)


def test_an_error_of_ours_is_not_one_of_torch() -> None:
    with pytest.raises(npu_cuda.DeviceError, match="cudaErrorMemoryAllocation \\(2\\)"):
        npu_cuda.empty([1 << 50], dtype="uint8", device="cuda")

    assert float(torch.ones(10, device="cuda").sum()) == 10


def test_a_kernel_is_loaded_before_its_first_capture(answer: Callable[[str], None]) -> None:
    """In a process of its own, where no kernel ran: in mode global, loading would break the capture."""
    script = """
import torch, npu_cuda
from tests.npu_cuda.gpu.steps import step_program
state, data = torch.randn(32, 32, device="cuda"), torch.randn(32, 32, device="cuda")
step_program(state, data).capture(mode="global").launch()
torch.cuda.synchronize()
print("captured before any kernel ran")
"""
    done = run_python(script)
    answer(done.stdout.strip())

    assert done.returncode == 0, done.stderr


def test_an_op_of_several_kernels_is_followed_at_its_last() -> None:
    """A Python kernel launches three kernels of PyTorch in a DAG; each must come in order."""

    def three(call: npu_cuda.KernelCall) -> None:
        x, y = (torch.from_dlpack(tensor) for tensor in (call.inputs[0], call.outputs[0]))
        with call.torch_stream():
            torch.mul(x, 2, out=y)
            y.add_(1)
            y.clamp_(min=0)

    with registered(three, device="cuda", priority=1000):
        x, y, z = (torch.randn(1 << 22, device="cuda") for _ in range(3))
        program = Program("cuda")
        slots = [program.slot(spec_of(tensor)) for tensor in (x, y, z)]
        program.add(OpKind.EltwiseRelu, slots[:1], slots[1:2])
        program.add(OpKind.EltwiseAdd, [slots[1], slots[1]], slots[2:])
        bound(program, x, y, z).run()  # the kernels of PyTorch are loaded
        graph = program.capture(topology="dag")
        x.normal_()
        for _ in range(20):
            graph.launch()

    torch.testing.assert_close(z, 2 * torch.clamp(2 * x + 1, min=0))

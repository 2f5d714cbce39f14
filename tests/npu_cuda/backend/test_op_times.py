"""The backend `host` tells the time of each op of a program."""

import threading

import pytest
import torch
from torch import Tensor, nn

import npu_cuda
from npu_ir import extract_ir
from npu_runtime import IRExecutor
from npu_runtime.diagnostics.profile import profile


class Net(nn.Module):
    """A view, a product with a step behind it, and a row op."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm = nn.Linear(32, 64), nn.LayerNorm(64)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(torch.relu(self.layer(x.flatten(1))))


X = torch.randn(16, 4, 8)


@pytest.fixture
def executor() -> IRExecutor:
    model = Net().eval()
    return IRExecutor(extract_ir(model, (X,)), model.state_dict(), backend="host", passes="default")


def test_every_op_but_views_takes_time(executor: IRExecutor) -> None:
    (instruction,) = executor.instructions
    call = instruction.partition
    assert call is not None
    (lowered,) = executor.lowered.partitions
    context = call.backend.timed_ops(call.program)
    assert context is not None

    with context as seconds:
        executor(X)

    assert [(op.kind, time > 0) for op, time in zip(lowered.ops, seconds, strict=True)] == [
        (op.kind, op.kind != "View") for op in lowered.ops
    ]
    assert 0 < sum(seconds) < 1


def test_profiles_name_the_kernels(executor: IRExecutor) -> None:
    measured = profile(executor, (X,), repeat=3)

    assert {step.backend for step in measured.steps} == {"host"}
    assert [step.kernel for step in measured.steps][-1].startswith("layer_norm.")
    assert sum(step.flops or 0 for step in measured.steps) == 2 * 16 * 32 * 64


def test_times_are_left_out_where_something_else_ran_meanwhile(executor: IRExecutor) -> None:
    (instruction,) = executor.instructions
    call = instruction.partition
    assert call is not None
    context = call.backend.timed_ops(call.program)
    assert context is not None
    a = torch.randn(4)

    def disturb() -> None:
        npu_cuda.op_call(npu_cuda.OpKind.EltwiseRelu, [a], [torch.empty(4)])

    with context as seconds:
        thread = threading.Thread(target=disturb)
        thread.start()
        thread.join()
        executor(X)

    assert seconds == []

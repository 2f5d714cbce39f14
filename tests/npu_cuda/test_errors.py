"""The errors of npu_cuda: their classes, their statuses, and what goes through unchanged."""

from __future__ import annotations

import pytest
import torch

import npu_cuda
from npu_cuda import Program, Status, TensorSpec
from tests.support.cuda.refusals import refused


def test_each_error_has_its_status() -> None:
    cases = [
        ("InvalidArgumentError", Status.InvalidArgument, (ValueError,)),
        ("NotSupportedError", Status.NotImplemented, (NotImplementedError,)),
        ("InternalError", Status.Internal, ()),
        ("DeviceError", Status.DeviceError, (npu_cuda.InternalError,)),
        ("UnavailableError", Status.Unavailable, ()),
    ]  # fmt: skip
    for name, status, bases in cases:
        error = getattr(npu_cuda, name)

        assert error("x").status is status
        assert issubclass(error, (npu_cuda.NpuCudaError, *bases))
        assert issubclass(error, RuntimeError)


def test_what_an_allocator_raises_goes_through() -> None:
    program = Program()
    spec = TensorSpec("float32", [3])
    x, t, y = program.slot(spec), program.slot(spec, external=False), program.slot(spec)
    program.add(1, [x], [t])
    program.add(1, [t], [y])
    mine = KeyError("mine")

    def allocate(nbytes: int) -> object:
        raise mine

    with pytest.raises(KeyError, match="mine") as raised:
        program.finalize(allocate)
    assert raised.value is mine
    with refused(r"returned float32\[1\], 4 bytes"):
        program.finalize(lambda nbytes: torch.ones(1))
    with pytest.raises(TypeError, match="finalize: alloc must be a function"):
        program.finalize(3)
    program.finalize()


@pytest.mark.skipif(not npu_cuda.cuda_absence(), reason="there is a cuda device")
def test_a_device_that_is_not_here_says_why() -> None:
    with pytest.raises(npu_cuda.UnavailableError, match="device 'cuda' is not here"):
        Program("cuda")

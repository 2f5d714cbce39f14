"""Kernels of other packages in programs and graphs: prepared once, released with the last user."""

from __future__ import annotations

import gc
import struct

import pytest
import torch

import npu_cuda
from npu_cuda import _C
from npu_cuda.errors import DeviceError
from tests.support.cuda.c_structs import KERNEL_LIBRARY, Offer, compile_library

SCALE = "in_programs.scale"


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Offer:
    """Load the library of the tests, which counts."""
    folder = tmp_path_factory.mktemp("counting")
    path = compile_library(KERNEL_LIBRARY, folder / "counting.so", '-DPREFIX="in_programs"', "-DLETTER='I'")
    npu_cuda.load_library(path)
    return Offer(path)


def scale_attrs(alpha: float = 1.0, code: int = 0, silent: int = 0) -> tuple[int, bytes]:
    return int.from_bytes(b"ILSC", "little"), struct.pack("<fii", alpha, code, silent)


def a_program(alpha: float = 3.0) -> _C.Program:
    """Return y = relu(alpha * x), with a temporary between."""
    program = _C.Program("host")
    spec = _C.TensorSpec("float32", [64])
    x, y = program.slot(spec, "x"), program.slot(spec, "y")
    between = program.slot(spec, "between", external=False)
    program.add(_C.kinds()["in_programs.scale"], [x], [between], *scale_attrs(alpha))
    program.add("relu.f32.host", [between], [y])
    program.finalize()
    return program


def test_a_program_prepares_once_and_releases_at_its_end(counting: Offer) -> None:
    x, y = torch.randn(64), torch.empty(64)
    gc.collect()
    prepared, released = counting.count("prepared"), counting.count("released")

    program = a_program()
    for _ in range(5):
        program.call([x, y])

    assert torch.equal(y, (3.0 * x).relu())
    assert program.kernels == ["in_programs.scale.host", "relu.f32.host"]
    assert program.arena_bytes >= 2 * 64 * 4  # the temporary, and the workspace of scale
    assert program.cost() == (64 * 8.0 + 64 * 8.0, 64.0 + 64.0)
    assert (counting.count("prepared"), counting.count("released")) == (prepared + 1, released)
    del program
    gc.collect()
    assert counting.count("released") == released + 1


def test_a_graph_keeps_what_a_kernel_prepared(counting: Offer) -> None:
    x, y = torch.randn(64), torch.empty(64)
    program = a_program(alpha=-1.0)
    program.call([x, y])
    gc.collect()
    released = counting.count("released")

    graph = program.capture()
    del program
    gc.collect()
    x.copy_(torch.randn(64))
    graph.launch(2)

    assert torch.equal(y, (-x).relu())
    assert counting.count("released") == released
    del graph
    gc.collect()
    assert counting.count("released") == released + 1


def test_what_fails_in_a_program_names_its_op(counting: Offer) -> None:
    program = _C.Program("host")
    x = program.slot(_C.TensorSpec("float32", [4]), "x")
    program.add("in_programs.scale.host", [x], [x], *scale_attrs(code=4))
    program.finalize()

    with pytest.raises(DeviceError, match="op 0.*in_programs.scale.*: launch was told to fail"):
        program.call([torch.zeros(4)])


def test_a_python_kernel_in_a_program_raises_through_it() -> None:
    def fail(call: npu_cuda.KernelCall) -> None:
        if torch.from_dlpack(call.inputs[0])[0] < 0:
            raise LookupError("negative")
        torch.from_dlpack(call.outputs[0]).copy_(torch.from_dlpack(call.inputs[0]))

    kernel = npu_cuda.kernel("EltwiseRelu", kernel_id="test.program", device="host", priority=500)(fail)
    program = _C.Program("host")
    x, y = (program.slot(_C.TensorSpec("float32", [2]), name) for name in "xy")
    program.add(_C.OpKind.EltwiseRelu, [x], [y])
    program.finalize()
    kernel.remove()
    good, bad, out = torch.tensor([1.0, -2.0]), torch.tensor([-1.0, 0.0]), torch.empty(2)

    program.call([good, out])
    assert out.tolist() == [1.0, -2.0]
    with pytest.raises(LookupError, match="negative"):
        program.call([bad, out])
    program.call([good, out])
    graph = program.capture()
    graph.launch(3)

    good[0] = -1.0
    with pytest.raises(LookupError, match="negative"):
        graph.launch()

"""Kernels of Python and of libraries in programs and graphs: workspaces, failures, what is prepared."""

from __future__ import annotations

import gc
import json
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

import npu_cuda
from npu_cuda import _C
from npu_cuda._C import OpKind, TensorSpec
from npu_cuda.errors import DeviceError, NotSupportedError
from npu_cuda.extension.python_kernels import KernelCall, kernel
from tests.support.cuda.c_structs import KERNEL_LIBRARY, Offer, compile_library
from tests.support.cuda.programs import refused

VECTOR = TensorSpec("float32", (3,))
KERNEL_ID = "test.relu.python"


@contextmanager
def relu_kernel(**settings: Any) -> Iterator[list[int]]:
    """Register an EltwiseRelu kernel that writes ones; yield the workspace bytes of each launch."""
    launches: list[int] = []

    def launch(call: KernelCall) -> None:
        launches.append(call.workspace.nbytes if call.workspace else 0)
        call.outputs[0].copy_from(np.ones(3, np.float32).tobytes())

    made = kernel("EltwiseRelu", kernel_id=KERNEL_ID, device="host", priority=1000, **settings)(launch)
    try:
        yield launches
    finally:
        made.remove()


def relu_program(deterministic: bool = False) -> tuple[_C.Program, np.ndarray]:
    """Return a program of two ops, bound, and its output."""
    program, y = _C.Program("host", deterministic=deterministic), np.zeros(3, np.float32)
    x, between, out = (program.slot(VECTOR, external=index != 1) for index in range(3))
    program.add(OpKind.EltwiseRelu, [x], [between])
    program.add(OpKind.EltwiseRelu, [between], [out])
    program.finalize()
    program.bind(x, np.full(3, 5, np.float32))
    program.bind(out, y)
    return program, y


def test_a_description_says_why_a_kernel_refused() -> None:
    with relu_kernel(supported=lambda call: 'I am "busy"'):
        program, _ = relu_program()

    facts = json.loads(program.describe("json"))
    assert f'not {KERNEL_ID}: I am "busy"' in program.describe()
    assert {"kernel_id": KERNEL_ID, "reason": 'I am "busy"'} in facts["ops"][0]["refusals"]
    assert program.kernels == ["relu.f32.host"] * 2


def test_a_kernel_that_is_taken_away_stays_in_programs_and_graphs() -> None:
    with relu_kernel() as launches:
        program, y = relu_program()
        graph = program.capture()

    program.run()
    graph.launch(2)

    assert len(launches) == 6
    assert y[0] == 1


def test_workspaces_lie_in_the_arena() -> None:
    with relu_kernel(workspace_bytes=lambda call: 1000) as launches:
        program, y = relu_program()
        program.run()
        program.capture().launch()

    facts = json.loads(program.describe("json"))
    assert launches == [1000] * 4
    assert program.arena_bytes == 256 + 1024
    assert (facts["workspace_bytes"], facts["temporary_bytes"]) == (2000, 2012)
    assert {op["workspace_offset"] for op in facts["ops"]} == {0}
    assert "workspace of 1000 bytes at 0" in program.describe()
    assert y[0] == 1


def test_a_workspace_beyond_all_memory_is_refused() -> None:
    text = r"the arena: the temporaries have more bytes than there are addresses"
    with relu_kernel(workspace_bytes=lambda call: 2**62), refused(text):
        relu_program()


def test_a_deterministic_program_leaves_other_kernels_out() -> None:
    with relu_kernel(deterministic=False):
        program, _ = relu_program(deterministic=True)

    assert program.kernels == ["relu.f32.host"] * 2
    assert f"not {KERNEL_ID}: it is not deterministic" in program.describe()


def test_a_deterministic_program_refuses_a_pinned_kernel_that_is_not() -> None:
    program = _C.Program("host", deterministic=True)
    slot = program.slot(VECTOR)
    with relu_kernel(deterministic=False):
        program.add(KERNEL_ID, [slot], [slot])

        with pytest.raises(
            NotSupportedError, match=rf"op 0 .*'{KERNEL_ID}' does not take .*: it is not deterministic"
        ):
            program.finalize()


def test_a_capture_names_the_op_and_the_kernel_that_broke_it() -> None:
    with relu_kernel(capture_safe=False):
        program, y = relu_program()

    text = rf"op 0 \(EltwiseRelu by {KERNEL_ID}\): kernel '{KERNEL_ID}' is not safe in a capture"
    with refused(text):
        program.capture()

    program.run()
    assert y[0] == 1
    assert relu_program()[0].capture().nodes[0]["kernel_id"] == "relu.f32.host"


def test_a_capture_of_calls_names_the_kernel_that_broke_it() -> None:
    x = np.ones(3, np.float32)
    stream = _C.graph_begin("host")
    text = f"EltwiseRelu by {KERNEL_ID}.*: kernel '{KERNEL_ID}' is not safe in a capture"
    with relu_kernel(capture_safe=False), refused(text):
        _C.op_call(OpKind.EltwiseRelu, [x], [x], stream_handle=stream)

    with refused(r"the capture failed at call 0 \(" + text):
        _C.graph_end("host")


@pytest.mark.parametrize("in_graph", [False, True])
def test_what_a_kernel_raises_goes_through_and_all_is_usable_after(in_graph: bool) -> None:
    fails = [True]

    def launch(call: KernelCall) -> None:
        if fails[0]:
            raise ZeroDivisionError("by the kernel")
        call.outputs[0].copy_from(np.ones(3, np.float32).tobytes())

    made = kernel("EltwiseRelu", kernel_id=KERNEL_ID, device="host", priority=1000)(launch)
    program, y = relu_program()
    made.remove()
    run = program.capture().launch if in_graph else program.run

    with pytest.raises(ZeroDivisionError, match="by the kernel"):
        run()
    fails[0] = False
    run()

    assert y[0] == 1


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

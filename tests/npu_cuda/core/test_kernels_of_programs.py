"""Kernels of Python and of libraries in programs and graphs: workspaces, failures, what is prepared."""

import gc
import json
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
from npu_cuda.extension.python_kernels import KernelCall
from tests.support.cuda.c_structs import Offer, compile_kernel_library, scale_attrs
from tests.support.cuda.programs import VECTOR, refused, registered, relu_chain

KERNEL_ID = "test.relu.python"


@contextmanager
def relu_kernel(**settings: Any) -> Iterator[list[int]]:
    """Register an EltwiseRelu kernel that writes ones; yield the workspace bytes of each launch."""
    launches: list[int] = []

    def launch(call: KernelCall) -> None:
        launches.append(call.workspace.nbytes if call.workspace else 0)
        call.outputs[0].copy_from(np.ones(3, np.float32).tobytes())

    with registered(launch, kernel_id=KERNEL_ID, **settings):
        yield launches


def relu_program(deterministic: bool = False) -> tuple[_C.Program, np.ndarray]:
    program, y = relu_chain(deterministic=deterministic), np.zeros(3, np.float32)
    program.bind(0, np.full(3, 5, np.float32))
    program.bind(2, y)
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
    pinned = _C.Program("host", deterministic=True)
    slot = pinned.slot(VECTOR)

    with relu_kernel(deterministic=False):
        program, _ = relu_program(deterministic=True)
        pinned.add(KERNEL_ID, [slot], [slot])
        with refused(rf"'{KERNEL_ID}' does not take .*: it is not deterministic", NotSupportedError):
            pinned.finalize()

    assert program.kernels == ["relu.f32.host"] * 2
    assert f"not {KERNEL_ID}: it is not deterministic" in program.describe()


def test_a_capture_names_the_op_and_the_kernel_that_broke_it() -> None:
    x = np.ones(3, np.float32)
    text = rf"EltwiseRelu by {KERNEL_ID}.*: kernel '{KERNEL_ID}' is not safe in a capture"
    with relu_kernel(capture_safe=False):
        program, y = relu_program()
        stream = _C.graph_begin("host")
        with refused(text):
            _C.op_call(OpKind.EltwiseRelu, [x], [x], stream_handle=stream)
        with refused(rf"the capture failed at call 0 \({text}"):
            _C.graph_end("host")

    with refused(rf"op 0 \({text}"):
        program.capture()

    program.run()
    assert y[0] == 1
    assert relu_program()[0].capture().nodes[0]["kernel_id"] == "relu.f32.host"


def test_what_a_kernel_raises_goes_through_and_all_is_usable_after() -> None:
    fails = [True]

    def launch(call: KernelCall) -> None:
        if fails[0]:
            raise ZeroDivisionError("by the kernel")
        call.outputs[0].copy_from(np.ones(3, np.float32).tobytes())

    with registered(launch):
        program, y = relu_program()
    for run in (program.run, program.capture().launch):
        y[:], fails[0] = 0, True
        with pytest.raises(ZeroDivisionError, match="by the kernel"):
            run()
        fails[0] = False
        run()
        assert y[0] == 1


@pytest.fixture(scope="module")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Offer:
    path = compile_kernel_library(tmp_path_factory.mktemp("counting") / "counting.so", "in_programs", "I")
    npu_cuda.load_library(path)
    return Offer(path)


def scaling_program(alpha: float) -> _C.Program:
    """Return y = relu(alpha * x), with a temporary between."""
    program = _C.Program("host")
    spec = TensorSpec("float32", [64])
    x, y, between = program.slot(spec), program.slot(spec), program.slot(spec, external=False)
    program.add(_C.kinds()["in_programs.scale"], [x], [between], *scale_attrs("I", alpha))
    program.add("relu.f32.host", [between], [y])
    program.finalize()
    return program


def test_programs_and_graphs_keep_what_a_kernel_prepared_once(counting: Offer) -> None:
    x, y = torch.randn(64), torch.empty(64)
    gc.collect()
    prepared, released = counting.count("prepared"), counting.count("released")

    program = scaling_program(3.0)
    for _ in range(5):
        program.call([x, y])

    assert torch.equal(y, (3.0 * x).relu())
    assert program.kernels == ["in_programs.scale.host", "relu.f32.host"]
    assert program.arena_bytes >= 2 * 64 * 4  # the temporary, and the workspace of scale
    assert program.cost() == (64 * 8.0 + 64 * 8.0, 64.0 + 64.0)
    graph = program.capture()
    del program
    gc.collect()
    x.copy_(torch.randn(64))
    graph.launch(2)
    assert torch.equal(y, (3.0 * x).relu())
    assert (counting.count("prepared"), counting.count("released")) == (prepared + 1, released)
    del graph
    gc.collect()
    assert counting.count("released") == released + 1


def test_what_fails_in_a_program_names_its_op(counting: Offer) -> None:
    program = _C.Program("host")
    x = program.slot(VECTOR, "x")
    program.add("in_programs.scale.host", [x], [x], *scale_attrs("I", code=4))
    program.finalize()

    with refused("op 0.*in_programs.scale.*: launch was told to fail", DeviceError):
        program.call([torch.zeros(3)])

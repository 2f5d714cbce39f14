"""Refusals of programs, by their text; programs stay usable."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable

import numpy as np
import pytest

import npu_cuda
from npu_cuda import _C
from npu_cuda._C import OpKind, TensorSpec
from npu_cuda.errors import InvalidArgumentError, NotSupportedError
from tests.support.cuda.random_programs import packed
from tests.support.cuda.refusals import refused
from tests.support.cuda.relu_program import VECTOR, bound_program, relu_program


def test_a_format_that_is_not_there_is_refused() -> None:
    with refused("no format 'xml' of programs: there are text, json, dot"):
        relu_program().describe("xml")


ADDING: dict[str, tuple[Callable[[_C.Program], object], type[Exception], str]] = {
    "a slot that is not there": (
        lambda p: p.add(OpKind.EltwiseRelu, [0], [9]),
        InvalidArgumentError,
        r"op 0 \(EltwiseRelu\): there is no slot 9: the program has 3",
    ),
    "a negative slot": (lambda p: p.add(OpKind.EltwiseRelu, [-1], [1]), InvalidArgumentError, "-1"),
    "too many inputs": (
        lambda p: p.add(OpKind.EltwiseRelu, [0, 0], [1]),
        InvalidArgumentError,
        "op 0: EltwiseRelu takes 1 input and 1 output, not 2 and 1",
    ),
    "a temporary that nobody wrote": (
        lambda p: p.add(OpKind.EltwiseRelu, [2], [1]),
        InvalidArgumentError,
        r"op 0 \(EltwiseRelu\): input 0 is slot 2 \('t'\), a temporary that no op before this one writes",
    ),
    "in place where the op is not": (
        lambda p: p.add(OpKind.Copy, [0], [0]),
        InvalidArgumentError,
        r"output 0 is slot 0 \('x'\), which is input 0, too: this op does not work in place",
    ),
    "a kernel that is not there": (
        lambda p: p.add("no.such.kernel", [0], [1]),
        InvalidArgumentError,
        "op 0: there is no kernel 'no.such.kernel'; npu_cuda.kernels\\(\\) lists them",
    ),
    "an op that is not there": (
        lambda p: p.add(9999, [0], [1]),
        NotSupportedError,
        "op 0: op kind 9999 is not in",
    ),
    "attributes of another op": (
        lambda p: p.add(OpKind.EltwiseRelu, [0], [1], *packed("GEMM")),
        InvalidArgumentError,
        "op 0: EltwiseRelu",
    ),
}


@pytest.mark.parametrize("case", ADDING)
def test_adding_refuses(case: str) -> None:
    call, error, text = ADDING[case]
    program = _C.Program("host")
    for name, external in (("x", True), ("y", True), ("t", False)):
        program.slot(VECTOR, name, external=external)

    with pytest.raises(error, match=text):
        call(program)

    program.add(OpKind.EltwiseRelu, [0], [1])  # what was refused is not there
    program.finalize()
    assert program.kernels == ["relu.f32.host"]


def test_finalize_names_the_op_that_no_kernel_takes() -> None:
    program = _C.Program("host")
    slots = [program.slot(TensorSpec("int32", (3,))) for _ in range(2)]
    program.add(OpKind.Copy, slots[:1], slots[1:])
    program.add(OpKind.EltwiseRelu, slots[:1], slots[1:])

    text = r"op 1 \(EltwiseRelu\): no kernel of EltwiseRelu on host takes \(int32\[3\]\) -> int32\[3\]"
    with pytest.raises(NotSupportedError, match=text):
        program.finalize()
    with pytest.raises(NotSupportedError, match=text):
        program.finalize()


def test_a_pinned_kernel_that_does_not_take_the_call_is_refused() -> None:
    program = _C.Program("host")
    slots = [program.slot(TensorSpec("float16", (3,))) for _ in range(2)]
    program.add("relu.f32.host", slots[:1], slots[1:])

    text = (
        r"the kernel 'relu.f32.host' does not take \(float16\[3\]\) -> float16\[3\]: (x|input "
        "0) is float16, not float32"
    )
    with pytest.raises(NotSupportedError, match=text):
        program.finalize()


def test_a_failing_allocator_leaves_the_program_open() -> None:
    program = _C.Program("host")
    x, between = program.slot(VECTOR), program.slot(VECTOR, external=False)
    program.add(OpKind.EltwiseRelu, [x], [between])

    def allocate(nbytes: int) -> np.ndarray:
        raise MemoryError(f"no {nbytes} bytes")

    with pytest.raises(MemoryError, match="no 511 bytes"):
        program.finalize(allocate)

    program.finalize()
    program.call([np.ones(3, np.float32)])


NOT_FINAL: dict[str, Callable[[_C.Program], object]] = {
    "bind": lambda p: p.bind(0, np.zeros(3, np.float32)),
    "run": lambda p: p.run(),
    "capture": lambda p: p.capture(),
}
FINAL: dict[str, Callable[[_C.Program], object]] = {
    "add_slot": lambda p: p.slot(VECTOR),
    "add_op": lambda p: p.add(OpKind.EltwiseRelu, [0], [1]),
    "finalize": lambda p: p.finalize(),
}


@pytest.mark.parametrize("case", NOT_FINAL)
def test_before_finalize_this_is_refused(case: str) -> None:
    program = _C.Program("host")
    program.slot(VECTOR)

    with refused(rf"{case}: this program is not final: call finalize\(\) first"):
        NOT_FINAL[case](program)


@pytest.mark.parametrize("case", FINAL)
def test_after_finalize_this_is_refused(case: str) -> None:
    with refused(f"{case}: this program is final; make another one"):
        FINAL[case](relu_program())


BINDING = {
    "dtype": (0, np.zeros(3, np.float64), "slot 0 ('x') is float32[3], the tensor is float64[3]"),
    "shape": (1, np.zeros(4, np.float32), "slot 1 ('y') is float32[3], the tensor is float32[4]"),
    "rank": (1, np.zeros((3, 1), np.float32), "the tensor is float32[3, 1]"),
    "strides": (0, np.zeros(6, np.float32)[::2], "the tensor is float32[3] strides [2]"),
    "a temporary": (
        2,
        np.zeros(3, np.float32),
        "slot 2 is a temporary: its memory is in the arena of the program",
    ),
    "no slot": (3, np.zeros(3, np.float32), "there is no slot 3: the program has 3"),
}


@pytest.mark.parametrize("case", BINDING)
def test_bind_refuses(case: str) -> None:
    slot, tensor, text = BINDING[case]
    program, x, y = bound_program()

    with refused(re.escape(text)):
        program.bind(slot, tensor)

    program.run()  # as it was bound before
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_memory_has_the_alignment_that_the_slot_promises() -> None:
    program = _C.Program("host")
    program.slot(TensorSpec("float32", (3,), alignment=64), "x")
    program.finalize()
    memory = np.zeros(64, np.float32)
    start = -memory.ctypes.data % 64 // 4

    program.bind(0, memory[start : start + 3])
    with refused(r"slot 0 \('x'\) promises an alignment of 64 bytes, the tensor has 4"):
        program.bind(0, memory[start + 1 : start + 4])


def test_a_run_names_the_slot_that_is_not_bound() -> None:
    program = relu_program()
    program.bind(0, np.zeros(3, np.float32))

    for call in (program.run, program.capture):
        with refused(r"slot 1 \('y'\) is not bound: bind\(\) a tensor to it"):
            call()


def test_outputs_that_overlap_inputs_of_the_op_are_refused() -> None:
    program = _C.Program("host")
    slots = [program.slot(VECTOR) for _ in range(2)]
    program.add(OpKind.EltwiseRelu, slots[:1], slots[1:])
    program.finalize()
    memory = np.float32([-1, 2, -3, 4])
    program.call([memory[:3], np.zeros(3, np.float32)])

    for call in (program.run, program.capture):
        program.bind(0, memory[:3])
        program.bind(1, memory[1:])
        with refused("op 0: EltwiseRelu: output 0 overlaps input 0: it may be the same"):
            call()

    program.bind(1, memory[:3])
    program.run()
    np.testing.assert_array_equal(memory, np.float32([0, 2, 0, 4]))


def test_a_stream_that_is_not_there_is_refused() -> None:
    program, *_ = bound_program()

    with refused(r"host: there is no such stream \(12345\)"):
        program.run(12345)


def test_a_device_that_is_not_there_is_refused() -> None:
    with refused("there is no device 'tpu': there are host"):
        _C.Program("tpu")


def test_a_program_that_is_in_use_refuses_a_second_thread() -> None:
    program = _C.Program("host")
    spec = TensorSpec("float32", (512, 512))
    slots = [program.slot(spec) for _ in range(3)]
    program.add(OpKind.Gemm, slots[:2], slots[2:])
    program.finalize()
    tensors = [np.zeros((512, 512), np.float32) for _ in slots]
    refusals: list[str] = []

    def work() -> None:
        for _ in range(20):
            try:
                program.call(tensors)
            except InvalidArgumentError as error:
                refusals.append(str(error))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    program.call(tensors)

    assert refusals
    assert all("this program is in use, by another thread" in text for text in refusals)


def test_a_program_in_finalize_refuses_to_be_looked_at() -> None:
    program = _C.Program("host")
    slot = program.slot(TensorSpec("float32", (3,)))
    program.add(OpKind.EltwiseRelu, [slot], [slot])
    texts: list[str] = []

    def look(call: object) -> str:
        for use in (program.describe, program.cost, lambda: program.kernels):
            with refused("in finalize") as caught:
                use()
            texts.append(str(caught.value))
        return "never"

    kernel = npu_cuda.kernel("EltwiseRelu", kernel_id="test.look", device="host", supported=look)(print)
    try:
        program.finalize()
    finally:
        kernel.remove()

    assert texts == ["this program is in finalize(), which has not returned yet"] * 3
    assert program.kernels == ["relu.f32.host"]


@pytest.mark.parametrize("use", ["bind", "run", "call"])
def test_a_call_binds_and_runs_without_others_in_between(use: str) -> None:
    program = _C.Program("host")
    slots = [program.slot(TensorSpec("float32", (3,))) for _ in range(2)]
    program.add(OpKind.EltwiseRelu, slots[:1], slots[1:])
    program.finalize()
    x, y, other = np.array([-1, 2, 3], np.float32), np.zeros(3, np.float32), np.full(3, 9, np.float32)
    program.call([x, y])
    refusals: list[str] = []

    class Meddler:
        """A tensor that uses the program while it is read."""

        def __dlpack__(self, **keywords: object) -> object:
            meddle = {
                "bind": lambda: program.bind(0, other),
                "run": program.run,
                "call": lambda: program.call([other, other.copy()]),
            }[use]
            with refused("in use") as caught:
                meddle()
            refusals.append(str(caught.value))
            return y.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    program.call([x, Meddler()], keep=False)

    assert refusals
    assert all(text.startswith(f"{use}: this program is in use, by another thread") for text in refusals)
    assert y.tolist() == [0, 2, 3]

"""Refusals of programs, by their text; programs stay usable."""

import re
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import npu_cuda
from npu_cuda import _C
from npu_cuda._C import OpKind, TensorSpec
from npu_cuda.errors import InvalidArgumentError, NotSupportedError
from tests.support.cuda.programs import VECTOR, bound_program, one_op, refused, registered, relu_chain
from tests.support.rows import each_row

RELU = OpKind.EltwiseRelu


def test_a_format_a_stream_or_a_device_that_is_not_there_is_refused() -> None:
    program, *_ = bound_program()

    with refused("no format 'xml' of programs: there are text, json, dot"):
        program.describe("xml")
    with refused("describe: format must be a str, not int", TypeError):
        program.describe(3)
    with refused(r"host: there is no such stream \(12345\)"):
        program.run(12345)
    with refused("there is no device 'tpu': there are host"):
        _C.Program("tpu")


def test_adding_refuses() -> None:
    program = _C.Program("host")
    for name, external in (("x", True), ("y", True), ("t", False)):
        program.slot(VECTOR, name, external=external)
    cases = [
        ((RELU, [0], [9]), r"op 0 \(EltwiseRelu\): there is no slot 9: the program has 3"),
        ((RELU, [-1], [1]), "-1"),
        ((RELU, [0, 0], [1]), "op 0: EltwiseRelu takes 1 input and 1 output, not 2 and 1"),
        ((RELU, [2], [1]), r"input 0 is slot 2 \('t'\), a temporary that no op before this one writes"),
        ((OpKind.Copy, [0], [0]),
         r"output 0 is slot 0 \('x'\), which is input 0, too: this op does not work in place"),
        (("no.such.kernel", [0], [1]),
         r"op 0: there is no kernel 'no.such.kernel'; npu_cuda.kernels\(\) lists them"),
        (("", [0], [1]), "add: op is an empty text, which is no kernel id"),
        ((RELU, [0], [1], *npu_cuda.attrs("GEMM")), "op 0: EltwiseRelu"),
    ]  # fmt: skip
    for arguments, text in cases:
        with refused(text):
            program.add(*arguments)
    with refused("op 0: op kind 9999 is not in", NotSupportedError):
        program.add(9999, [0], [1])

    program.add(RELU, [0], [1])  # what was refused is not there
    program.finalize()
    assert program.kernels == ["relu.f32.host"]


def test_finalize_names_the_op_or_the_pinned_kernel_that_does_not_take_its_call() -> None:
    integers, double = TensorSpec("int32", (3,)), TensorSpec("float64", (3,))
    program = one_op(OpKind.Copy, integers, integers)
    program.add(OpKind.Exp, [0], [1])

    for refusing, text in [
        (program, r"op 1 \(Exp\): no kernel of Exp on host takes \(int32\[3\]\) -> int32\[3\]"),
        (program, "op 1"),  # the second time, too
        (one_op("relu.f32.host", double, double),
         r"'relu.f32.host' does not take \(float64\[3\]\) -> float64\[3\]: float64 is computed in f64, not"),
    ]:  # fmt: skip
        with refused(text, NotSupportedError):
            refusing.finalize()


def test_a_failing_allocator_leaves_the_program_open() -> None:
    program = _C.Program("host")
    x, between = program.slot(VECTOR), program.slot(VECTOR, external=False)
    program.add(RELU, [x], [between])
    asked: list[int] = []
    error = MemoryError("mine")

    def allocate(nbytes: int) -> np.ndarray:
        asked.append(nbytes)
        raise error

    with refused("mine", MemoryError) as raised:
        program.finalize(allocate)
    with refused(r"returned float32\[1\], 4 bytes"):
        program.finalize(lambda nbytes: np.ones(1, np.float32))
    with refused("finalize: alloc must be a function", TypeError):
        program.finalize(3)
    program.finalize()
    program.call([np.ones(3, np.float32)])
    assert (raised.value, asked) == (error, [511])


def test_what_comes_before_finalize_and_after_it() -> None:
    program = one_op(RELU, VECTOR, VECTOR)
    before = {
        "bind": lambda: program.bind(0, np.zeros(3, np.float32)),
        "run": program.run,
        "capture": program.capture,
    }
    after = {
        "add_slot": lambda: program.slot(VECTOR),
        "add_op": lambda: program.add(RELU, [0], [1]),
        "finalize": program.finalize,
    }

    for name, use in before.items():
        with refused(rf"{name}: this program is not final: call finalize\(\) first"):
            use()
    program.finalize()
    for name, use in after.items():
        with refused(f"{name}: this program is final; make another one"):
            use()
    program.bind(0, np.zeros(3, np.float32))
    for use in (program.run, program.capture):
        with refused(r"slot 1 is not bound: bind\(\) a tensor to it"):
            use()


def test_bind_refuses() -> None:
    floats = np.zeros(6, np.float32)
    program, x, y = bound_program()
    cases = [
        (0, np.zeros(3, np.float64), "slot 0 ('x') is float32[3], the tensor is float64[3]"),
        (1, floats[:4], "slot 1 ('y') is float32[3], the tensor is float32[4]"),
        (1, floats[:3].reshape(3, 1), "the tensor is float32[3, 1]"),
        (0, floats[::2], "the tensor is float32[3] strides [2]"),
        (2, floats[:3], "slot 2 is a temporary: its memory is in the arena of the program"),
        (3, floats[:3], "there is no slot 3: the program has 3"),
    ]
    for slot, tensor, text in cases:
        with refused(re.escape(text)):
            program.bind(slot, tensor)

        y[:] = -1
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


def test_outputs_that_overlap_inputs_of_the_op_are_refused() -> None:
    program = one_op(RELU, VECTOR, VECTOR)
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


def test_a_program_that_is_in_use_refuses_a_second_thread() -> None:
    spec = TensorSpec("float32", (512, 512))
    program = one_op(OpKind.Gemm, spec, spec, spec)
    program.finalize()
    tensors = [np.zeros((512, 512), np.float32) for _ in range(3)]
    refusals: list[str] = []

    def work(_: int) -> None:
        for _ in range(20):
            try:
                program.call(tensors)
            except InvalidArgumentError as error:
                refusals.append(str(error))

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(work, range(3)))
    program.call(tensors)

    assert refusals
    assert all("this program is in use, by another thread" in text for text in refusals)


def test_a_program_in_finalize_refuses_to_be_looked_at() -> None:
    program = one_op(RELU, VECTOR, VECTOR)
    asked: list[object] = []

    def look(call: object) -> str:
        for use in (program.describe, program.cost, lambda: program.kernels):
            with refused(r"this program is in finalize\(\), which has not returned yet"):
                use()
            asked.append(use)
        return "never"

    with registered(print, supported=look):
        program.finalize()

    assert len(asked) == 3
    assert program.kernels == ["relu.f32.host"]


@each_row("use", ["bind", "run", "call"])
def test_a_call_binds_and_runs_without_others_in_between(use: str) -> None:
    program = relu_chain()
    x, y, other = np.array([-1, 2, 3], np.float32), np.zeros(3, np.float32), np.full(3, 9, np.float32)
    program.call([x, y])
    meddle = {
        "bind": lambda: program.bind(0, other),
        "run": program.run,
        "call": lambda: program.call([other, other.copy()]),
    }[use]

    class Meddler:
        """A tensor that uses the program while it is read."""

        was_read = False

        def __dlpack__(self, **keywords: object) -> object:
            with refused(f"^{use}: this program is in use, by another thread"):
                meddle()
            self.was_read = True
            return y.__dlpack__()

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    meddler = Meddler()
    program.call([x, meddler], keep=False)

    assert meddler.was_read
    assert y.tolist() == [0, 2, 3]

"""Calls like the one before go to the same kernel, and calls that only look like it do not."""

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

import npu_cuda
from npu_cuda import _C, CallSpec, KernelCall
from npu_cuda._C import OpKind
from tests.support.cuda.programs import refused, registered

ADD, RELU, COPY = OpKind.EltwiseAdd, OpKind.EltwiseRelu, OpKind.Copy


def add(x: torch.Tensor, y: torch.Tensor, alpha: float | None = None) -> torch.Tensor:
    out = torch.full_like(x, 77)
    attrs = () if alpha is None else npu_cuda.attrs("EADD", alpha=alpha)
    npu_cuda.op_call(ADD, [x, y], [out], *attrs)
    return out


def fill(number: float, asked: list[CallSpec] | None = None) -> tuple[object, object]:
    """Return a kernel of relu that writes a number, and a function that says that it supports every call."""

    def kernel(call: KernelCall) -> None:
        torch.from_dlpack(call.outputs[0]).fill_(number)

    def supported(spec: CallSpec) -> None:
        if asked is not None:
            asked.append(spec)

    return kernel, supported


def relu(x: torch.Tensor) -> torch.Tensor:
    out = torch.empty_like(x)
    npu_cuda.op_call(RELU, [x], [out])
    return out


def test_a_kernel_is_asked_once_about_calls_of_the_same_tensors() -> None:
    asked: list[CallSpec] = []
    kernel, supported = fill(7.0, asked)
    x, y = torch.zeros(4), torch.zeros(4)

    with registered(kernel, supported=supported):  # type: ignore[arg-type]
        for out in (x, x, x, y[:3], x):
            npu_cuda.op_call(RELU, [out], [out])

    assert [spec.inputs[0].shape for spec in asked] == [(4,), (3,), (4,)]
    assert x.tolist() == [7.0] * 4


def test_a_kernel_that_comes_or_goes_is_seen_by_the_next_call() -> None:
    x = torch.tensor([-1.0, 2.0])
    results = [relu(x)]

    for number in (5.0, 6.0):
        with registered(fill(number)[0]):  # type: ignore[arg-type]
            results += [relu(x), relu(x)]
        results.append(relu(x))

    assert [item[0].item() for item in results] == [0.0, 5.0, 5.0, 0.0, 6.0, 6.0, 0.0]


def test_calls_that_differ_in_one_thing_are_told_apart() -> None:
    square, memory = torch.randn(4, 4), torch.randn(64)
    aligned, unaligned = memory[:16], memory[1:17]
    cases = [
        (aligned, aligned, None),
        (aligned, aligned, 2.0),
        (aligned, aligned, -3.0),
        (aligned, aligned, None),
        (aligned, unaligned, None),
        (unaligned, unaligned, None),
        (square, square, None),
        (square, square.t(), None),
        (square.t(), square, None),
        (square, square[0], None),
        (square.double(), square.double(), None),
        (square.to(torch.int32), square.to(torch.int32), None),
        (square.bfloat16(), square.bfloat16(), None),
        (square[:0], square[:0], None),
        (square[0, 0], square[0, 0], None),
    ]
    for x, y, alpha in [*cases, *reversed(cases)]:
        for _ in range(2):
            torch.testing.assert_close(add(x, y, alpha), torch.add(x, y, alpha=alpha or 1), equal_nan=True)


def test_memory_that_overlaps_is_refused_after_memory_that_does_not() -> None:
    x, y = torch.randn(8), torch.randn(8)
    for _ in range(2):
        npu_cuda.op_call(COPY, [x], [y])

        with refused("Copy: output 0 overlaps input 0: this op does not work in place"):
            npu_cuda.op_call(COPY, [x], [x])

    npu_cuda.op_call(COPY, [x], [y])
    assert torch.equal(x, y)


def test_arrays_of_numpy_and_own_tensors_are_compared_as_well() -> None:
    x, y = np.float32([1, 2, 3]), np.zeros(3, np.float32)
    own = _C.empty((3,), "float32")
    for _ in range(2):
        for out in (own, y):
            npu_cuda.op_call(ADD, [x, x], [out])
            np.testing.assert_array_equal(np.from_dlpack(out), [2, 4, 6])  # type: ignore[arg-type]
        with refused("output 0"):
            npu_cuda.op_call(ADD, [x, x], [x[:2]])


def test_a_call_within_a_call_of_the_same_kind_does_not_disturb_it() -> None:
    x, small = torch.tensor([-1.0, 2.0, -3.0]), torch.tensor([[-4.0]])

    def outer(call: KernelCall) -> None:
        npu_cuda.launch_by_id("relu.f32.host", call.inputs, call.outputs)
        npu_cuda.op_call(ADD, [small, small], [small])
        npu_cuda.op_call(RELU, [small.double()], [small.double()])

    def supported(spec: CallSpec) -> str | None:
        return None if spec.inputs[0].dtype == "float32" else "float32 alone"

    with registered(outer, supported=supported):
        for _ in range(3):
            assert relu(x).tolist() == [0.0, 2.0, 0.0]


def test_threads_have_memos_of_their_own() -> None:
    tensors = [torch.randn(index + 1) for index in range(8)]

    def work(x: torch.Tensor) -> bool:
        return all(torch.equal(add(x, x), x + x) and torch.equal(relu(x), x.relu()) for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, tensors * 4))

"""Small programs for tests, and what npu_cuda refuses, by its text."""

import itertools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

import npu_cuda
from npu_cuda import _C, KernelCall
from npu_cuda._C import OpKind, TensorSpec
from npu_cuda.errors import InvalidArgumentError
from npu_cuda.extension.python_kernels import RegisteredKernel

VECTOR = TensorSpec("float32", (3,))


def relu_program() -> _C.Program:
    """Return a final program: slot 0 'x' -> slot 2, a temporary -> slot 1 'y'."""
    program = _C.Program("host")
    x, y = program.slot(VECTOR, "x"), program.slot(VECTOR, "y")
    between = program.slot(VECTOR, external=False)
    program.add(OpKind.EltwiseRelu, [x], [between])
    program.add("relu.f32.host", [between], [y])
    program.finalize()
    return program


def relu_chain(
    spec: TensorSpec = VECTOR,
    length: int = 2,
    *,
    alloc: Callable[[int], Any] | None = None,
    deterministic: bool = False,
) -> _C.Program:
    """Return a final program of relus in a row; the first slot and the last one are external."""
    program = _C.Program("host", deterministic=deterministic)
    slots = [program.slot(spec, external=index in (0, length)) for index in range(length + 1)]
    for before, after in itertools.pairwise(slots):
        program.add(OpKind.EltwiseRelu, [before], [after])
    program.finalize(alloc)
    return program


def bound_program() -> tuple[_C.Program, np.ndarray, np.ndarray]:
    program, x, y = relu_program(), np.array([-1, 0, 2], np.float32), np.zeros(3, np.float32)
    program.bind(0, x)
    program.bind(1, y)
    return program, x, y


def one_op(op: OpKind | int | str, *specs: TensorSpec, device: str = "host") -> _C.Program:
    """Return a program of one op; the last slot is its output, the others are its inputs."""
    program = _C.Program(device)
    *inputs, output = [program.slot(spec) for spec in specs]
    program.add(op, inputs, [output])
    return program


def refused(text: str, error: type[BaseException] = InvalidArgumentError) -> pytest.RaisesExc[BaseException]:
    return pytest.raises(error, match=text)


@contextmanager
def registered(function: Callable[[KernelCall], None], **options: Any) -> Iterator[RegisteredKernel]:
    """Have a function as a kernel of relu on the host, or of what the options say, for a while."""
    options = {"op": "EltwiseRelu", "kernel_id": "test.kernel", "device": "host", "priority": 200, **options}
    kernel = npu_cuda.kernel(options.pop("op"), **options)(function)
    try:
        yield kernel
    finally:
        kernel.remove()

"""A small program for tests: two ops, an input, a temporary and an output."""

from __future__ import annotations

import numpy as np

from npu_cuda import _C
from npu_cuda._C import OpKind, TensorSpec

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


def bound_program() -> tuple[_C.Program, np.ndarray, np.ndarray]:
    program, x, y = relu_program(), np.array([-1, 0, 2], np.float32), np.zeros(3, np.float32)
    program.bind(0, x)
    program.bind(1, y)
    return program, x, y

"""Lifetimes: programs and graphs keep tensors alive, and nothing keeps them alive."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref

import pytest
import torch

import npu_cuda
from npu_cuda import OpKind, Program, TensorSpec
from tests.support.cuda.programs import refused

SPEC = TensorSpec("float32", [4])


class Watched(torch.Tensor):
    """A tensor that can be watched, and point at a program."""


def watched(value: float = 1.0) -> Watched:
    return torch.full((4,), value).as_subclass(Watched)


def relu_program() -> Program:
    program = Program()
    x, y = program.slot(SPEC, "x"), program.slot(SPEC, "y")
    program.add(OpKind.EltwiseRelu, [x], [y])
    program.finalize()
    return program


def test_a_program_keeps_what_is_bound_until_something_else_is() -> None:
    program, x = relu_program(), watched()
    program.bind(0, x)
    seen = weakref.ref(x)

    del x
    assert seen() is not None
    program.bind(0, watched())

    gc.collect()
    assert seen() is None


def test_memory_that_a_parameter_gives_up_stays_while_it_is_bound() -> None:
    program, parameter, y = relu_program(), torch.nn.Parameter(torch.full((4,), 3.0)), torch.empty(4)
    program.bind(0, parameter)
    program.bind(1, y)

    parameter.data = torch.zeros(4)
    program.run()

    assert y.tolist() == [3.0] * 4


def test_call_binds_what_has_changed() -> None:
    program, parameter, y = relu_program(), torch.nn.Parameter(torch.full((4,), 3.0)), torch.empty(4)
    program.call([parameter, y])
    parameter.data = torch.full((4,), 5.0)

    program.call([parameter, y])

    assert y.tolist() == [5.0] * 4
    with refused("call: tensors has 1 entries, the program has 2 external slots"):
        program.call([y])
    with refused(r"call: tensors\[0\]: slot 0 \('x'\) is float32\[4\]"):
        program.call([torch.ones(5), y])


def test_a_graph_keeps_the_tensors_of_its_capture() -> None:
    program, x, y = relu_program(), watched(), torch.empty(4)
    program.call([x, y])
    graph, seen = program.capture(), weakref.ref(x)
    del x, program

    graph.launch()

    assert seen() is not None
    assert y.tolist() == [1.0] * 4
    del graph
    gc.collect()
    assert seen() is None


def test_a_cycle_through_a_program_is_collected() -> None:
    program, x = relu_program(), watched()
    program.bind(0, x)
    x.program = program
    seen = weakref.ref(x)

    del x, program
    gc.collect()

    assert seen() is None


def test_calls_leave_no_reference_behind() -> None:
    x, y = torch.ones(4), torch.empty(4)
    before = sys.getrefcount(x), sys.getrefcount(y)

    for _ in range(100):
        npu_cuda.op_call(1, [x], [y])
        with pytest.raises(npu_cuda.NotSupportedError, match="no kernel"):
            npu_cuda.op_call(1, [x], [y[:2]])

    assert (sys.getrefcount(x), sys.getrefcount(y)) == before


def test_an_object_that_was_never_initialized_is_collected() -> None:
    for kind in (npu_cuda.Program, npu_cuda.Graph, npu_cuda.PreparedCall):
        empty = kind.__new__(kind)
        cycle: list[object] = [empty]
        cycle.append(cycle)
        gc.collect()
        del empty, cycle

        assert gc.collect() > 0


LEAVING = """
import npu_cuda, numpy
spec = npu_cuda.TensorSpec("float32", [4])
program = npu_cuda.Program()
x, y = program.slot(spec), program.slot(spec)
program.add(1, [x], [y])
program.finalize()
a, b = npu_cuda.empty([4]), npu_cuda.empty([4])
program.call([a, b])
graph = program.capture()
stream = npu_cuda.graph_begin("host")
npu_cuda.op_call(1, [a], [b], stream_handle=stream)
npu_cuda.graph_end()
shared = numpy.from_dlpack(a)
call = npu_cuda.prepare_call(1, [a], [b])
try:
    npu_cuda.op_call(1, [], [])
except npu_cuda.InvalidArgumentError as error:
    kept = error
"""


def test_nothing_leaks_at_exit() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LEAVING], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stderr == ""
    assert done.stdout == ""

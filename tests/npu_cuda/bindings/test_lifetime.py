"""Lifetimes: programs and graphs keep tensors alive, and nothing keeps them alive."""

import gc
import resource
import sys
import threading
import time
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

import npu_cuda
from npu_cuda import TensorSpec
from npu_cuda.extension.python_kernels import RegisteredKernel
from tests.support.cuda.programs import refused, relu_chain
from tests.support.processes import run_python


class Watched(torch.Tensor):
    """A tensor that can be watched, and point at a program."""


def watched(value: float = 1.0) -> Watched:
    return torch.full((4,), value).as_subclass(Watched)


def relu() -> npu_cuda.Program:
    return relu_chain(TensorSpec("float32", [4]), 1)


def test_a_program_keeps_what_is_bound_until_something_else_is() -> None:
    program, x = relu(), watched()
    program.bind(0, x)
    seen = weakref.ref(x)

    del x
    assert seen() is not None
    program.bind(0, watched())

    gc.collect()
    assert seen() is None


def test_memory_that_a_parameter_gives_up_stays_bound_until_a_call_binds_what_has_changed() -> None:
    program, parameter, y = relu(), torch.nn.Parameter(torch.full((4,), 3.0)), torch.empty(4)
    program.bind(0, parameter)
    program.bind(1, y)

    parameter.data = torch.full((4,), 5.0)
    program.run()
    assert y.tolist() == [3.0] * 4
    program.call([parameter, y])
    assert y.tolist() == [5.0] * 4

    with refused("call: tensors has 1 entries, the program has 2 external slots"):
        program.call([y])
    with refused(r"call: tensors\[0\]: slot 0 is float32\[4\]"):
        program.call([torch.ones(5), y])


def test_a_graph_keeps_the_tensors_of_its_capture() -> None:
    program, x, y = relu(), watched(), torch.empty(4)
    program.call([x, y])
    graph, seen = program.capture(), weakref.ref(x)
    del x, program

    graph.launch()

    assert seen() is not None
    assert y.tolist() == [1.0] * 4
    del graph
    gc.collect()
    assert seen() is None


def test_a_graph_of_calls_goes_with_its_last_reference() -> None:
    x = watched()
    npu_cuda.op_call(1, [x], [x], stream_handle=npu_cuda.graph_begin("host"))
    graph, seen = npu_cuda.graph_end(), weakref.ref(x)
    del x
    npu_cuda.graph_launch()
    assert seen() is not None

    del graph

    assert seen() is None


def test_a_cycle_through_a_program_is_collected() -> None:
    program, x = relu(), watched()
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
    gc.collect()
    for kind in (npu_cuda.Program, npu_cuda.Graph, npu_cuda.PreparedCall):
        empty = kind.__new__(kind)
        cycle: list[object] = [empty]
        cycle.append(cycle)
        del empty, cycle

        assert gc.collect() > 0


def register(kernel_id: str = "test.kernel") -> tuple[RegisteredKernel, weakref.ref[Callable[..., None]]]:
    def function(call: npu_cuda.KernelCall) -> None:
        np.from_dlpack(call.outputs[0])[:] = 7

    return npu_cuda.kernel("EltwiseRelu", kernel_id=kernel_id, device="host", priority=200)(
        function
    ), weakref.ref(function)


def test_a_removed_kernel_goes_when_no_program_holds_it() -> None:
    functions, resident = [], []
    for _ in range(2000):
        kernel, function = register()
        functions.append(function)
        kernel.remove()
        resident.append(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)
    del kernel

    assert not any(function() for function in functions)
    assert resident[-1] - resident[500] < 2000  # KiB

    kernel, function = register()
    program = relu()
    kernel.remove()
    del kernel
    y = torch.empty(4)
    program.call([torch.ones(4), y])
    assert y.tolist() == [7.0] * 4
    del program
    assert function() is None


def test_a_kernel_may_remove_itself_while_it_runs() -> None:
    seen: list[bool] = []

    def register_itself() -> weakref.ref[Callable[..., None]]:
        def remove(call: npu_cuda.KernelCall) -> None:
            kernels.pop().remove()
            gc.collect()
            seen.append(function() is not None)

        function = weakref.ref(remove)
        kernels = [npu_cuda.kernel("EltwiseRelu", kernel_id="test.self", device="host", priority=200)(remove)]
        return function

    function = register_itself()
    npu_cuda.op_call(1, [torch.ones(4)], [torch.empty(4)])

    gc.collect()
    assert (seen, function()) == ([True], None)


def test_kernels_come_and_go_while_others_call() -> None:
    is_over = threading.Event()

    def call() -> int:
        x, y, count = torch.ones(4), torch.empty(4), 0
        while not is_over.is_set() or count == 0:
            npu_cuda.op_call(1, [x], [y])
            assert y[0] in (1, 7)
            count += 1
        return count

    with ThreadPoolExecutor(4) as pool:
        counts = [pool.submit(call) for _ in range(4)]
        functions = []
        for _ in range(100):
            kernel, function = register()
            functions.append(function)
            time.sleep(0)
            kernel.remove()
        is_over.set()
        assert all(count.result() for count in counts)
    del kernel
    npu_cuda.op_call(1, [torch.ones(4)], [torch.empty(4)])

    assert not any(function() for function in functions)


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
    done = run_python(LEAVING)

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")

"""Memory on several streams: who waits for what, and what is kept until it is not used any more."""

import ctypes
import struct
import weakref
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

import npu_cuda
from npu_cuda import _C, KernelCall, OpKind, TensorSpec
from tests.support.cuda.programs import registered
from tests.support.emulator.module import deferred, live_objects, needs_emulator
from tests.support.rows import each_row

SPEC = TensorSpec("float32", [4])
RELU, COPY = OpKind.EltwiseRelu, OpKind.Copy


@pytest.fixture
def stream() -> Iterator[int]:
    """A stream of cuda, on which work waits until something synchronizes with it."""
    handle = npu_cuda.create_stream("cuda")
    with deferred():
        yield handle
        npu_cuda.destroy_stream("cuda", handle)
        npu_cuda.empty([1])  # what was kept may go
    assert live_objects("event") == 0


def filled(value: float) -> npu_cuda.Tensor:
    tensor = npu_cuda.empty([4], device="cuda")
    tensor.copy_from(struct.pack("<4f", *[value] * 4))
    return tensor


def values(tensor: npu_cuda.Tensor) -> set[float]:
    return set(struct.unpack("<4f", tensor.to_bytes()))


def relu_program(alloc: Callable[[int], object] | None = None) -> npu_cuda.Program:
    program = npu_cuda.Program("cuda")
    slots = [program.slot(SPEC, external=external) for external in (True, False, True)]
    program.add(RELU, [slots[0]], [slots[1]])
    program.add(RELU, [slots[1]], [slots[2]])
    program.finalize(alloc)
    return program


def run_program(x: npu_cuda.Tensor, y: npu_cuda.Tensor, stream: int) -> None:
    program = relu_program()
    program.bind(0, x)
    program.bind(2, y)
    program.run(stream)


def launch_graph(x: npu_cuda.Tensor, y: npu_cuda.Tensor, stream: int) -> None:
    npu_cuda.op_call(COPY, [x], [y], stream_handle=npu_cuda.graph_begin("cuda"))
    npu_cuda.graph_end().launch(1, stream)


@needs_emulator
@each_row("launch", {
    "op_call": lambda x, y, stream: npu_cuda.op_call(RELU, [x], [y], stream_handle=stream),
    "a prepared call": lambda x, y, stream: npu_cuda.prepare_call(RELU, [x], [y])(stream),
    "Program.call": lambda x, y, stream: relu_program().call([x, y], stream),
    "Program.call that keeps nothing": lambda x, y, stream: relu_program().call([x, y], stream, keep=False),
    "Program.run": run_program,
    "a graph": launch_graph,
})  # fmt: skip
def test_own_tensors_are_read_and_written_after_launches_on_any_stream(
    launch: Callable[[npu_cuda.Tensor, npu_cuda.Tensor, int], object], stream: int
) -> None:
    x, y = filled(3), filled(0)

    launch(x, y, stream)
    assert values(y) == {3.0}
    launch(x, y, stream)
    x.copy_from(bytes(16))  # the launch reads what was there before
    assert values(y) == {3.0}

    launch(x, y, stream)
    y.__dlpack__()
    assert ctypes.string_at(y.data_ptr, 16) == bytes(16)


class Memory(torch.Tensor):
    """Memory of an allocator of others, which can be watched."""


POOL: list[torch.Tensor] = []  # the allocator has the memory of what is gone


def memory(values: list[float] | int) -> Memory:
    tensor = torch.zeros(values, dtype=torch.uint8) if isinstance(values, int) else torch.tensor(values)
    POOL.append(tensor)
    return tensor.as_subclass(Memory)


@needs_emulator
@pytest.mark.parametrize("as_graph", [False, True])
@pytest.mark.parametrize("on_side_stream", [False, True])
def test_memory_of_others_is_kept_until_launches_on_other_streams_have_passed(
    as_graph: bool, on_side_stream: bool, stream: int
) -> None:
    arenas: list[weakref.ref[Memory]] = []

    def alloc(bytes: int) -> Memory:
        arena = memory(bytes)
        arenas.append(weakref.ref(arena))
        return arena

    x, y = memory([3.0] * 4), memory([0.0] * 4)
    bound = weakref.ref(x)
    program = relu_program(alloc=alloc)
    program.bind(0, x)
    program.bind(2, y)
    used = program.capture() if as_graph else program
    (used.launch if as_graph else used.run)(stream_handle=stream if on_side_stream else 0)
    del x, program, used

    # On its own stream the allocator gives it to the next launch, which runs after these.
    assert [bound() is not None, arenas[0]() is not None] == [on_side_stream] * 2
    npu_cuda.synchronize("cuda", stream)
    assert [bound(), arenas[0]()] == [None, None]
    if on_side_stream:
        assert y.tolist() == [3.0] * 4


@needs_emulator
def test_what_was_bound_before_is_kept_as_well(stream: int) -> None:
    x, y, other = memory([3.0] * 4), memory([0.0] * 4), memory([5.0] * 4)
    bound = weakref.ref(x)
    program = relu_program()
    program.bind(0, x)
    program.bind(2, y)
    graph = program.capture()
    program.run(stream)
    graph.launch(1, stream)

    program.bind(0, other)
    graph.update(program)
    del x
    assert bound() is not None
    npu_cuda.synchronize("cuda", stream)
    assert (bound(), y.tolist()) == (None, [3.0] * 4)

    graph.launch(1, stream)
    npu_cuda.synchronize("cuda", stream)
    assert y.tolist() == [5.0] * 4


def copy_through_workspace(call: KernelCall) -> None:
    workspace = call.workspace.view([4], dtype="float32")
    npu_cuda.op_call(COPY, call.inputs, [workspace], stream_handle=call.stream)
    npu_cuda.op_call(COPY, [workspace], call.outputs, stream_handle=call.stream)


@needs_emulator
def test_calls_with_a_workspace_are_recorded() -> None:
    blocks: list[int] = []

    def kernel(call: KernelCall) -> None:
        blocks.append(call.workspace.data_ptr)
        copy_through_workspace(call)

    x, y, z = filled(3), filled(0), filled(0)
    before = live_objects("allocation")
    with registered(kernel, device="cuda", workspace_bytes=lambda call: 16):
        stream = npu_cuda.graph_begin("cuda")
        npu_cuda.op_call(RELU, [x], [y], stream_handle=stream)
        npu_cuda.op_call(RELU, [y], [z], stream_handle=stream)
        graph = npu_cuda.graph_end()
        assert (values(y), live_objects("allocation")) == ({0.0}, before + 1)
        npu_cuda.op_call(RELU, [z], [z])
        other = npu_cuda.graph_begin("cuda")
        npu_cuda.op_call(RELU, [x], [x], stream_handle=other)
        npu_cuda.graph_abort()

    assert blocks[0] == blocks[1]  # calls of one graph run in order
    assert len(set(blocks)) == 3
    graph.launch()
    assert (values(y), values(z)) == ({3.0}, {3.0})
    del graph
    assert live_objects("allocation") == before + 1  # that of the call which was not recorded


def test_calls_with_a_workspace_are_recorded_on_the_host() -> None:
    x, y = np.full(4, 3, np.float32), np.zeros(4, np.float32)

    def kernel(call: KernelCall) -> None:
        workspace = np.from_dlpack(call.workspace.view([4], dtype="float32"))
        workspace[:] = np.from_dlpack(call.inputs[0])
        np.from_dlpack(call.outputs[0])[:] = workspace

    with registered(kernel, workspace_bytes=lambda call: 16):
        npu_cuda.op_call(RELU, [x], [y], stream_handle=npu_cuda.graph_begin("host"))
        graph = npu_cuda.graph_end()
        x[:] = 5
        graph.launch()

    assert set(y) == {5}


@pytest.mark.parametrize("device", ["host", pytest.param("cuda", marks=needs_emulator)])
def test_captures_have_numbers(device: str) -> None:
    numbers = []
    for _ in range(2):
        stream = npu_cuda.graph_begin(device)
        numbers.append(_C.find_capture(device, stream))
        npu_cuda.graph_abort()

    assert 0 not in numbers
    assert numbers[0] != numbers[1]
    assert _C.find_capture(device, 0) == 0

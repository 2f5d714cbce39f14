"""Other threads run while a call is long, or waits for work that may need the GIL."""

import functools
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import npu_cuda
from npu_cuda import OpKind, TensorSpec
from tests.support.cuda.programs import one_op
from tests.support.emulator.module import deferred, needs_emulator
from tests.support.rows import each_row

SIDES = {"host": 640, "cuda": 96}  # of matrices whose product takes long
ATTEMPTS = 20  # on a busy machine, a thread that may run need not get a core meanwhile
Tensors = list[npu_cuda.Tensor]


@pytest.fixture(autouse=True)
def _threads_take_turns_at_waits_alone() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(100.0)
    yield
    sys.setswitchinterval(before)


def turns_during(action: Callable[[], object]) -> int:
    """Return how often another thread had the GIL during a call of `action`."""
    counter, is_over, turns = itertools.count(), threading.Event(), [0]

    def take_turns() -> None:
        while not is_over.is_set():
            turns[0] = next(counter)
            time.sleep(1e-4)

    thread = threading.Thread(target=take_turns)
    thread.start()
    while not turns[0]:
        time.sleep(1e-3)
    before = turns[0]
    action()
    taken = turns[0] - before
    is_over.set()
    thread.join()
    return taken


def others_run(attempt: Callable[[], int], beyond: int = 1) -> bool:
    """Say whether others had the GIL more often than `beyond` in some attempt."""
    return any(attempt() > beyond for _ in range(ATTEMPTS))


def matrices(device: str) -> Tensors:
    tensors = [npu_cuda.empty([SIDES[device]] * 2, device=device) for _ in range(3)]
    for tensor in tensors:
        tensor.copy_from(bytes(tensor.nbytes))
    return tensors


def multiply(tensors: Tensors) -> None:
    npu_cuda.op_call(OpKind.Gemm, tensors[:2], tensors[2:])


def program_of(tensors: Tensors) -> npu_cuda.Program:
    spec = TensorSpec("float32", tensors[0].shape)
    program = one_op(OpKind.Gemm, spec, spec, spec, device=tensors[0].device)
    program.finalize()
    for slot, tensor in enumerate(tensors):
        program.bind(slot, tensor)
    return program


@pytest.mark.parametrize("device", ["host", pytest.param("cuda", marks=needs_emulator)])
@each_row("prepare", {
    "op_call": lambda tensors: lambda: multiply(tensors),
    "a prepared call": lambda tensors: npu_cuda.prepare_call(OpKind.Gemm, tensors[:2], tensors[2:]),
    "Program.run": lambda tensors: program_of(tensors).run,
    "Program.call": lambda tensors: functools.partial(program_of(tensors).call, tensors),
    "Graph.launch": lambda tensors: program_of(tensors).capture().launch,
})  # fmt: skip
def test_other_threads_run_during_a_launch(
    prepare: Callable[[Tensors], Callable[[], object]], device: str
) -> None:
    call = prepare(matrices(device))

    assert others_run(lambda: turns_during(call))


@needs_emulator
@each_row("wait", {
    "to_bytes": lambda tensors: tensors[0].to_bytes(),
    "copy_from": lambda tensors: tensors[0].copy_from(bytes(tensors[0].nbytes)),
    "__dlpack__": lambda tensors: tensors[0].__dlpack__(),
    "synchronize": lambda _: npu_cuda.synchronize("cuda"),
    "a tensor goes": lambda tensors: tensors.pop(),
})  # fmt: skip
def test_other_threads_run_while_one_waits_for_the_device(wait: Callable[[Tensors], object]) -> None:
    def attempt() -> int:
        tensors = matrices("cuda")
        with deferred():
            multiply(tensors)
            return turns_during(lambda: wait(tensors))

    assert others_run(attempt)


def two_products(tensors: Tensors) -> npu_cuda.Program:
    spec = TensorSpec("float32", tensors[0].shape)
    program = npu_cuda.Program(tensors[0].device)
    slots = [program.slot(spec, external=external) for external in (True, False, True)]
    program.add(OpKind.Gemm, [slots[0], slots[0]], [slots[1]])
    program.add(OpKind.Gemm, [slots[1], slots[1]], [slots[2]])
    program.finalize()
    program.call(tensors[:2])
    return program


@needs_emulator
@each_row("kept", {"a program": lambda program: program, "a graph": lambda program: program.capture()})
def test_other_threads_run_while_memory_is_freed(kept: Callable[[npu_cuda.Program], object]) -> None:
    def attempt() -> int:
        tensors = matrices("cuda")
        with deferred():
            last = [kept(two_products(tensors))]
            return turns_during(last.clear)

    assert others_run(attempt)


def long_program(device: str) -> npu_cuda.Program:
    """Return a program of so many ops that it takes long to record."""
    tensors = [npu_cuda.empty([4], device=device) for _ in range(2)]
    program = npu_cuda.Program(device)
    slots = [program.slot(TensorSpec("float32", [4])) for _ in tensors]
    for _ in range({"host": 20_000, "cuda": 2_000}[device]):
        program.add(OpKind.EltwiseRelu, slots[:1], slots[1:])
    program.finalize()
    for slot, tensor in zip(slots, tensors, strict=True):
        program.bind(slot, tensor)
    return program


@pytest.mark.parametrize("device", ["host", pytest.param("cuda", marks=needs_emulator)])
@each_row(
    "record",
    {"capture": lambda program, _: program.capture(), "update": lambda program, graph: graph.update(program)},
)
def test_other_threads_run_while_a_graph_is_recorded(
    record: Callable[[npu_cuda.Program, npu_cuda.Graph], object], device: str
) -> None:
    program = long_program(device)
    graph = program.capture()

    assert others_run(lambda: turns_during(lambda: record(program, graph)), beyond=0)

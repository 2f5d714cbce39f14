"""Captures of op calls on the host: what is recorded, what breaks them, and that all is usable after."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from npu_cuda import _C
from npu_cuda._C import OpKind, TensorSpec
from npu_cuda.errors import NpuCudaError
from tests.support.cuda.programs import refused
from tests.support.rows import each_row


@pytest.fixture(autouse=True)
def _no_capture_is_left_open() -> Iterator[None]:
    yield
    with refused("no graph is being captured on host: call graph_begin"):
        _C.graph_end("host")


def double(x: np.ndarray, stream: int = 0) -> None:
    _C.op_call(OpKind.EltwiseAdd, [x, x], [x], stream_handle=stream)


def begin(mode: str = "thread_local") -> tuple[np.ndarray, int]:
    """Begin a capture; return three ones, and its stream."""
    return np.ones(3, np.float32), _C.graph_begin("host", mode)


def doubling_program(x: np.ndarray) -> _C.Program:
    program = _C.Program("host")
    slot = program.slot(TensorSpec("float32", x.shape))
    program.add(OpKind.EltwiseAdd, [slot, slot], [slot])
    program.finalize()
    program.bind(slot, x)
    return program


def assert_captures_work() -> None:
    x, stream = begin()
    double(x, stream)
    _C.graph_end("host").launch()
    np.testing.assert_array_equal(x, np.full(3, 2, np.float32))


@pytest.mark.smoke
def test_calls_on_the_stream_of_a_capture_run_with_the_graph() -> None:
    y, other = np.zeros(3, np.float32), np.ones(3, np.float32)
    x, stream = begin()
    double(x, stream)
    _C.op_call(OpKind.Copy, [x], [y], stream_handle=stream)
    double(other)  # on another stream
    graph = _C.graph_end("host")
    assert [x[0], y[0], other[0]] == [1, 0, 2]

    graph.launch(3)

    assert [x[0], y[0]] == [8, 8]
    assert [(node["op"], node["after"]) for node in graph.nodes] == [("EltwiseAdd", []), ("Copy", [0])]


def test_a_program_that_runs_on_the_stream_is_recorded_op_by_op() -> None:
    x, stream = begin()
    doubling_program(x).run(stream)
    double(x, stream)
    graph = _C.graph_end("host")
    assert x[0] == 1

    graph.launch()

    assert x[0] == 4
    assert len(graph.nodes) == 2


def test_graph_launch_launches_the_last_graph_that_ended() -> None:
    y = np.zeros(1000, np.float32)
    x, stream = begin()
    double(x, stream)
    _C.op_call(OpKind.Copy, [np.full(1000, 7, np.float32)], [y], stream_handle=stream)
    graph = _C.graph_end()
    others = [np.full(1000, index, np.float32) for index in range(8)]  # not in the memory of the first

    _C.graph_launch()

    assert (x[0], set(y), others[0][0]) == (2, {7}, 0)
    del graph
    with refused(r"graph_launch: the last graph of graph_end\(\) is gone: keep it"):
        _C.graph_launch()
    with refused(r"graph_end: no graph is being captured: call graph_begin\(\) first"):
        _C.graph_end()
    _C.graph_abort()


def allocate(_: int) -> None:
    _C.empty((4,), "float32", "host")


ONES = np.ones(3, np.float32)
GRAPH = doubling_program(ONES).capture()
IMPOSSIBLE = "is not possible while this thread captures a graph"


@each_row("action, text", {
    "memory": (allocate, rf"host: allocate\(16 bytes\) {IMPOSSIBLE}"),
    "waiting": (lambda _: _C.synchronize("host"), f"host: waiting for a stream {IMPOSSIBLE}"),
    "waiting for it": (lambda s: _C.synchronize("host", s), f"host: waiting for a stream {IMPOSSIBLE}"),
    "the capture of a program": (lambda _: doubling_program(ONES).capture(),
        f"host: a second capture {IMPOSSIBLE}"),
    "a second capture": (lambda _: _C.graph_begin("host"),
        "a graph is being captured on host already: end or abort it first"),
    "a graph": (lambda s: GRAPH.launch(1, s), "a graph does not become part of another one"),
    "a call without a kernel": (lambda s: _C.op_call(1, [ONES], [np.zeros(3, int)], stream_handle=s),
        "no kernel of EltwiseRelu"),
})  # fmt: skip
def test_what_a_capture_does_not_allow_is_refused_and_leaves_it_whole(
    action: Callable[[int], object], text: str
) -> None:
    x, stream = begin()
    with refused(text, NpuCudaError):
        action(stream)
    double(x, stream)

    _C.graph_end("host").launch()

    assert (x[0], ONES[0]) == (2, 1)
    assert_captures_work()


def allocate_in_another_thread() -> str:
    """Return what it failed with; nothing if it did not."""
    with ThreadPoolExecutor(1) as pool:
        return str(pool.submit(allocate, 0).exception() or "")


def test_the_end_names_the_call_at_which_a_capture_failed() -> None:
    x, stream = begin("global")
    double(x, stream)
    assert "which this breaks" in allocate_in_another_thread()
    with refused("EltwiseAdd by add.f32.host: this capture is broken: allocate"):
        double(x, stream)

    with refused(r"the capture failed at call 1 \(EltwiseAdd by add.f32.host\)"):
        _C.graph_end("host")

    assert x[0] == 1
    assert_captures_work()


def test_another_thread_may_allocate_unless_the_mode_is_global() -> None:
    for mode in ("thread_local", "relaxed"):
        begin(mode)
        assert allocate_in_another_thread() == ""
        _C.graph_end("host")

    begin("global")
    failure = allocate_in_another_thread()
    assert "allocate(16 bytes) while another thread captures a graph in mode global" in failure
    with refused("this capture is broken: allocate"):
        _C.graph_end("host")


def test_an_aborted_capture_leaves_all_usable() -> None:
    x, stream = begin()
    double(x, stream)
    _C.graph_abort("host")

    with refused("host: there is no such stream"):
        double(x, stream)

    assert x[0] == 1
    assert_captures_work()

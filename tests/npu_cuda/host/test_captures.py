"""Captures of op calls on the host: what is recorded, what breaks them, and that all is usable after."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from npu_cuda import _C
from npu_cuda._C import OpKind, TensorSpec
from npu_cuda.errors import NotSupportedError, NpuCudaError
from tests.support.cuda.programs import refused


@pytest.fixture(autouse=True)
def _no_capture_is_left_open() -> Iterator[None]:
    yield
    with refused("no graph is being captured on host: call graph_begin"):
        _C.graph_end("host")


def double(x: np.ndarray, stream: int = 0) -> None:
    _C.op_call(OpKind.EltwiseAdd, [x, x], [x], stream_handle=stream)


def doubling_program(x: np.ndarray) -> _C.Program:
    program = _C.Program("host")
    slot = program.slot(TensorSpec("float32", x.shape))
    program.add(OpKind.EltwiseAdd, [slot, slot], [slot])
    program.finalize()
    program.bind(slot, x)
    return program


def assert_captures_work() -> None:
    x = np.ones(3, np.float32)
    stream = _C.graph_begin("host")
    double(x, stream)
    _C.graph_end("host").launch()
    np.testing.assert_array_equal(x, np.full(3, 2, np.float32))


@pytest.mark.smoke
def test_calls_on_the_stream_of_a_capture_run_with_the_graph() -> None:
    x, y = np.ones(3, np.float32), np.zeros(3, np.float32)
    stream = _C.graph_begin("host")
    double(x, stream)
    _C.op_call(OpKind.Copy, [x], [y], stream_handle=stream)
    other = np.ones(3, np.float32)
    double(other)  # on another stream
    graph = _C.graph_end("host")
    assert [x[0], y[0], other[0]] == [1, 0, 2]

    graph.launch(3)

    assert [x[0], y[0]] == [8, 8]
    assert [(node["op"], node["after"]) for node in graph.nodes] == [("EltwiseAdd", []), ("Copy", [0])]


def test_a_program_that_runs_on_the_stream_is_recorded_op_by_op() -> None:
    x = np.ones(3, np.float32)
    program = doubling_program(x)
    stream = _C.graph_begin("host")
    program.run(stream)
    double(x, stream)
    graph = _C.graph_end("host")
    assert x[0] == 1

    graph.launch()

    assert x[0] == 4
    assert len(graph.nodes) == 2


def test_graph_launch_launches_the_last_graph_that_ended() -> None:
    x = np.ones(3, np.float32)
    stream = _C.graph_begin("host")
    double(x, stream)
    _C.graph_end()

    _C.graph_launch()

    assert x[0] == 2
    with refused(r"graph_end: no graph is being captured: call graph_begin\(\) first"):
        _C.graph_end()
    _C.graph_abort()


def test_a_graph_keeps_the_tensors_of_its_calls() -> None:
    y = np.zeros(1000, np.float32)
    stream = _C.graph_begin("host")
    _C.op_call(OpKind.Copy, [np.full(1000, 7, np.float32)], [y], stream_handle=stream)
    graph = _C.graph_end("host")
    others = [np.full(1000, index, np.float32) for index in range(8)]

    graph.launch()

    assert others[0][0] == 0
    np.testing.assert_array_equal(y, np.full(1000, 7, np.float32))


def test_a_call_that_is_refused_before_its_launch_leaves_the_capture_whole() -> None:
    x = np.ones(3, np.float32)
    stream = _C.graph_begin("host")
    with pytest.raises(NotSupportedError, match="no kernel of EltwiseRelu"):
        _C.op_call(OpKind.EltwiseRelu, [x], [np.zeros(3, np.int32)], stream_handle=stream)
    double(x, stream)

    _C.graph_end("host").launch()

    assert x[0] == 2


def allocate(_: int) -> None:
    _C.empty((4,), "float32", "host")


REFUSED: dict[str, tuple[Callable[[int], object], str]] = {
    "memory": (allocate, r"allocate\(16 bytes\)"),
    "waiting": (lambda _: _C.synchronize("host"), "waiting for a stream"),
    "waiting for it": (lambda s: _C.synchronize("host", s), "waiting for a stream"),
    "the capture of a program": (
        lambda _: doubling_program(np.ones(3, np.float32)).capture(),
        "a second capture",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_a_capture_does_not_allow_is_refused_and_leaves_it_whole(case: str) -> None:
    action, text = REFUSED[case]
    x = np.ones(3, np.float32)
    stream = _C.graph_begin("host")
    with refused(f"host: {text} is not possible while this thread captures a graph"):
        action(stream)
    double(x, stream)

    _C.graph_end("host").launch()

    assert x[0] == 2
    assert_captures_work()


def allocate_in_another_thread() -> str:
    """Return what it failed with; nothing if it did not."""
    failures: list[NpuCudaError] = []

    def work() -> None:
        try:
            allocate(0)
        except NpuCudaError as error:
            failures.append(error)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    return "".join(map(str, failures))


def test_the_end_names_the_call_at_which_a_capture_failed() -> None:
    x = np.ones(3, np.float32)
    stream = _C.graph_begin("host", "global")
    double(x, stream)
    assert "which this breaks" in allocate_in_another_thread()
    with refused("EltwiseAdd by add.f32.host: this capture is broken: allocate"):
        double(x, stream)

    with refused(r"the capture failed at call 1 \(EltwiseAdd by add.f32.host\)"):
        _C.graph_end("host")

    assert x[0] == 1
    assert_captures_work()


@pytest.mark.parametrize("mode", ["thread_local", "global", "relaxed"])
def test_another_thread_may_allocate_unless_the_mode_is_global(mode: str) -> None:
    _C.graph_begin("host", mode)

    failure = allocate_in_another_thread()

    if mode == "global":
        assert "allocate(16 bytes) while another thread captures a graph in mode global" in failure
        with refused("this capture is broken: allocate"):
            _C.graph_end("host")
    else:
        assert failure == ""
        _C.graph_end("host")


def test_a_second_capture_of_calls_is_refused_and_the_first_goes_on() -> None:
    x = np.ones(3, np.float32)
    stream = _C.graph_begin("host")
    with refused("a graph is being captured on host already: end or abort it first"):
        _C.graph_begin("host")
    double(x, stream)

    _C.graph_end("host").launch()

    assert x[0] == 2


def test_a_graph_is_not_launched_into_a_capture() -> None:
    x = np.ones(3, np.float32)
    graph = doubling_program(x).capture()
    stream = _C.graph_begin("host")

    with refused("a graph does not become part of another one"):
        graph.launch(1, stream)

    assert _C.graph_end("host").nodes == []
    assert x[0] == 1


def test_an_aborted_capture_leaves_all_usable() -> None:
    x = np.ones(3, np.float32)
    stream = _C.graph_begin("host")
    double(x, stream)
    _C.graph_abort("host")

    with refused("host: there is no such stream"):
        double(x, stream)

    assert x[0] == 1
    assert_captures_work()

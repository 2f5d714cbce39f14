"""Streams of the emulated runtime: rules of capture, with the errors of CUDA, and deferred work."""

import ctypes
import itertools
import threading
from collections.abc import Callable
from typing import TypeVar

import numpy as np
import pytest

from tests.support.emulator.library import (
    DEVICE_TO_DEVICE,
    GLOBAL,
    HOST_TO_DEVICE,
    LEGACY,
    PER_THREAD,
    RELAXED,
    THREAD_LOCAL,
    Emulator,
)

T = TypeVar("T")
MODES = [GLOBAL, THREAD_LOCAL, RELAXED]


def on_another_thread(call: Callable[[], T]) -> T:
    results: list[T] = []
    thread = threading.Thread(target=lambda: results.append(call()))
    thread.start()
    thread.join()
    return results[0]


def test_unsafe_calls_break_captures_by_their_mode(emulator: Emulator, stream: ctypes.c_void_p) -> None:
    memory = ctypes.c_void_p()

    def allocate() -> str:
        memory.value = None
        return emulator("cudaMalloc", ctypes.byref(memory), 16)

    cases: list[tuple[Callable[[], str], list[int]]] = [
        (allocate, [GLOBAL, THREAD_LOCAL]),
        (lambda: on_another_thread(allocate), [GLOBAL]),
        (lambda: emulator("cudaStreamSynchronize", stream), MODES),
        (lambda: on_another_thread(lambda: emulator("cudaDeviceSynchronize")), MODES),
    ]
    for (call, breaks), mode in itertools.product(cases, MODES):
        emulator.check("cudaStreamBeginCapture", stream, mode)

        error, status = call(), emulator.status(stream)
        if mode in breaks:
            assert (error, status) == ("cudaErrorStreamCaptureUnsupported", "invalidated")
            assert emulator("cudaStreamSynchronize", stream) == "cudaErrorStreamCaptureInvalidated"
        ended, graph = emulator.end_capture(stream)

        if mode in breaks:
            assert (ended, graph.value) == ("cudaErrorStreamCaptureInvalidated", None)
        else:
            assert (error, status, ended) == ("cudaSuccess", "active", "cudaSuccess")
            emulator.check("cudaFree", memory)
            emulator.check("cudaGraphDestroy", graph)
        assert emulator.status(stream) == "none"


@pytest.mark.parametrize("handle", [0, LEGACY])
def test_the_legacy_stream_breaks_captures_of_blocking_streams_only(emulator: Emulator, handle: int) -> None:
    x, y = np.ones(8, np.float32), np.zeros(8, np.float32)
    blocking, other = emulator.stream(0), emulator.stream()
    for stream in (blocking, other):
        emulator.check("cudaStreamBeginCapture", stream, THREAD_LOCAL)

    error = emulator.run("scale", ctypes.c_void_p(handle), x, y, np.float32(3), 8)

    assert "cudaErrorStreamCaptureImplicit (906)" in error
    assert (emulator.status(blocking), emulator.status(other)) == ("invalidated", "active")
    assert emulator.end_capture(blocking)[0] == "cudaErrorStreamCaptureInvalidated"
    assert emulator.run("scale", ctypes.c_void_p(handle), x, y, np.float32(3), 8) == ""
    emulator.check("cudaGraphDestroy", emulator.end_capture(other)[1])
    for stream in (blocking, other):
        emulator.check("cudaStreamDestroy", stream)
    assert emulator.live() == 0


def test_copies_and_fills_are_recorded(emulator: Emulator, stream: ctypes.c_void_p) -> None:
    x, y = np.arange(8, dtype=np.float32), np.full(8, np.nan, np.float32)
    emulator.check("cudaStreamBeginCapture", stream, THREAD_LOCAL)
    emulator.check("cudaMemsetAsync", y, 0, y.nbytes, stream)
    emulator.check("cudaMemcpyAsync", y, x, 16, DEVICE_TO_DEVICE, stream)
    graph = emulator.end_capture(stream)[1]
    exec_ = emulator.create("cudaGraphInstantiate", graph, 0)
    assert np.isnan(y).all()

    emulator.check("cudaGraphDestroy", graph)
    emulator.check("cudaGraphLaunch", exec_, stream)
    emulator.check("cudaGraphExecDestroy", exec_)

    np.testing.assert_array_equal(y, [0, 1, 2, 3, 0, 0, 0, 0])


def test_captures_begin_and_end_once(emulator: Emulator, stream: ctypes.c_void_p) -> None:
    for each in (stream, ctypes.c_void_p(PER_THREAD)):
        assert emulator.end_capture(each)[0] == "cudaErrorIllegalState"
        emulator.check("cudaStreamBeginCapture", each, THREAD_LOCAL)
        assert emulator("cudaStreamBeginCapture", each, THREAD_LOCAL) == "cudaErrorIllegalState"

        emulator.check("cudaGraphDestroy", emulator.end_capture(each)[1])
    for legacy in (0, LEGACY):
        assert emulator("cudaStreamBeginCapture", legacy, RELAXED) == "cudaErrorStreamCaptureUnsupported"


@pytest.mark.parametrize("mode", MODES)
def test_only_relaxed_captures_end_on_another_thread(
    emulator: Emulator, stream: ctypes.c_void_p, mode: int
) -> None:
    emulator.check("cudaStreamBeginCapture", stream, mode)

    error, graph = on_another_thread(lambda: emulator.end_capture(stream))
    if mode != RELAXED:
        assert (error, graph.value) == ("cudaErrorStreamCaptureWrongThread", None)
        error, graph = emulator.end_capture(stream)

    assert error == "cudaSuccess"
    emulator.check("cudaGraphDestroy", graph)


@pytest.fixture
def deferred(emulator: Emulator) -> Emulator:
    emulator.set_deferred(True)
    return emulator


def copy(emulator: Emulator, stream: ctypes.c_void_p | int, source: np.ndarray, target: np.ndarray) -> None:
    emulator.check("cudaMemcpyAsync", target, source, source.nbytes, DEVICE_TO_DEVICE, stream)


def arrays(count: int) -> list[np.ndarray]:
    return [np.full(4, i, np.float32) for i in range(count)]


def test_work_waits_until_its_stream_is_waited_for(deferred: Emulator) -> None:
    a, b, c = arrays(3)
    first, second = deferred.stream(), deferred.stream()
    copy(deferred, first, a, b)
    copy(deferred, second, a, c)

    assert (b[0], c[0]) == (1, 2)
    deferred.check("cudaStreamSynchronize", first)
    assert (b[0], c[0]) == (0, 2)  # nothing asked for the other stream
    deferred.check("cudaStreamSynchronize", second)
    assert c[0] == 0
    for stream in (first, second):
        deferred.check("cudaStreamDestroy", stream)


@pytest.mark.parametrize(("flags", "ordered"), [(0, True), (1, False)])
def test_the_legacy_stream_waits_for_blocking_streams_only(
    deferred: Emulator, flags: int, ordered: bool
) -> None:
    a, b, c, d = arrays(4)
    stream = deferred.stream(flags)
    copy(deferred, stream, a, b)
    copy(deferred, LEGACY, b, c)
    deferred.check("cudaStreamSynchronize", LEGACY)
    before = c[0]
    copy(deferred, LEGACY, a, c)
    copy(deferred, stream, c, d)
    deferred.check("cudaStreamSynchronize", stream)

    assert (before, d[0]) == ((0, 0) if ordered else (1, 1))
    deferred.check("cudaStreamDestroy", stream)


def test_host_memory_may_change_after_a_copy_to_the_device_was_queued(deferred: Emulator) -> None:
    host = np.ones(4, np.float32)
    memory, stream = deferred.create("cudaMalloc", host.nbytes), deferred.stream()

    deferred.check("cudaMemcpyAsync", memory, host, host.nbytes, HOST_TO_DEVICE, stream)
    host[:] = 2
    deferred.check("cudaStreamSynchronize", stream)

    assert ctypes.cast(memory, ctypes.POINTER(ctypes.c_float))[0] == 1
    deferred.check("cudaStreamDestroy", stream)
    deferred.check("cudaFree", memory)
    assert deferred.live() == 0


def test_a_failing_kernel_is_reported_by_the_call_that_waits(deferred: Emulator) -> None:
    x = np.full(32, -1, np.float32)

    assert deferred.run("trap", x) == ""
    deferred.check("cudaGetLastError")

    assert deferred("cudaDeviceSynchronize") == "cudaErrorLaunchFailure"
    assert deferred.report().endswith("thread (0,0,0): __trap()")

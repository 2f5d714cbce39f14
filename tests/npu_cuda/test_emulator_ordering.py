"""Deferred work runs when something waits for it, in an order that only streams and events restrict."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.support.emulator.library import (
    DEVICE_TO_DEVICE,
    HOST_TO_DEVICE,
    LEGACY,
    SCHEDULES,
    Emulator,
    fresh_emulator,
)

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    for emulator in fresh_emulator():
        emulator.set_deferred(True)
        yield emulator


def copy(emulator: Emulator, stream: ctypes.c_void_p | int, source: np.ndarray, target: np.ndarray) -> None:
    emulator.check("cudaMemcpyAsync", target, source, source.nbytes, DEVICE_TO_DEVICE, stream)


def arrays(count: int) -> list[np.ndarray]:
    return [np.full(4, i, np.float32) for i in range(count)]


def test_work_waits_until_its_stream_is_waited_for(emulator: Emulator) -> None:
    a, b, c = arrays(3)
    first, second = emulator.stream(), emulator.stream()
    copy(emulator, first, a, b)
    copy(emulator, second, a, c)

    assert (b[0], c[0]) == (1, 2)
    emulator.check("cudaStreamSynchronize", first)
    assert (b[0], c[0]) == (0, 2)  # nothing asked for the other stream
    assert emulator("cudaStreamQuery", second) == "cudaErrorNotReady"
    emulator.check("cudaStreamQuery", second)
    assert c[0] == 0
    for stream in (first, second):
        emulator.check("cudaStreamDestroy", stream)


@pytest.mark.parametrize("ordered", [True, False])
def test_a_dependency_between_streams_needs_an_event(emulator: Emulator, ordered: bool) -> None:
    results = set()
    first, second = emulator.stream(), emulator.stream()
    event = emulator.create("cudaEventCreate")
    for schedule in SCHEDULES:
        a, b, c = arrays(3)
        emulator.set_schedule(schedule)
        copy(emulator, first, a, b)
        if ordered:
            emulator.check("cudaEventRecord", event, first)
            emulator.check("cudaStreamWaitEvent", second, event, 0)
        copy(emulator, second, b, c)
        emulator.check("cudaStreamSynchronize", second)
        results.add(c[0].item())
        emulator.check("cudaDeviceSynchronize")

    assert results == ({0.0} if ordered else {1.0})
    emulator.check("cudaEventDestroy", event)
    for stream in (first, second):
        emulator.check("cudaStreamDestroy", stream)


@pytest.mark.parametrize(("flags", "ordered"), [(0, True), (1, False)])
def test_the_legacy_stream_waits_for_blocking_streams_only(
    emulator: Emulator, flags: int, ordered: bool
) -> None:
    a, b, c, d = arrays(4)
    stream = emulator.stream(flags)
    copy(emulator, stream, a, b)
    copy(emulator, LEGACY, b, c)
    emulator.check("cudaStreamSynchronize", LEGACY)
    before = c[0]
    copy(emulator, LEGACY, a, c)
    copy(emulator, stream, c, d)
    emulator.check("cudaStreamSynchronize", stream)

    assert (before, d[0]) == ((0, 0) if ordered else (1, 1))
    emulator.check("cudaStreamDestroy", stream)


def test_host_memory_may_change_after_a_copy_to_the_device_was_queued(emulator: Emulator) -> None:
    host = np.ones(4, np.float32)
    pinned = emulator.create("cudaMallocHost", host.nbytes)
    memory = emulator.create("cudaMalloc", 2 * host.nbytes)
    stream = emulator.stream()
    in_pinned = np.ctypeslib.as_array(ctypes.cast(pinned, ctypes.POINTER(ctypes.c_float)), (4,))
    in_pinned[:] = 1
    device = ctypes.cast(memory, ctypes.POINTER(ctypes.c_float))
    second = ctypes.c_void_p((memory.value or 0) + host.nbytes)

    emulator.check("cudaMemcpyAsync", memory, host, host.nbytes, HOST_TO_DEVICE, stream)
    emulator.check("cudaMemcpyAsync", second, pinned, host.nbytes, HOST_TO_DEVICE, stream)
    host[:] = in_pinned[:] = 2
    emulator.check("cudaStreamSynchronize", stream)

    assert (device[0], device[4]) == (1, 2)  # pinned memory is read when the copy runs
    emulator.check("cudaStreamDestroy", stream)
    emulator.check("cudaFreeHost", pinned)
    emulator.check("cudaFree", memory)
    assert emulator.live() == 0


def test_a_failing_kernel_is_reported_by_the_call_that_waits(emulator: Emulator) -> None:
    x = np.full(32, -1, np.float32)

    assert emulator.run("trap", x) == ""
    emulator.check("cudaGetLastError")

    assert emulator("cudaDeviceSynchronize") == "cudaErrorLaunchFailure"
    assert emulator.report().endswith("thread (0,0,0): __trap()")

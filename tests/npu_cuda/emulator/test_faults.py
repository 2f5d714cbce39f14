"""Calls of the emulated runtime fail on demand: once, cleanly, and nothing is left behind."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.support.emulator.library import THREAD_LOCAL, Emulator

OUT_OF_MEMORY, UNKNOWN = 2, 999


class FailedError(Exception):
    """A call failed; names it and the error."""


def capture_and_replay(emulator: Emulator) -> list[float]:
    """Do all that a capture needs, releasing everything however it ends."""
    release: list[tuple[str, ctypes.c_void_p]] = []

    def run(function: str, *arguments: object) -> None:
        if (error := emulator(function, *arguments)) != "cudaSuccess":
            raise FailedError(f"{function}: {error}")

    def create(release_by: str, function: str, *arguments: object) -> ctypes.c_void_p:
        handle = ctypes.c_void_p()
        run(function, ctypes.byref(handle), *arguments)
        release.append((release_by, handle))
        return handle

    try:
        stream = create("cudaStreamDestroy", "cudaStreamCreateWithFlags", 1)
        memory = create("cudaFree", "cudaMalloc", 16)
        x = np.ones(4, np.float32)
        graph = ctypes.c_void_p()
        run("cudaStreamBeginCapture", stream, THREAD_LOCAL)
        try:
            if error := emulator.run("scale", stream, x, memory, np.float32(3), 4):
                raise FailedError(error)
        finally:
            error = emulator("cudaStreamEndCapture", stream, ctypes.byref(graph))
            if graph.value is not None:
                release.append(("cudaGraphDestroy", graph))
        if error != "cudaSuccess":
            raise FailedError(f"cudaStreamEndCapture: {error}")
        exec_ = create("cudaGraphExecDestroy", "cudaGraphInstantiate", graph, 0)
        run("cudaGraphUpload", exec_, stream)
        run("cudaGraphLaunch", exec_, stream)
        run("cudaStreamSynchronize", stream)
        return list(ctypes.cast(memory, ctypes.POINTER(ctypes.c_float))[:4])
    finally:
        for function, handle in reversed(release):
            emulator(function, handle)


CALLS = [
    "cudaStreamCreateWithFlags",
    "cudaMalloc",
    "cudaStreamBeginCapture",
    "cudaLaunchKernelEx",
    "cudaStreamEndCapture",
    "cudaGraphInstantiate",
    "cudaGraphUpload",
    "cudaGraphLaunch",
    "cudaStreamSynchronize",
]


@pytest.mark.parametrize("k", range(1, len(CALLS) + 1))
def test_the_kth_call_fails_once_and_nothing_is_left(emulator: Emulator, k: int) -> None:
    emulator.fail_call(None, k, UNKNOWN)

    with pytest.raises(FailedError, match=rf"^{CALLS[k - 1]}: cudaErrorUnknown"):
        capture_and_replay(emulator)

    assert emulator.live() == 0
    assert emulator.library.npu_emulator_live_bytes() == 0
    assert emulator("cudaGetLastError") == "cudaErrorUnknown"
    assert emulator("cudaGetLastError") == "cudaSuccess"
    assert capture_and_replay(emulator) == [3, 3, 3, 3]
    assert emulator.live() == 0


def test_without_a_failure_each_call_is_counted(emulator: Emulator) -> None:
    assert capture_and_replay(emulator) == [3, 3, 3, 3]

    assert {name: emulator.calls(name) for name in CALLS} == dict.fromkeys(CALLS, 1)
    assert emulator.calls() == len(CALLS) + 4  # and what releases
    emulator.reset()
    assert emulator.calls() == 0


def test_what_releases_does_so_even_when_it_fails(emulator: Emulator) -> None:
    for function in ["cudaFree", "cudaGraphDestroy", "cudaGraphExecDestroy", "cudaStreamDestroy"]:
        emulator.fail_call(function, 1, UNKNOWN)

        capture_and_replay(emulator)

        assert emulator("cudaGetLastError") == "cudaErrorUnknown"
        assert emulator.live() == 0


def test_a_failure_of_one_function_leaves_the_others(emulator: Emulator) -> None:
    emulator.fail_call("cudaMalloc", 2, OUT_OF_MEMORY)
    memory = emulator.create("cudaMalloc", 16)

    assert emulator("cudaMalloc", ctypes.byref(ctypes.c_void_p()), 16) == "cudaErrorMemoryAllocation"

    emulator.check("cudaFree", memory)


def test_memory_ends(emulator: Emulator) -> None:
    error = emulator("cudaMalloc", ctypes.byref(ctypes.c_void_p()), ctypes.c_size_t(5 << 30))

    assert error == "cudaErrorMemoryAllocation"


def test_handles_and_pointers_are_checked(emulator: Emulator) -> None:
    stream = emulator.stream()
    memory = emulator.create("cudaMalloc", 16)
    emulator.check("cudaStreamDestroy", stream)
    emulator.check("cudaFree", memory)

    assert emulator("cudaStreamSynchronize", stream) == "cudaErrorInvalidResourceHandle"
    assert emulator("cudaStreamDestroy", stream) == "cudaErrorInvalidResourceHandle"
    assert emulator("cudaFree", memory) == "cudaErrorInvalidValue"
    assert emulator("cudaGraphLaunch", memory, None) == "cudaErrorInvalidValue"


def test_copies_that_leave_an_allocation_are_refused(emulator: Emulator) -> None:
    memory = emulator.create("cudaMalloc", 16)
    x = np.zeros(5, np.float32)

    assert emulator("cudaMemcpyAsync", memory, x, 20, 1, None) == "cudaErrorInvalidValue"
    assert emulator("cudaMemsetAsync", memory, 0, 17, None) == "cudaErrorInvalidValue"

    emulator.check("cudaFree", memory)

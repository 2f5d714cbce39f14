"""Calls of the emulated runtime that fail: on demand, or for what they are given."""

import ctypes

import numpy as np

from tests.support.emulator.library import Emulator


def test_the_kth_call_of_a_function_fails_once(emulator: Emulator) -> None:
    emulator.fail_call("cudaMalloc", 2, 2)
    memory = emulator.create("cudaMalloc", 16)

    assert emulator("cudaMalloc", ctypes.byref(ctypes.c_void_p()), 16) == "cudaErrorMemoryAllocation"
    assert emulator("cudaGetLastError") == "cudaErrorMemoryAllocation"
    assert emulator("cudaGetLastError") == "cudaSuccess"

    emulator.check("cudaFree", memory)
    assert (emulator.calls("cudaMalloc"), emulator.calls()) == (2, 3)
    emulator.reset()
    assert emulator.calls() == 0


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

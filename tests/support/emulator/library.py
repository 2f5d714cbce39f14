"""The emulator and its CUDA runtime, called from Python through ctypes."""

from __future__ import annotations

import ctypes
import functools
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.support.emulator.building import require_compiler, shared_library

if TYPE_CHECKING:
    from collections.abc import Iterator

GLOBAL, THREAD_LOCAL, RELAXED = 0, 1, 2  # capture modes
NON_BLOCKING = 1
LEGACY, PER_THREAD = 1, 2  # handles
HOST_TO_DEVICE, DEVICE_TO_DEVICE = 1, 3  # kinds of copies
SCHEDULES = [0, 1, 2, 3, 4]


class Emulator:
    """Call functions by name; pointers are arrays or ``c_void_p``, CUDA functions return an error name."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        for name in ("cudaGetErrorName", "npu_emulator_last_report"):
            getattr(library, name).restype = ctypes.c_char_p
        for name in ("npu_emulator_calls", "npu_emulator_live_bytes", "npu_emulator_live_objects"):
            getattr(library, name).restype = ctypes.c_int64

    def __call__(self, function: str, *arguments: Any) -> str:
        error = getattr(self.library, function)(*map(as_argument, arguments))
        return str(self.library.cudaGetErrorName(error).decode())

    def check(self, function: str, *arguments: Any) -> None:
        assert self(function, *arguments) == "cudaSuccess", function

    def run(self, kernel: str, *arguments: Any) -> str:
        """Launch through a function of a .cu file; returns its error, or an empty text."""
        function = getattr(self.library, f"run_{kernel}")
        function.restype = ctypes.c_char_p
        return str(function(*map(as_argument, arguments)).decode())

    def create(self, function: str, *arguments: Any) -> ctypes.c_void_p:
        """Return the handle or address that a function gives back through its first argument."""
        handle = ctypes.c_void_p()
        self.check(function, ctypes.byref(handle), *arguments)
        return handle

    def stream(self, flags: int = NON_BLOCKING) -> ctypes.c_void_p:
        return self.create("cudaStreamCreateWithFlags", flags)

    def end_capture(self, stream: ctypes.c_void_p) -> tuple[str, ctypes.c_void_p]:
        graph = ctypes.c_void_p(0xBAD)
        return self("cudaStreamEndCapture", stream, ctypes.byref(graph)), graph

    def status(self, stream: ctypes.c_void_p) -> str:
        status = ctypes.c_int(-1)
        self.check("cudaStreamIsCapturing", stream, ctypes.byref(status))
        return ["none", "active", "invalidated"][status.value]

    def live(self, kind: str | None = None) -> int:
        return int(self.library.npu_emulator_live_objects(kind.encode() if kind else None))

    def calls(self, function: str | None = None) -> int:
        return int(self.library.npu_emulator_calls(function.encode() if function else None))

    def report(self) -> str:
        return str(self.library.npu_emulator_last_report().decode())

    def set_schedule(self, schedule: int) -> None:
        self.library.npu_emulator_set_schedule(schedule)

    def schedules(self) -> Iterator[int]:
        """Yield each schedule while it is set."""
        for schedule in SCHEDULES:
            self.set_schedule(schedule)
            yield schedule

    def set_deferred(self, deferred: bool) -> None:
        self.library.npu_emulator_set_deferred(int(deferred))

    def fail_call(self, function: str | None, k: int, error: int) -> None:
        self.library.npu_emulator_fail_call(function.encode() if function else None, ctypes.c_int64(k), error)

    def reset(self) -> None:
        self.library.npu_emulator_reset()


def as_argument(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return ctypes.c_void_p(value.ctypes.data)
    if isinstance(value, np.float32):
        return ctypes.c_float(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return ctypes.c_int64(value)  # also right where an int is asked for, on the machines that we test on
    return None if value is None else value


@functools.cache
def load() -> Emulator:
    require_compiler()
    return Emulator(ctypes.CDLL(str(shared_library("kernels.cu", "planted_bugs.cu"))))


def fresh_emulator() -> Iterator[Emulator]:
    """Yield the emulator as at its start; the body of a fixture."""
    emulator = load()
    emulator.reset()
    yield emulator
    emulator.reset()

"""The emulator inside npu_cuda, in a build that has it; `needs_emulator` marks tests for that build."""

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from npu_cuda import _C

needs_emulator = pytest.mark.skipif(
    _C.build_info()["mode"] != "EMULATE", reason="this build of npu-cuda has no emulator"
)


@contextmanager
def deferred() -> Iterator[None]:
    """Have work on cuda wait until something synchronizes with it, for a while."""
    library = ctypes.CDLL(_C.__file__)
    library.npu_emulator_set_deferred(1)
    try:
        yield
    finally:
        library.npu_emulator_set_deferred(0)


@contextmanager
def ordered(schedule: int) -> Iterator[None]:
    """Have threads and blocks run in an order for a while: 0 as written, 1 reversed, else a random one."""
    _C.emulator_set_schedule(schedule)  # type: ignore[attr-defined]  # only in a build with the emulator
    try:
        yield
    finally:
        _C.emulator_set_schedule(0)  # type: ignore[attr-defined]


def live_objects(kind: str) -> int:
    """Return how many there are of a kind: "stream", "allocation", "event"."""
    count = ctypes.CDLL(_C.__file__).npu_emulator_live_objects
    count.restype = ctypes.c_int64
    return int(count(kind.encode()))

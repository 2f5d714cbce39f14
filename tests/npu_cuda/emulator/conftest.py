"""The emulator as at its start, and a stream of it; nothing may be left alive."""

import ctypes
from collections.abc import Iterator

import pytest

from tests.support.emulator.library import Emulator, fresh_emulator


@pytest.fixture
def emulator() -> Iterator[Emulator]:
    yield from fresh_emulator()


@pytest.fixture
def streams(emulator: Emulator) -> Iterator[list[ctypes.c_void_p]]:
    streams = [emulator.stream() for _ in range(2)]
    yield streams
    for stream in streams:
        emulator("cudaStreamDestroy", stream)
    assert emulator.live() == 0


@pytest.fixture
def stream(streams: list[ctypes.c_void_p]) -> ctypes.c_void_p:
    return streams[0]

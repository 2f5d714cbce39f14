"""A compiler for run time that makes code for the emulator: `nvrtc.cpp` in the place of NVRTC."""

import functools
from pathlib import Path

import pytest

from tests.support.emulator.building import HERE, build_folder, digest, require_compiler, run_compiler

HEADER = HERE / "run_time_text.h"


@functools.cache
def library() -> Path:
    require_compiler()
    source = HERE / "nvrtc.cpp"
    target = build_folder() / f"libnvrtc-{digest(source.read_bytes())}.so"
    return run_compiler(target, "-std=c++20", "-O1", "-fPIC", "-shared", source)


def environment(cache: Path | str = "off") -> dict[str, str]:
    """Return the variables with which chains on the emulated GPU are compiled, by g++."""
    return {"NPU_NVRTC": str(library()), "NPU_FAKE_NVRTC_HEADER": str(HEADER), "NPU_CUDA_CACHE": str(cache)}


@pytest.fixture
def run_time_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    """Chains on the emulated GPU are compiled; those of earlier runs with the same header are kept."""
    cache = build_folder() / f"chains-{digest(HEADER.read_bytes(), library())}"
    for name, value in environment(cache).items():
        monkeypatch.setenv(name, value)

"""Compiles the emulator and kernels for it by g++, once for each state of the sources."""

import functools
import hashlib
import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.support.places import ROOT

HERE = Path(__file__).parent
PACKAGE = ROOT / "packages" / "npu-cuda"
CSRC = PACKAGE / "csrc"
SCENARIOS = ROOT / "tests" / "npu_cuda" / "cuda" / "scenarios"
# The flags that csrc/emulator/emulator_control.h names; debug information only where the sanitizer shows
# lines.
FLAGS = [
    *("-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", "-DNPU_WITH_CUDA", "-DNPU_EMULATE", "-fPIC"),
    *("-fno-strict-aliasing", "-ffp-contract=off", "-fno-gnu-unique"),
    *("-I", str(CSRC), "-I", str(PACKAGE / "src" / "npu_cuda" / "include")),
]
ASAN = ["-fsanitize=address", "-fno-omit-frame-pointer", "-g"]


@functools.cache
def cuda_headers() -> Path | None:
    """Return the folder of CUDA's headers: of the toolkit, or of the wheels cuda-toolkit[cudart,crt]."""
    nvcc = shutil.which("nvcc")
    folders = [Path(os.environ["NPU_CUDA_INCLUDE"])] if "NPU_CUDA_INCLUDE" in os.environ else []
    folders += [Path(os.environ["CUDA_PATH"], "include")] if "CUDA_PATH" in os.environ else []
    folders += [Path(nvcc).resolve().parent.parent / "include"] if nvcc else []
    folders += [Path("/usr/local/cuda/include")]
    return next((folder for folder in folders if (folder / "cuda_runtime.h").exists()), None)


def require_compiler() -> None:
    if shutil.which("g++") is None:
        pytest.skip("the emulator is compiled by g++, which is not on PATH")
    if cuda_headers() is None:
        pytest.skip("the emulator needs the headers of CUDA 13: install the toolkit, or set NPU_CUDA_INCLUDE")


# What most sources include; parsed once for all of them.
PREFIX = """#include <cuda_runtime_api.h>
#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>
"""


@functools.cache
def build_folder() -> Path:
    """Return where object files lie, for every process that runs tests."""
    folder = ROOT / "build" / "emulator"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def headers() -> bytes:
    folders = (CSRC, PACKAGE / "src" / "npu_cuda" / "include", SCENARIOS, HERE)
    return b"".join(path.read_bytes() for folder in folders for path in sorted(folder.rglob("*.h")))


def digest(*parts: object) -> str:
    content = b"".join(part if isinstance(part, bytes) else str(part).encode() for part in parts)
    return hashlib.sha256(content).hexdigest()[:16]


def run_compiler(target: Path, *arguments: str | Path) -> Path:
    """Make a file, if it is not there; it appears when it is whole."""
    if target.exists():
        return target
    made = target.with_name(f"{os.getpid()}-{target.name}")
    command = ["g++", *map(str, arguments), "-o", str(made)]
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stderr}"
    made.replace(target)
    return target


@functools.cache
def precompiled() -> Path:
    """Return the header to include first, which g++ finds precompiled beside it."""
    flags = (*FLAGS, "-isystem", str(cuda_headers()))
    header = build_folder() / f"{digest(PREFIX, *flags)}.h"
    header.write_text(PREFIX)
    run_compiler(header.with_name(f"{header.name}.gch"), *flags, "-xc++-header", header)
    return header


def compile_file(source: Path, *flags: str) -> Path:
    """Return the object file of a source; without optimization where no flags are given."""
    flags = flags or ("-include", str(precompiled()))
    target = build_folder() / f"{source.stem}-{digest(headers(), source.read_bytes(), *flags)}.o"
    language = ["-xc++"] if source.suffix == ".cu" else []
    include = ("-I", str(SCENARIOS), "-isystem", str(cuda_headers()))
    return run_compiler(target, *FLAGS, *include, *flags, *language, "-c", source)


def link(name: str, objects: list[Path], *flags: str) -> Path:
    """Return a program or library of object files and the emulator; `name` begins its name."""
    parts = [*objects, *emulator_objects()]
    return run_compiler(build_folder() / f"{name}-{digest(*parts)}", *flags, *parts, "-ldl", "-lpthread")


def compile_files(sources: list[Path], *flags: str) -> list[Path]:
    if not flags:
        precompiled()  # before two threads want it
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda source: compile_file(source, *flags), sources))


@functools.cache
def emulator_objects() -> list[Path]:
    """Return the object files of the emulator."""
    others = [CSRC / "cuda" / "cuda_status.cpp", CSRC / "core" / "status.cpp"]
    return compile_files([*sorted(CSRC.glob("emulator/*.cpp")), *others])


@functools.cache
def shared_library(*names: str) -> Path:
    """Return a library of these kernel files, the emulator, and the functions of the CUDA runtime."""
    kernels = compile_files([HERE / name for name in names], "-O1")
    return link("kernels", kernels, "-shared", "-Wl,-Bsymbolic")


@functools.cache
def program_with_asan(name: str) -> Path:
    """Return a program in which AddressSanitizer watches the kernels of one file."""
    fiber, kernels = compile_files([CSRC / "emulator" / "fiber.cpp", HERE / name], "-O1", *ASAN)
    objects = [path for path in emulator_objects() if not path.name.startswith("fiber-")]
    target = build_folder() / f"{Path(name).stem}-{digest(fiber, kernels, *objects)}"
    return run_compiler(target, *ASAN, *objects, fiber, kernels, "-ldl", "-lpthread")

"""Compiles the emulator and kernels for it by g++, once for each state of the sources."""

from __future__ import annotations

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
SCENARIOS = ROOT / "tests" / "npu_cuda" / "cuda_scenarios"
# The flags that csrc/emulator/emulator_control.h names; debug information only where the sanitizer shows
# lines.
FLAGS = [
    *(
        "-std=c++20",
        "-Wall",
        "-Wextra",
        "-Wpedantic",
        "-Werror",
        "-DNPU_WITH_CUDA",
        "-DNPU_EMULATE",
        "-fPIC",
    ),
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


@functools.cache
def build_folder() -> Path:
    """Return where the object files of the sources as they are lie, for every process that runs tests."""
    folders = (CSRC, PACKAGE / "src" / "npu_cuda" / "include", SCENARIOS, HERE)
    found = [path for folder in folders for path in sorted(folder.rglob("*")) if path.is_file()]
    content = b"".join(path.read_bytes() for path in found if "__pycache__" not in path.parts)
    folder = ROOT / "build" / "emulator" / hashlib.sha256(content).hexdigest()[:16]
    folder.mkdir(parents=True, exist_ok=True)
    return folder


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


def compile_file(source: Path, *flags: str) -> Path:
    kind = ".asan" if ASAN[0] in flags else ""
    target = build_folder() / f"{source.parent.name}-{source.stem}{kind}.o"
    language = ["-xc++"] if source.suffix == ".cu" else []
    return run_compiler(target, *FLAGS, *flags, "-isystem", str(cuda_headers()), *language, "-c", source)


@functools.cache
def emulator_objects() -> list[Path]:
    """Return the object files of the emulator, without what AddressSanitizer needs otherwise."""
    sources = [
        *sorted(CSRC.glob("emulator/*.cpp")),
        CSRC / "cuda" / "cuda_status.cpp",
        CSRC / "core" / "status.cpp",
    ]
    with ThreadPoolExecutor(2) as pool:
        return list(pool.map(lambda source: compile_file(source, "-O1"), sources))


@functools.cache
def shared_library(*names: str) -> Path:
    """Return a library of these kernel files, the emulator, and the functions of the CUDA runtime."""
    with ThreadPoolExecutor(2) as pool:
        kernels = list(pool.map(lambda name: compile_file(HERE / name, "-O1"), names))
    target = build_folder() / f"lib{'_'.join(Path(name).stem for name in names)}.so"
    return run_compiler(target, "-shared", "-Wl,-Bsymbolic", *emulator_objects(), *kernels, "-ldl")


@functools.cache
def program_with_asan(name: str) -> Path:
    """Return a program in which AddressSanitizer watches the kernels of one file."""
    objects = [path for path in emulator_objects() if path.stem != "emulator-fiber"]
    fiber = compile_file(CSRC / "emulator" / "fiber.cpp", "-O1", *ASAN)
    kernels = compile_file(HERE / name, "-O1", *ASAN)
    target = build_folder() / Path(name).stem
    return run_compiler(target, *ASAN, *objects, fiber, kernels, "-ldl")

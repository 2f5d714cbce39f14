"""Builds the C++ scenarios of the emulated CUDA device, and runs one: without Python, nanobind and the ops."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "packages" / "npu-cuda"
SCENARIOS = Path(__file__).parent / "cuda_scenarios"
CORE = ("call.cpp", "hazards.cpp", "kernel.cpp", "status.cpp")
FLAGS = [
    "-std=c++20",
    "-O1",
    "-g",
    "-DNPU_WITH_CUDA",
    "-DNPU_EMULATE",
    "-fno-strict-aliasing",
    "-ffp-contract=off",
    "-fvisibility=hidden",
    "-Wall",
    "-Wextra",
    "-Wpedantic",
    "-Werror",
]


def names(file: str) -> list[str]:
    """Return the scenarios of a source file, as its table lists them."""
    return re.findall(r'^ +\{"(\w+)", ', (SCENARIOS / file).read_text(), re.MULTILINE)


def cuda_headers() -> Path | None:
    """Return where cuda_runtime_api.h is."""
    nvcc = shutil.which("nvcc")
    candidates = [
        Path(os.environ.get("CUDA_PATH", "/usr/local/cuda")),
        Path("/usr/local/cuda"),
        *([Path(nvcc).resolve().parents[1]] if nvcc else []),
    ]
    for folder in candidates:
        if (folder / "include" / "cuda_runtime_api.h").exists():
            return folder / "include"
    return None


def built_driver(headers: Path) -> Path:
    """Return the program that runs scenarios; it is built once for each state of its sources."""
    csrc = PACKAGE / "csrc"
    sources = [csrc / "core" / name for name in CORE]
    for folder in (csrc / "cuda", csrc / "emulator", SCENARIOS):
        sources += sorted(folder.glob("*.cpp"))
    include = [csrc, PACKAGE / "src" / "npu_cuda" / "include", SCENARIOS]
    seen = [path for folder in include for path in sorted(folder.rglob("*.h"))]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources + seen)).hexdigest()[:16]
    driver = ROOT / "build" / "cuda-scenarios" / digest / "driver"
    if driver.exists():
        return driver
    objects = driver.parent / f"objects-{os.getpid()}"
    objects.mkdir(parents=True)
    flags = [*FLAGS, "-isystem", str(headers), *(f"-I{folder}" for folder in include)]
    compiler = [*(["ccache"] if shutil.which("ccache") else []), "g++"]

    def compiled(source: Path) -> str:
        target = objects / f"{source.parent.name}-{source.stem}.o"
        run([*compiler, *flags, "-xc++", "-c", str(source), "-o", str(target)])
        return str(target)

    with ThreadPoolExecutor(2) as pool:
        parts = list(pool.map(compiled, sources))
    run(["g++", *parts, "-o", str(objects / "driver"), "-ldl", "-lpthread"])
    (objects / "driver").replace(driver)
    shutil.rmtree(objects)
    return driver


def run(command: list[str]) -> None:
    """Run a command; a failure shows what it printed."""
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout}{done.stderr}"

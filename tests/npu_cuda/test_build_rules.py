"""Who may include what in the C++ sources, and what device code may not do. The layers are those of ARCHITECTURE.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "packages" / "npu-cuda" / "csrc"
INCLUDE = re.compile(r'^\s*#\s*include\s*["<](?P<name>[^">]+)[">]', re.MULTILINE)
LAUNCH = re.compile(r"<<<")
CUDA_HEADERS = ("cuda", "cublas", "nvrtc", "nvtx3", "cub/", "thrust/", "cooperative_groups", "mma.h")
PYTHON_HEADERS = ("nanobind/", "Python.h")
OUR_HEADERS = ("core/", "npu_cuda/kernel.h")

# What the files of a folder may include of our own headers, besides those of the folder itself.
ALLOWED = {
    "core": OUR_HEADERS,
    "host": OUR_HEADERS,
    "cuda": OUR_HEADERS,
    "emulator": OUR_HEADERS,
    "bindings": (*OUR_HEADERS, "host/", "cuda/", "emulator/", "ops/"),
}
# Files that join what stands side by side.
JOINTS = {
    "core/devices.cpp": ("host/host_device.h", "cuda/cuda_devices.h"),
    "core/registry.cpp": ("ops/all.h",),
    "cuda/launch.h": ("emulator/",),
    "cuda/cuda_status.cpp": ("emulator/",),
    "emulator/device_code.h": ("cuda/launch.h",),
}


def sources(folder: str = "") -> Iterator[Path]:
    for path in sorted((CSRC / folder).rglob("*")):
        if path.suffix in {".h", ".cpp", ".cu", ".cuh"}:
            yield path


def includes(path: Path) -> list[str]:
    return INCLUDE.findall(path.read_text(encoding="utf-8"))


def ids(path: Path) -> str:
    return str(path.relative_to(CSRC))


def is_ours(name: str) -> bool:
    return (CSRC / name).exists()


@pytest.mark.parametrize("path", [*sources("core"), *sources("host")], ids=ids)
def test_the_core_knows_neither_cuda_nor_python(path: Path) -> None:
    assert [name for name in includes(path) if name.startswith((*PYTHON_HEADERS, "bindings/"))] == []
    foreign = [name for name in includes(path) if name.startswith(CUDA_HEADERS)]
    assert [name for name in foreign if name not in JOINTS.get(ids(path), ())] == []


@pytest.mark.parametrize("path", [p for p in sources() if p.parent.name in ALLOWED], ids=ids)
def test_a_folder_includes_the_layers_below_it(path: Path) -> None:
    folder = path.parent.name

    allowed = (f"{folder}/", *ALLOWED[folder], *JOINTS.get(ids(path), ()))
    assert [name for name in includes(path) if is_ours(name) and not name.startswith(allowed)] == []


@pytest.mark.parametrize("path", [p for p in sources("ops") if p.parent != CSRC / "ops"], ids=ids)
def test_an_op_includes_the_core_the_launch_and_its_own_folder(path: Path) -> None:
    shared = tuple(ids(p) for p in sources("ops") if p.parent == CSRC / "ops")
    allowed = (*OUR_HEADERS, f"ops/{path.parent.name}/", *shared, "cuda/launch.h")

    assert [name for name in includes(path) if is_ours(name) and not name.startswith(allowed)] == []


@pytest.mark.parametrize("path", [p for p in sources("ops") if p.suffix == ".cpp"], ids=ids)
def test_the_host_code_of_an_op_includes_no_cuda(path: Path) -> None:
    seen, todo = set(), [path]
    while todo:
        names = set(includes(todo.pop())) - seen
        seen |= names
        todo += [CSRC / name for name in names if is_ours(name)]

    assert [name for name in seen if name.startswith(CUDA_HEADERS)] == []


@pytest.mark.parametrize("path", [p for p in sources() if p.parent.name != "bindings"], ids=ids)
def test_only_the_bindings_include_python(path: Path) -> None:
    assert [name for name in includes(path) if name.startswith((*PYTHON_HEADERS, "bindings/"))] == []


@pytest.mark.parametrize("path", list(sources()), ids=ids)
def test_kernels_are_launched_through_launch(path: Path) -> None:
    code = re.sub(r"//.*|/\*.*?\*/", "", path.read_text(encoding="utf-8"))

    assert not LAUNCH.search(code), "use npu::launch() of cuda/launch.h: the emulator cannot compile <<<>>>"

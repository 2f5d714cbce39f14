"""Include rules of the C++ sources (layers of ARCHITECTURE.md), and limits of device code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT

CSRC = ROOT / "packages" / "npu-cuda" / "csrc"
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
    "builtin": (*OUR_HEADERS, "host/", "cuda/", "ops/"),
    "bindings": (*OUR_HEADERS, "host/", "cuda/", "emulator/", "ops/"),
}
# Files that join what stands side by side.
JOINTS = {
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
    assert foreign == []


@pytest.mark.parametrize("path", [p for p in sources() if p.parent.name in ALLOWED], ids=ids)
def test_a_folder_includes_the_layers_below_it(path: Path) -> None:
    folder = path.parent.name

    allowed = (f"{folder}/", *ALLOWED[folder], *JOINTS.get(ids(path), ()))
    assert [name for name in includes(path) if is_ours(name) and not name.startswith(allowed)] == []


SHARED_BY_OPS = [path for path in sources("ops") if path.parent == CSRC / "ops"]


@pytest.mark.parametrize("path", SHARED_BY_OPS, ids=ids)
def test_what_ops_share_includes_the_core_and_the_launch(path: Path) -> None:
    allowed = (*OUR_HEADERS, *map(ids, SHARED_BY_OPS), "cuda/cuda_handles.h", "cuda/launch.h")

    assert [name for name in includes(path) if is_ours(name) and not name.startswith(allowed)] == []


@pytest.mark.parametrize("path", [p for p in sources("ops") if p.parent != CSRC / "ops"], ids=ids)
def test_an_op_includes_the_core_the_launch_and_its_own_folder(path: Path) -> None:
    allowed = (*OUR_HEADERS, f"ops/{path.parent.name}/", *map(ids, SHARED_BY_OPS), "cuda/launch.h")

    assert [name for name in includes(path) if is_ours(name) and not name.startswith(allowed)] == []


def reached(path: Path) -> set[str]:
    """Return what a file includes, directly or by way of our own headers."""
    seen: set[str] = set()
    todo = [path]
    while todo:
        names = set(includes(todo.pop())) - seen
        seen |= names
        todo += [CSRC / name for name in names if is_ours(name)]
    return seen


HOST_CODE = [*sources("core"), *sources("host"), *(p for p in sources("ops") if p.suffix == ".cpp")]


@pytest.mark.parametrize("path", HOST_CODE, ids=ids)
def test_host_code_reaches_neither_cuda_nor_python(path: Path) -> None:
    foreign = [name for name in reached(path) if name.startswith((*CUDA_HEADERS, *PYTHON_HEADERS))]

    assert [name for name in foreign if not is_ours(name)] == []


def test_the_rules_are_about_files_that_are_there() -> None:
    """A folder that is renamed would leave rules about nothing."""
    assert {path.split("/")[0] for path in map(ids, sources())} == {*ALLOWED, "ops"}
    assert all((CSRC / path).exists() for path in JOINTS)
    assert "cuda_runtime_api.h" in reached(CSRC / "cuda" / "cuda_status.cpp")


@pytest.mark.parametrize("path", [p for p in sources() if p.parent.name != "bindings"], ids=ids)
def test_only_the_bindings_include_python(path: Path) -> None:
    assert [name for name in includes(path) if name.startswith((*PYTHON_HEADERS, "bindings/"))] == []


@pytest.mark.parametrize("path", list(sources()), ids=ids)
def test_kernels_are_launched_through_launch(path: Path) -> None:
    code = re.sub(r"//.*|/\*.*?\*/", "", path.read_text(encoding="utf-8"))

    assert not LAUNCH.search(code), "use npu::launch() of cuda/launch.h: the emulator cannot compile <<<>>>"

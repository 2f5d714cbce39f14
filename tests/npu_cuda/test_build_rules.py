"""Include rules of the C++ sources (layers of ARCHITECTURE.md), and limits of device code."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.places import ROOT

CSRC = ROOT / "packages" / "npu-cuda" / "csrc"
INCLUDE = re.compile(r'^\s*#\s*include\s*["<](?P<name>[^">]+)[">]', re.MULTILINE)
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
# How ops reach the GPU.
DEVICE_CODE = ("cuda/launch.h", "cuda/compiled_kernels.h")
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


def name_of(path: Path) -> str:
    return str(path.relative_to(CSRC))


def is_ours(name: str) -> bool:
    return (CSRC / name).exists()


def reached(path: Path) -> set[str]:
    """Return what a file includes, directly or by way of our own headers."""
    seen: set[str] = set()
    todo = [path]
    while todo:
        names = set(includes(todo.pop())) - seen
        seen |= names
        todo += [CSRC / name for name in names if is_ours(name)]
    return seen


# What a product is, its tile, and products of blocks.
PRODUCTS = ("ops/gemm/gemm.h", "ops/gemm/tile.h", "ops/gemm/host_block.h")


def allowed_to(path: Path) -> tuple[str, ...]:
    """Return what a file may include of our own headers."""
    shared = tuple(name_of(each) for each in sources("ops") if each.parent == CSRC / "ops")
    if path.parent == CSRC / "ops":
        return (*OUR_HEADERS, *shared, "cuda/cuda_handles.h", "cuda/launch.h")
    if path.parent.parent == CSRC / "ops":
        # Other ops are built from pointwise ones, one or several, copies, and the parts of products.
        parts = ("ops/pointwise/", "ops/copy/", "ops/fused/", *PRODUCTS)
        return (*OUR_HEADERS, f"ops/{path.parent.name}/", *parts, *shared, *DEVICE_CODE)
    folder = path.parent.name
    return (f"{folder}/", *ALLOWED[folder], *JOINTS.get(name_of(path), ()))


@pytest.mark.smoke
def test_a_file_includes_the_layers_below_it() -> None:
    for path in sources():
        own = [name for name in includes(path) if is_ours(name)]
        assert [name for name in own if not name.startswith(allowed_to(path))] == [], name_of(path)


def test_only_the_bindings_include_python() -> None:
    for path in sources():
        if path.parent.name != "bindings":
            python = [name for name in includes(path) if name.startswith((*PYTHON_HEADERS, "bindings/"))]
            assert python == [], name_of(path)


def test_host_code_reaches_neither_cuda_nor_python() -> None:
    of_ops = [path for path in sources("ops") if path.suffix == ".cpp"]
    for path in (*sources("core"), *sources("host"), *of_ops):
        foreign = [name for name in reached(path) if name.startswith((*CUDA_HEADERS, *PYTHON_HEADERS))]
        assert [name for name in foreign if not is_ours(name)] == [], name_of(path)


def test_the_rules_are_about_files_that_are_there() -> None:
    """A folder that is renamed would leave rules about nothing."""
    assert {name_of(path).split("/")[0] for path in sources()} == {*ALLOWED, "ops"}
    assert all((CSRC / path).exists() for path in JOINTS)
    assert "cuda_runtime_api.h" in reached(CSRC / "cuda" / "cuda_status.cpp")


def test_kernels_are_launched_through_launch() -> None:
    for path in sources():
        code = re.sub(r"//.*|/\*.*?\*/", "", path.read_text(encoding="utf-8"))
        assert "<<<" not in code, f"{name_of(path)}: use npu::launch(), as the emulator has no <<<>>>"


TEMPLATE = re.compile(r"^template <[^\n]*(?:\n {4,}[^\n]*)*\n[^\n(={;]*?\b(\w+)\(", re.MULTILINE)


def templates(folder: Path, pattern: str) -> set[str]:
    """Return the names of the function templates in headers of a folder."""
    return {name for path in folder.glob(pattern) for name in TEMPLATE.findall(path.read_text())}


@pytest.mark.parametrize("folder", [path.name for path in (CSRC / "ops").iterdir() if path.is_dir()])
def test_templates_of_the_host_and_of_cuda_have_names_of_their_own(folder: str) -> None:
    """Of two with one name and signature in a namespace the linker would keep one, for both."""
    host, cuda = (templates(CSRC / "ops" / folder, pattern) for pattern in ("host_*.h", "*.cuh"))

    assert host & cuda == set()


def test_templates_are_found() -> None:
    assert "launch_rows" in templates(CSRC / "ops" / "rows", "*.cuh")
    assert "with_number" in templates(CSRC / "ops" / "index", "host_*.h")

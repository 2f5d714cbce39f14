"""The name of a wheel says whether CUDA is in it: `cmake/build_backend.py` makes the tags."""

import importlib.util
from types import ModuleType
from typing import Any

import pytest

from tests.support.places import ROOT

pytest.importorskip("scikit_build_core", reason="what npu-cuda is built with")


@pytest.fixture(scope="module")
def backend() -> ModuleType:
    path = ROOT / "packages" / "npu-cuda" / "cmake" / "build_backend.py"
    spec = importlib.util.spec_from_file_location("build_backend", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("settings", "tag"),
    [
        ({"cmake.define.NPU_CUDA": "ON"}, "1cuda"),
        ({"cmake.define.NPU_CUDA": "on"}, "1cuda"),
        ({"cmake.define.NPU_CUDA": "OFF"}, "0host"),
        ({"cmake.define.NPU_CUDA": "EMULATE"}, "0emulated"),
        ({"cmake.define.NPU_CUDA": "AUTO"}, "0auto"),
        (None, "0auto"),
        ({"cmake.define.NPU_CUDA": "OFF", "wheel.build-tag": "7mine"}, "7mine"),
    ],
    ids=str,
)
def test_only_a_wheel_that_has_cuda_for_certain_is_called_so(
    settings: dict[str, Any] | None, tag: str, backend: ModuleType
) -> None:
    assert backend.with_tags(settings)["wheel.build-tag"] == tag


def test_pip_prefers_a_wheel_with_cuda() -> None:
    parse = pytest.importorskip("packaging.utils").parse_wheel_filename
    names = ["0auto", "0emulated", "0host", "1cuda"]

    builds = {name: parse(f"npu_cuda-0.1.0-{name}-cp310-abi3-linux_x86_64.whl")[2] for name in names}

    assert max(builds, key=builds.__getitem__) == "1cuda"

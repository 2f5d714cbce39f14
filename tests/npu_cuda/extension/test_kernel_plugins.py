"""Kernels of other packages: the example compiled with plain cc, its results, and entry points."""

import os
import re
import struct
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path
from types import ModuleType

import pytest
import torch

import npu_cuda
from npu_cuda import _C
from npu_cuda.errors import DeviceError, InternalError, InvalidArgumentError, NotSupportedError
from npu_cuda.extension import kernel_plugins
from npu_cuda.extension.kernel_plugins import KernelPluginWarning
from tests.support.cuda.c_structs import Offer, compile_kernel_library, compile_library, scale_attrs
from tests.support.cuda.programs import refused
from tests.support.places import ROOT
from tests.support.processes import run_python

EXAMPLE = ROOT / "examples" / "npu-kernel-example"
XWIN = int.from_bytes(b"XWIN", "little")


@pytest.fixture(scope="session")
def example(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    source = EXAMPLE / "src" / "npu_kernel_example" / "kernels.c"
    npu_cuda.load_library(compile_library(source, tmp_path_factory.mktemp("example") / "kernels.so", "-O2"))
    npu_cuda.remove_kernel("npu_kernel_example.relu.f32.host")  # other tests expect ours
    return _C.kinds()


@pytest.fixture(scope="session")
def counting(tmp_path_factory: pytest.TempPathFactory) -> Offer:
    path = compile_kernel_library(tmp_path_factory.mktemp("counting") / "counting.so")
    npu_cuda.load_library(path)
    return Offer(path)


def scale(x: torch.Tensor, y: torch.Tensor, alpha: float = 1.0, code: int = 0, silent: int = 0) -> None:
    attrs = scale_attrs("K", alpha, code, silent)
    npu_cuda.op_call(_C.kinds()["kernel_library.scale"], [x], [y], *attrs)


def window_of(x: torch.Tensor, gain: float) -> torch.Tensor:
    window = torch.hann_window(x.shape[1], periodic=False, dtype=torch.float64)
    return (gain * window * (x.double() - x.double().mean(dim=0))).float()


def test_the_op_of_the_example_computes_what_it_says(example: dict[str, int]) -> None:
    window = example["npu_kernel_example.window"]
    for shape in [(4, 16), (1, 5), (3, 1), (33, 100)]:
        x = torch.randn(shape)
        y = torch.full(shape, float("nan"))
        in_place = x.clone()

        npu_cuda.op_call(window, [x], [y], XWIN, struct.pack("<f", 2.5))
        npu_cuda.op_call(window, [in_place], [in_place])

        torch.testing.assert_close(y, window_of(x, 2.5), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(in_place, window_of(x, 1.0), rtol=1e-5, atol=1e-5)
    for shape in [(0, 4), (4, 0)]:
        npu_cuda.op_call(window, [torch.empty(shape)], [torch.empty(shape)])


def test_the_page_about_kernels_has_the_functions_of_the_example() -> None:
    function = re.compile(r"^static [^;={]*?(\w+)\([^;={]*?\) \{\n.*?^\}$", re.MULTILINE | re.DOTALL)
    paths = EXAMPLE / "src" / "npu_kernel_example" / "kernels.c", ROOT / "docs/how-to/add-a-kernel.md"
    texts = [path.read_text(encoding="utf-8") for path in paths]

    example, page = ({found[1]: found[0] for found in function.finditer(text)} for text in texts)

    shared = example.keys() & page.keys()
    assert shared == {"fail", "is_float32", "is_same_shape", "is_supported", "relu_launch"}
    assert {name: page[name] for name in shared} == {name: example[name] for name in shared}


def test_the_op_of_the_example_checks_its_attributes(example: dict[str, int]) -> None:
    x = torch.zeros(2, 2)

    with refused(r"window takes attributes of schema XWIN .*, 4 bytes, format '<f'"):
        npu_cuda.op_call(example["npu_kernel_example.window"], [x], [x], XWIN, b"12345678")
    with pytest.raises(NotSupportedError, match=r"window.f32.host: x is not \[signals, samples\]"):
        npu_cuda.op_call(example["npu_kernel_example.window"], [x[0]], [x[0]])


def test_each_call_prepares_launches_and_releases(counting: Offer) -> None:
    x, y = torch.randn(100), torch.empty(100)
    before = [counting.count(what) for what in ("prepared", "launched", "released")]

    for _ in range(3):
        scale(x, y, alpha=-2.0)

    assert torch.equal(y, -2.0 * x)
    assert [counting.count(what) for what in ("prepared", "launched", "released")] == [n + 3 for n in before]


def test_what_a_kernel_returns_becomes_an_error(counting: Offer) -> None:
    x = torch.zeros(3)
    cases = [
        (1, 0, InvalidArgumentError, "kernel_library.scale by .*: launch was told to fail"),
        (4, 1, DeviceError, "launch of kernel_library.scale.host does not say why"),
        (42, 1, InternalError,
         "launch of kernel_library.scale.host returned the status 42, which there is not$"),
        (-1, 0, InternalError, "returned the status -1, which there is not; it says: launch was told"),
        (1004, 0, DeviceError, "prepare was told to fail"),
        (1099, 1, InternalError, "prepare of kernel_library.scale.host returned the status 99"),
        (2002, 0, NotSupportedError, "kernel_library.scale.host: supported was told to fail"),
        (2077, 1, NotSupportedError, "supported of kernel_library.scale.host returned the status 77"),
    ]  # fmt: skip
    for code, silent, error, match in cases:
        with pytest.raises(error, match=match):
            scale(x, x, code=code, silent=silent)

        assert counting.count("prepared") == counting.count("released")


@pytest.fixture
def a_module(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = ModuleType("a_kernel_package")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def point(name: str, attribute: str) -> EntryPoint:
    return EntryPoint(name, f"a_kernel_package:{attribute}", kernel_plugins.GROUP)


def test_a_broken_plugin_does_not_stop_the_others(a_module: ModuleType, tmp_path: Path) -> None:
    path = compile_kernel_library(tmp_path / "plugin.so", "plugin", "P")

    def b_half() -> None:
        npu_cuda.kernel("EltwiseRelu", kernel_id="half.relu", device="host", priority=-1)(print)
        raise RuntimeError("the other half is missing")

    def f_python() -> None:
        npu_cuda.kernel("EltwiseRelu", kernel_id="whole.relu", device="host", priority=-1)(print)

    functions: dict[str, Callable[[], object]] = {
        "b_half": b_half, "c_missing": lambda: tmp_path / "missing.so", "d_empty": lambda: None,
        "e_library": lambda: path, "f_python": f_python, "g_leaves": lambda: sys.exit(3),
        "h_disabled": lambda: path,
    }  # fmt: skip
    vars(a_module).update(functions)
    points = [point(name, name) for name in (*reversed(functions), "a_absent")]

    with pytest.warns(KernelPluginWarning) as warned:
        plugins = kernel_plugins.load_entry_points([*points, point("e_library", "twin")], {"h_disabled"})

    refused = {plugin.name: plugin.refused for plugin in plugins if plugin.refused}
    assert [plugin.name[0] for plugin in plugins] == list("abcdeefgh")
    assert refused["a_absent"].startswith("AttributeError: module 'a_kernel_package' has no attribute 'a_")
    assert refused["b_half"] == "RuntimeError: the other half is missing"
    assert "missing.so: there is no such file" in refused["c_missing"]
    assert "a_kernel_package:d_empty returned no path, and registered neither op" in refused["d_empty"]
    assert refused["e_library"].startswith(
        "InvalidArgumentError: there is already a plugin of this name, from unknown distribution"
    )
    assert refused["g_leaves"] == "SystemExit: 3"
    assert refused["h_disabled"] == "disabled by NPU_DISABLE_PLUGINS"
    assert [re.findall(r"^the kernels of (\w)", str(item.message)) for item in warned] == [
        *map(list, "abcdeg")
    ]
    library, in_python = (plugin for plugin in plugins if plugin.refused is None)
    assert (library.path, library.ops) == (str(path), ["plugin.scale"])
    assert library.kernels == ["plugin.relu.cuda", "plugin.scale.host"]
    assert in_python.kernels == ["whole.relu"]
    assert "half.relu" not in {kernel["id"] for kernel in _C.kernels()}
    npu_cuda.remove_kernel("whole.relu")


KERNELS = """
import numpy as np
import npu_cuda


def kernels():
    @npu_cuda.kernel("EltwiseRelu", kernel_id="installed.relu", device="host", priority=90)
    def relu(call):
        np.maximum(np.from_dlpack(call.inputs[0]), 0, out=np.from_dlpack(call.outputs[0]))


def broken():
    raise RuntimeError("built for another machine")
"""

USED = """
import sys, torch
from npu_ir import extract_ir
from npu_ir.cli import main
from npu_runtime import IRExecutor, explain

x = torch.tensor([-1.0, 2.0])
executor = IRExecutor(extract_ir(torch.nn.ReLU(), (x,)), {}, backend="host")
print(executor(x).tolist(), "installed.relu" in str(explain(executor)))
main(["plugins"])
sys.exit(main(["doctor"]))
"""


def test_installed_kernels_are_used_by_backends_and_listed_by_the_commands(tmp_path: Path) -> None:
    (tmp_path / "some_kernels.py").write_text(KERNELS)
    for name in ("kernels", "broken"):
        folder = tmp_path / f"some_{name}-1.5.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: some-{name}\nVersion: 1.5\n")
        (folder / "entry_points.txt").write_text(
            f"[{kernel_plugins.GROUP}]\nsome-{name} = some_kernels:{name}\n"
        )

    done = run_python(USED, env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), *sys.path])})

    lines = [re.split(r"  +", line) for line in done.stdout.splitlines()]
    refusal = "RuntimeError: built for another machine"
    assert lines[0] == ["[0.0, 2.0] True"], done.stderr
    assert ["some-kernels", "some-kernels 1.5", "kernels: installed.relu"] in lines
    assert ["some-broken", "some-broken 1.5", f"refused: {refusal}"] in lines
    assert ["", "some-kernels", "ok", "some-kernels 1.5; kernels: 1"] in lines
    assert [f"broken: plugins, some-broken: {refusal}"] in lines
    assert done.returncode == 1

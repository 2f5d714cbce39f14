"""Discovery of npu-cuda by npu-ir, and installations that cannot be used."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib import metadata
from typing import Any

import pytest
import torch

from npu_cuda import _C, doctor
from npu_cuda.backend import CudaBackend, HostBackend
from npu_cuda.errors import DeviceError
from npu_ir.cli.doctor import State
from npu_ir.plugins import plugin_manager

BUILD = _C.build_info()
# A native part that cannot be imported: not built, or for another Python.
BROKEN = "import sys; sys.modules['npu_cuda._C'] = None; "


def python(script: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_it_is_an_ordinary_entry_point() -> None:
    (point,) = metadata.entry_points(group="npu", name="npu-cuda")

    assert point.value == "npu_cuda.plugin"


def test_the_backends_go_by_their_names() -> None:
    assert type(plugin_manager.get_plugins().backends["host"]) is HostBackend
    assert type(plugin_manager.get_plugins().backends["cuda"]) is CudaBackend


def test_backends_of_a_plugin_that_is_left_out_are_unknown() -> None:
    script = "from npu_runtime.backends.registry import find_backend; find_backend('host')"

    done = python(script, **{plugin_manager.DISABLE_VARIABLE: "npu-cuda"})

    assert (
        "there is no backend 'host'\n  fix: npu-cuda provides it, and is installed, but is not used here"
        in done.stderr
    )


def test_a_broken_native_part_is_warned_of_and_the_rest_goes_on() -> None:
    done = python(f"{BROKEN}from npu_ir.cli import main; main(['plugins'])")

    assert done.returncode == 0
    assert "npu: warning: plugin 'npu-cuda' (npu-cuda " in done.stderr
    assert "npu_cuda._C" in done.stderr
    assert "backends: aten" in done.stdout


def test_a_broken_native_part_fails_the_doctor() -> None:
    done = python(f"{BROKEN}from npu_ir.cli import main; sys.exit(main(['doctor']))")

    assert done.returncode == 1
    assert "broken: plugins, npu-cuda: ModuleNotFoundError: " in done.stdout
    assert "fix: install npu-cuda " in done.stdout


def test_the_doctor_runs_a_kernel_on_each_device() -> None:
    checks = {check.name: check for check in doctor.all_checks()}

    assert checks["native part"].state is State.OK
    assert checks["host"].state is State.OK
    assert checks["host"].text.endswith(": runs kernels")


def test_a_device_that_fails_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(device: dict[str, Any]) -> str:
        raise DeviceError(f"{device['name']} is lost")

    monkeypatch.setattr(doctor, "_run_kernel", failing)

    check = {check.name: check for check in doctor.all_checks()}["host"]

    assert (check.state, check.text) == (State.BROKEN, "DeviceError: host is lost")


def test_why_there_is_no_cuda_device_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_C, "cuda_absence", lambda: "no driver")

    check = {check.name: check for check in doctor.all_checks()}["cuda"]

    assert (check.state, check.text, check.fix) == (State.ABSENT, "no driver", "")


def test_a_device_that_the_build_does_not_know_is_worth_another_build(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_C, "cuda_absence", lambda: "built without CUDA")
    monkeypatch.setattr(_C, "build_info", lambda: {**BUILD, "mode": "OFF"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)

    check = {check.name: check for check in doctor._device_checks()}["cuda"]

    assert check.fix == "build npu-cuda where nvcc is: NPU_CUDA=ON"


def test_the_compiler_is_looked_for_where_the_build_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDACXX", "/nowhere/nvcc")

    check = doctor._compiler_check()

    assert (check.state, check.text) == (
        State.ABSENT,
        "/nowhere/nvcc is not found; only building with CUDA needs it",
    )


@pytest.mark.parametrize(
    ("attribute", "state"), [("__dlpack__", State.OK), ("no_such_attribute", State.ABSENT)]
)
def test_how_tensors_are_read_is_told(attribute: str, state: State, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXCHANGE", attribute)

    assert doctor._exchange_check().state is state

"""Discovery of npu-cuda by npu-ir, and installations that cannot be used."""

import os
from importlib import metadata
from typing import Any

import pytest
import torch

from npu_cuda import _C, doctor
from npu_cuda.backend import CudaBackend, HostBackend
from npu_cuda.errors import DeviceError
from npu_ir.cli.doctor import Check, State
from npu_ir.plugins import plugin_manager
from tests.support.processes import run_python

BUILD = _C.build_info()
# A native part that cannot be imported: not built, or for another Python.
BROKEN = "import sys; sys.modules['npu_cuda._C'] = None; "


def test_it_is_an_ordinary_entry_point_with_two_backends() -> None:
    (point,) = metadata.entry_points(group="npu", name="npu-cuda")
    backends = plugin_manager.get_plugins().backends

    assert point.value == "npu_cuda.plugin"
    assert (type(backends["host"]), type(backends["cuda"])) == (HostBackend, CudaBackend)


def test_backends_of_a_plugin_that_is_left_out_are_unknown() -> None:
    script = "from npu_runtime.backends.registry import find_backend; find_backend('host')"

    done = run_python(script, env={**os.environ, plugin_manager.DISABLE_VARIABLE: "npu-cuda"})

    assert "there is no backend 'host'\n  fix: npu-cuda provides it, and is installed, but" in done.stderr


def test_a_broken_native_part_is_warned_of_and_fails_the_doctor() -> None:
    commands = "from npu_ir.cli import main; main(['plugins']); sys.exit(main(['doctor']))"

    done = run_python(BROKEN + commands)

    assert "npu: warning: plugin 'npu-cuda' (npu-cuda " in done.stderr
    assert "npu_cuda._C" in done.stderr
    assert "backends: aten" in done.stdout
    assert "broken: plugins, npu-cuda: ModuleNotFoundError: " in done.stdout
    assert "fix: install npu-cuda " in done.stdout
    assert done.returncode == 1


def checks() -> dict[str, Check]:
    return {check.name: check for check in doctor.all_checks()}


def test_the_doctor_runs_a_kernel_on_each_device(monkeypatch: pytest.MonkeyPatch) -> None:
    assert checks()["native part"].state is State.OK
    assert checks()["host"].state is State.OK
    assert checks()["host"].text.endswith(": runs kernels")

    monkeypatch.setattr(_C, "op_call", lambda *arguments: None)
    assert checks()["host"].state is State.BROKEN


def test_a_device_that_fails_is_broken(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(device: dict[str, Any]) -> str:
        raise DeviceError(f"{device['name']} is lost")

    monkeypatch.setattr(doctor, "_run_kernel", failing)

    assert (checks()["host"].state, checks()["host"].text) == (State.BROKEN, "DeviceError: host is lost")


def test_why_there_is_no_cuda_device_is_told_and_whether_to_build_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(_C, "cuda_absence", lambda: "no driver")
    check = checks()["cuda"]
    assert (check.state, check.text, check.fix) == (State.ABSENT, "no driver", "")

    monkeypatch.setattr(_C, "build_info", lambda: {**BUILD, "mode": "OFF"})
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    fixes = [check.fix for check in doctor._device_checks() if check.name == "cuda"]
    assert fixes == ["build npu-cuda where nvcc is: NPU_CUDA=ON"]


def test_what_is_not_installed_is_absent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "EXCHANGE", "__dlpack__")
    assert checks()["DLPack exchange"].state is State.OK

    monkeypatch.setenv("CUDACXX", "/nowhere/nvcc")
    monkeypatch.setattr(doctor, "EXCHANGE", "no_such_attribute")
    nvcc = checks()["nvcc"]
    text = "/nowhere/nvcc is not found; only building with CUDA needs it"
    assert (nvcc.state, nvcc.text) == (State.ABSENT, text)
    assert checks()["DLPack exchange"].state is State.ABSENT

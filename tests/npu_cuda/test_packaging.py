"""Contents and status of an installation of npu-cuda, in any build mode."""

import os
import re
import statistics
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import npu_cuda
from npu_cuda import _C

LIBRARY = Path(_C.__file__)
MODE = npu_cuda.build_info()["mode"]


def output(*command: str) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def test_everything_native_works_without_torch_and_numpy() -> None:
    script = """
import sys
sys.modules["torch"] = sys.modules["numpy"] = None  # importing them now fails
import npu_cuda
print(npu_cuda.status())
"""

    assert f"npu-cuda {npu_cuda.__version__}" in output(sys.executable, "-c", script)


def test_the_import_is_quick(capsys: pytest.CaptureFixture[str]) -> None:
    script = (
        "import time; t = time.perf_counter(); import npu_cuda; npu_cuda.build_info();"
        "print(time.perf_counter() - t)"
    )

    seconds = statistics.median(float(output(sys.executable, "-c", script)) for _ in range(5))

    with capsys.disabled():
        sys.stdout.write(f"\nimport npu_cuda, library included: {seconds * 1000:.1f} ms\n")
    assert seconds < 1  # 50 ms is the aim; machines that run tests are busy


def test_the_wheel_is_for_the_pythons_that_the_library_is_for() -> None:
    wheel = metadata.distribution("npu-cuda").read_text("WHEEL") or ""
    tag = re.search(r"^Tag: (\S+?)-(\S+?)-linux_\w+$", wheel, re.MULTILINE)
    assert tag is not None

    this = f"cp3{sys.version_info.minor}"
    if "split" in npu_cuda.build_info()["nanobind"]:
        assert (tag[1], tag[2]) == ("cp310", "abi3")
    else:
        assert (tag[1], tag[2]) == (("cp312", "abi3") if sys.version_info >= (3, 12) else (this, this))
    assert LIBRARY.name.endswith(".abi3.so") == (tag[2] == "abi3")


def test_no_library_of_cuda_or_torch_is_linked_and_no_symbol_but_that_of_python_is_exported() -> None:
    needed = re.findall(r"NEEDED.*\[(.+?)\]", output("readelf", "-d", str(LIBRARY)))
    symbols = output("nm", "-D", "--defined-only", str(LIBRARY)).splitlines()

    allowed = ("libc.so", "libm.so", "libdl.so", "libpthread.so", "librt.so", "libstdc++.so", "libgcc_s.so")
    allowed += ("ld-linux", *(["libasan.so"] if npu_cuda.build_info()["sanitizer"] else []))
    assert [name for name in needed if not name.startswith(allowed)] == []
    exported = {line.split()[-1].partition("@")[0] for line in symbols}
    if MODE == "EMULATE":
        exported = {name for name in exported if not name.startswith("npu_emulator_")}
    assert exported == {"PyInit__C"}


@pytest.mark.skipif(MODE != "EMULATE", reason="only the emulated runtime counts its calls")
def test_the_host_works_without_a_look_at_cuda() -> None:
    script = """
import npu_cuda
from npu_cuda import _C
x = npu_cuda.empty([4], device="host")
npu_cuda.op_call(npu_cuda.OpKind.EltwiseRelu, [x], [x])
npu_cuda.Program("host")
print(_C.emulator_calls("cudaGetDeviceCount"))
npu_cuda.devices()
print(_C.emulator_calls("cudaGetDeviceCount"))
"""

    assert output(sys.executable, "-c", script).split() == ["0", "1"]


def test_the_status_says_how_the_library_was_built() -> None:
    status = npu_cuda.status()

    assert status.build == npu_cuda.build_info()
    assert os.environ.get("NPU_CUDA_EXPECTED_MODE", MODE) == MODE, f"{LIBRARY} is imported"
    assert (status.build["reason"] == "") == (MODE == "ON")
    assert (status.build["architectures"] != "") == (MODE == "ON")
    assert status.build["build_type"] == os.environ.get("NPU_CUDA_EXPECTED_TYPE", "Release")
    assert status.build["nanobind"].startswith(("2.", "3."))
    assert status.build["version"] == npu_cuda.__version__ == metadata.version("npu-cuda")
    if MODE == "OFF":
        assert status.cuda_absence == f"npu-cuda was built without CUDA: {status.build['reason']}"


def test_the_status_says_which_devices_work_and_why_cuda_does_not() -> None:
    status = npu_cuda.status()

    names = [device["name"] for device in status.devices]
    assert names[0] == "host"
    assert any(name.startswith("cuda:") for name in names) == (status.cuda_absence == "")
    text = str(status)
    assert all(f"device    {name}: " in text for name in names)
    assert status.cuda_absence in text

"""Kernels of run time: how a compiler is found, what it says, and the files of what it has compiled."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

import npu_cuda
from npu_cuda import _C
from npu_cuda.testing.rows.fused import PRODUCT_PLUS_INPUT, fused_attrs
from tests.support.emulator.module import needs_emulator
from tests.support.emulator.run_time_compiler import environment, library

pytestmark = needs_emulator
NO_HEADER = {"NPU_FAKE_NVRTC_HEADER": "/nowhere.h"}  # nothing can be compiled

RUN = """
import struct
from npu_cuda import _C, attrs
from npu_cuda.testing.rows.fused import PRODUCT_PLUS_INPUT, fused_attrs

values = fused_attrs(PRODUCT_PLUS_INPUT)
payload = values.pop("payload")
schema, header = attrs("FUSE", **values)
x, y, out = (_C.empty((3,), device="cuda") for _ in range(3))
x.copy_from(struct.pack("<3f", 1, 2, 3))
y.copy_from(struct.pack("<3f", 4, 5, 6))
_C.op_call(_C.kinds()["Fused"], [x, y], [out], schema, header + payload)
print(*struct.unpack("<3f", out.to_bytes()))
"""


def run_apart(cache: Path | str, **changes: str) -> str:
    """Return what a process prints that runs x * y + x, or the last line of its error."""
    env = {**os.environ, **environment(cache), **changes}
    found = subprocess.run([sys.executable, "-c", RUN], env=env, capture_output=True, text=True, check=False)
    return (found.stdout or found.stderr).strip()


def test_what_was_compiled_is_found_in_another_process(tmp_path: Path) -> None:
    first = run_apart(tmp_path)
    files = list(tmp_path.iterdir())
    second = run_apart(tmp_path, **NO_HEADER)

    assert first == second == "5.0 12.0 21.0"
    assert [file.suffix for file in files] == [".cubin"]
    assert list(tmp_path.iterdir()) == files


@pytest.mark.parametrize("spoil", [
    pytest.param(lambda whole: whole[: len(whole) // 2], id="cut off"),
    pytest.param(lambda whole: whole[:-100] + bytes([whole[-100] ^ 1]) + whole[-99:], id="one byte"),
    pytest.param(lambda whole: whole.replace(b"NVRTC 13.0", b"NVRTC 12.0"), id="another version"),
    pytest.param(lambda _: b"", id="empty"),
])  # fmt: skip
def test_a_file_that_is_not_whole_or_of_another_version_is_compiled_again(
    spoil: object, tmp_path: Path
) -> None:
    run_apart(tmp_path)
    (file,) = tmp_path.iterdir()
    whole = file.read_bytes()
    file.write_bytes(spoil(whole))

    failed = run_apart(tmp_path, **NO_HEADER)
    assert "does not compile for sm_90" in failed
    assert run_apart(tmp_path) == "5.0 12.0 21.0"
    assert file.read_bytes()[: len(whole) // 2] == whole[: len(whole) // 2]


def test_nothing_is_kept_where_the_cache_is_off(tmp_path: Path) -> None:
    home = {"HOME": str(tmp_path), "XDG_CACHE_HOME": ""}

    assert run_apart("off", **home) == "5.0 12.0 21.0"
    assert list(tmp_path.iterdir()) == []

    assert run_apart("", **home) == "5.0 12.0 21.0"
    assert [file.suffix for file in (tmp_path / ".cache" / "npu-cuda").iterdir()] == [".cubin"]


def test_a_folder_that_cannot_be_written_is_as_none(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.touch()

    assert run_apart(file) == "5.0 12.0 21.0"


def test_the_error_has_the_log_of_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)

    log = r"NVRTC 13.0 \(.*\) does not compile for sm_90:\n.*nonsense.* does not name a type"
    with pytest.raises(npu_cuda.InternalError, match=log):
        _C.compile_text("nonsense", 90)


NOT_NVRTC = "libm.so.6 is not NVRTC 11.2 or newer: it has no nvrtcVersion"


@pytest.mark.parametrize(("value", "absence"), [
    pytest.param("off", "NPU_NVRTC is off", id="off"),
    pytest.param("/nowhere/libnvrtc.so", "NPU_NVRTC: /nowhere/libnvrtc.so: cannot open", id="no file"),
    pytest.param("libm.so.6", f"NPU_NVRTC: {NOT_NVRTC}", id="another library"),
    pytest.param("", "NVRTC is not found: install the package nvidia-cuda-nvrtc, or set", id="none"),
])  # fmt: skip
def test_why_there_is_no_compiler_is_said(value: str, absence: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NPU_NVRTC", value)

    assert absence in _C.chain_compiler()["absence"]
    assert absence in npu_cuda.status().chains()
    with pytest.raises(npu_cuda.UnavailableError, match=absence):
        _C.compile_text("", 90)
    assert absence in reason_of_the_kernel()


def reason_of_the_kernel() -> str:
    values = fused_attrs(PRODUCT_PLUS_INPUT)
    payload = values.pop("payload")
    schema, header = npu_cuda.attrs("FUSE", **values)
    spec = npu_cuda.TensorSpec("float32", (3,))
    kind = npu_cuda.kinds()["Fused"]
    chosen = npu_cuda.select(kind, [spec, spec], [spec], schema, header + payload, device="cuda")
    return dict(chosen.refusals)["fused.cuda"]


def test_a_compiler_that_does_not_know_the_gpu_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    link = tmp_path / "libnvrtc.so"
    link.symlink_to(library())
    monkeypatch.setenv("NPU_NVRTC", str(link))
    monkeypatch.setenv("NPU_FAKE_NVRTC_KNOWS", "80")

    absence = f"NVRTC 13.0 ({link}) does not know sm_90, the architecture of cuda:0"
    assert _C.chain_compiler()["absence"] == absence


def test_a_first_call_inside_a_capture_is_recorded(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment().items():
        monkeypatch.setenv(name, value)
    values = fused_attrs([("Mul", (0, 1), (3,)), ("Sub", (3, 0), (2,))])
    payload = values.pop("payload")
    schema, header = npu_cuda.attrs("FUSE", **values)
    x, y, out = (npu_cuda.empty((3,), device="cuda") for _ in range(3))
    x.copy_from(struct.pack("<3f", 1, 2, 3))
    y.copy_from(struct.pack("<3f", 4, 5, 6))

    stream = npu_cuda.graph_begin("cuda", mode="global")
    npu_cuda.op_call(npu_cuda.kinds()["Fused"], [x, y], [out], schema, header + payload, stream)
    npu_cuda.graph_end().launch()

    assert struct.unpack("<3f", out.to_bytes()) == (3, 8, 15)

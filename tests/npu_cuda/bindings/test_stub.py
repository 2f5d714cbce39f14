"""The type stub of the native part is what nanobind makes of it."""

import subprocess
import sys
from pathlib import Path

import pytest

import npu_cuda
from tests.support.places import ROOT

PACKAGE = ROOT / "packages" / "npu-cuda"


@pytest.mark.skipif(
    npu_cuda.build_info()["mode"] == "EMULATE", reason="this build has functions for tests, too"
)
def test_the_stub_is_up_to_date(tmp_path: Path) -> None:
    made = tmp_path / "_C.pyi"
    patterns = PACKAGE / "csrc" / "bindings" / "stub.patterns"
    command = [sys.executable, "-m", "nanobind.stubgen", "-q", "-m", "npu_cuda._C", "-p", str(patterns)]

    subprocess.run([*command, "-o", str(made)], check=True, timeout=60)

    kept = (PACKAGE / "src" / "npu_cuda" / "_C.pyi").read_text()
    assert made.read_text() == kept, "run: " + " ".join(["python", *command[1:], "-o", "_C.pyi"])

"""The GPU tests on a machine without one: they are collected, and skipped with a reason."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.support.places import ROOT

GPU_TESTS = Path(__file__).parents[1] / "gpu"


def collected(*options: str) -> subprocess.CompletedProcess[str]:
    quiet = ("-q", "-p", "no:cacheprovider", "--collect-only")
    command = [sys.executable, "-m", "pytest", *quiet, *options, str(GPU_TESTS)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)


def test_every_test_of_the_folder_is_marked() -> None:
    for path in GPU_TESTS.glob("test_*.py"):
        assert "\npytestmark = pytest.mark.gpu\n" in path.read_text(), path.name


@pytest.mark.exhaustive
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU: they are run")
@pytest.mark.parametrize("options", [(), ("-m", "gpu")], ids=str)
def test_they_are_left_out_with_a_reason(options: tuple[str, ...]) -> None:
    done = collected(*options)

    found = re.search(r"(\d+) tests marked gpu are left out: PyTorch finds no GPU here", done.stdout)
    assert found, done.stdout + done.stderr
    assert int(found[1]) >= 30
    assert f"no tests collected ({found[1]} deselected)" in done.stdout
    assert done.returncode == pytest.ExitCode.NO_TESTS_COLLECTED

"""The tests of keys and loaded steps, in a process of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.npu_runtime.training.cache.conftest import ALONE, collect_ignore
from tests.support.places import ROOT


@pytest.mark.skipif(ALONE in os.environ, reason="this is that process")
def test_the_tests_pass_in_a_process_of_their_own() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short", "--assert=plain"]

    done = subprocess.run(
        [*command, *(str(Path(__file__).with_name(name)) for name in collect_ignore)],
        cwd=ROOT,
        env={**os.environ, ALONE: "1"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert " passed" in done.stdout

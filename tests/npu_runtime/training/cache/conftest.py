"""The folder of the cache, one for each test; and what is left to a process without other tests.

A key has all that was done to PyTorch in a process, such as by libraries that change it as they are imported.
"""

import os
from pathlib import Path

import pytest

ALONE = "NPU_TESTS_ALONE"
FILES = ["test_cached_compilation.py", "test_step_key.py", "test_unstored_steps.py"]
collect_ignore = [] if ALONE in os.environ else FILES


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of stored steps, which does not exist yet."""
    monkeypatch.setenv("NPU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "steps"

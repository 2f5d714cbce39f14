"""The folder of the cache, one for each test."""

from pathlib import Path

import pytest


@pytest.fixture
def steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of stored steps, which does not exist yet."""
    monkeypatch.setenv("NPU_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "steps"

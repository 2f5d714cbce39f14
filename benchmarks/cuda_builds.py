"""Build time and size of the wheels of npu-cuda."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

PACKAGE = Path("packages/npu-cuda")
MODES = {"OFF": "host only", "ON": "CUDA, sm_80, sm_90, sm_100 and PTX"}


def measure() -> list[dict[str, Any]]:
    """Build a wheel per mode; raises where one does not build."""
    return [_built(mode, title) for mode, title in MODES.items()]


def _built(mode: str, title: str) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pip", "wheel", str(PACKAGE), "--no-deps", "--no-build-isolation"]
        settings = [f"cmake.define.NPU_CUDA={mode}", f"build-dir={folder}/build"]
        words = [word for setting in settings for word in ("-C", setting)]
        start = time.perf_counter()
        subprocess.run(
            [*command, *words, "-q", "-w", folder],
            check=True,
            env={**os.environ, "CCACHE_DISABLE": "1"},
        )
        seconds = time.perf_counter() - start
        (wheel,) = Path(folder).glob("*.whl")
        return {
            "title": f"{mode}: {title}",
            "seconds": seconds,
            "kilobytes": wheel.stat().st_size / 1000,
        }

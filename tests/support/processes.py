"""Scripts that a test runs in a process of their own."""

import subprocess
import sys
from typing import Any


def run_python(script: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a script by this Python; return what it printed, and its exit status."""
    command = [sys.executable, "-c", script, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120, **options)

"""Peak memory of this process."""

from __future__ import annotations

import sys
from pathlib import Path


def peak_memory_bytes() -> int | None:
    """Return the most memory this process held at any time; None where the platform does not tell.

    On Linux ``getrusage`` would not do: a new process starts with the peak of the one that started it.
    """
    status = Path("/proc/self/status")
    if status.exists():
        peak = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
        return int(peak.split()[1]) * 1024
    if sys.platform == "win32":
        return None
    import resource

    peak_rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak_rss if sys.platform == "darwin" else peak_rss * 1024

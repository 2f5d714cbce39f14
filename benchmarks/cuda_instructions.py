"""Instructions of calls, counted by callgrind: unlike times, they are the same each time.

Each count is the difference of two runs, so that the start of Python and PyTorch is not in it.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import cuda_calls
import torch

_SUMS = (2_000, 22_000)  # of a run
_WARM_UP = 10  # calls
_COLLECTED = re.compile(r"Collected : (\d+)")


def measure() -> dict[str, float]:
    """Return instructions per sum by title, where that is counted; nothing without valgrind."""
    if shutil.which("valgrind") is None:
        return {}
    return {call.title: _per_sum(call.title) for call in cuda_calls.calls() if call.is_counted}


def _per_sum(title: str) -> float:
    runs = [_start(title, sums) for sums in _SUMS]
    few, many = (_instructions(run) for run in runs)
    return (many - few) / (_SUMS[1] - _SUMS[0])


def _start(title: str, sums: int) -> subprocess.Popen[str]:
    command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", sys.executable, __file__]
    # Addresses and hashes are the same in both runs.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "OMP_NUM_THREADS": "1"}
    return subprocess.Popen(
        [*command, title, str(sums)],
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
        cwd=Path(__file__).parent,
    )


def _instructions(run: subprocess.Popen[str]) -> int:
    _, printed = run.communicate()
    found = _COLLECTED.search(printed)
    if run.returncode or found is None:
        raise SystemExit(f"valgrind failed:\n{printed[-2000:]}")
    return int(found[1])


def main() -> None:
    title, sums = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    (call,) = (item for item in cuda_calls.calls() if item.title == title)
    for _ in range(_WARM_UP + sums // call.ops):
        call.run()


if __name__ == "__main__":
    main()

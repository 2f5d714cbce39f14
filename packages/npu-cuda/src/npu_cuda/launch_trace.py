"""Traces of kernel launches: a table of the last ones."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from npu_cuda import _C


@contextmanager
def trace(
    capacity: int = 4096, *, nvtx: bool = False, file: TextIO | None = None
) -> Iterator[list[dict[str, Any]]]:
    """Record the launches in a ``with`` block, and print them at its end.

    There is one trace per process: it has the launches of all threads, and a nested block restarts it.

    Args:
        capacity: Number of launches to keep, the last ones.
        nvtx: Mark each launch for profilers as an NVTX range.
        file: Where to print; None stands for stdout.

    Yields:
        A list that holds the launches, as `npu_cuda.trace_events` returns them, after the block.

    Raises:
        InvalidArgumentError: The capacity is not at least 1.
        UnavailableError: This build has no NVTX.
    """
    launches: list[dict[str, Any]] = []
    _C.trace_start(capacity, nvtx)
    try:
        yield launches
    finally:
        _C.trace_stop()
        launches.extend(_C.trace_events())
        (file or sys.stdout).write(format_trace(launches) + "\n")


def format_trace(launches: list[dict[str, Any]]) -> str:
    """Return launches as a table, one per line: time, duration on the host, op, kernel, tensors."""
    if not launches:
        return "no launches"
    begin = launches[0]["start_ns"]
    rows = [("#", "at us", "us", "op", "kernel", "tensors")]
    for launch in launches:
        failed = "" if launch["status"] == "Ok" else f"  {launch['status']}"
        at, took = (launch["start_ns"] - begin) / 1000, launch["duration_ns"] / 1000
        rows.append(
            (
                str(launch["number"]),
                f"{at:.1f}",
                f"{took:.1f}",
                launch["op"],
                launch["kernel_id"],
                launch["tensors"] + failed,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = [_line(row, widths) for row in rows]
    if dropped := launches[0]["number"]:
        lines.append(f"{dropped} launches before these are dropped: give a larger capacity")
    return "\n".join(lines)


def _line(row: tuple[str, ...], widths: list[int]) -> str:
    numbers = [cell.rjust(width) for cell, width in zip(row[:3], widths[:3], strict=True)]
    texts = [cell.ljust(width) for cell, width in zip(row[3:5], widths[3:], strict=True)]
    return "  ".join([*numbers, *texts, row[5]])

"""The page of `train.py`, and its plot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from page_plot import write_plot
from train_report import COLUMNS, DEPTH_COLUMNS, depth_rows, overview, rows, title

HEAD = """\
# How fast training steps are

`nox -s bench -- train --page docs/reference/training-benchmarks.md` writes this page.
Measured on {cpu}, with PyTorch {torch} and Python {python}, on {date}, at a load of {load:.1f};
on one thread where nothing else is said.

A step is forward, loss, backward and optimizer. Each contender runs in a process of its own, and all take
turns: the times are medians of one run. Compile time is that of the first step, beyond that of a later one,
with everything imported and nothing cached; ours is tracing, passes and planning. Memory is what PyTorch's
allocator hands out during one step that begins without gradients, results included, parameters and optimizer
state excluded; for ours, with the arena that was planned before. The difference is the largest one from eager
training over five steps: of a loss, or of what the steps changed in a tensor of the model, relative to its
norm.

![Time of a training step relative to eager]({plot})

The first table has the time of a step relative to eager training: below 1 is faster.
"""


def write_page(results: dict[str, Any], path: Path) -> None:
    """Write the page, and the plot beside it."""
    path.write_text("\n".join(page(results, path.with_suffix(".svg").name)) + "\n")
    write_plot(path, "training-benchmarks")


def page(results: dict[str, Any], plot: str) -> Iterator[str]:
    yield HEAD.format(plot=plot, **{key: results[key] for key in ("cpu", "torch", "python", "date", "load")})
    columns, *lines = overview(results)
    yield from table(columns, lines)
    yield "## Tracing by depth\n"
    yield "The step of a transformer of 32 channels, with Adam.\n"
    yield from table(DEPTH_COLUMNS, depth_rows(results["depths"]))
    for case in results["cases"]:
        yield f"## {title(case)}\n"
        yield from table(COLUMNS, rows(case))


def table(columns: Iterable[str], lines: Iterable[Iterable[str]]) -> Iterator[str]:
    columns = list(columns)
    yield f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}"
    yield from (f"| {' | '.join(line)} |" for line in lines)
    yield ""

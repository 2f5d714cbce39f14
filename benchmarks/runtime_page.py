"""The page of `runtime.py`, and its plot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from page_plot import write_plot
from runtime_report import COLUMNS, overview, rows, title

# Two tables, each as wide as a page.
TABLES = {
    "What is compiled or planned": (
        "executor-auto",
        "executor-cpu",
        "executor",
        "onnxruntime",
        "openvino",
        "compile-freezing",
        "compile",
    ),
    "What runs a model or a graph as it is": (
        "executor-plain",
        "eager-no-grad",
        "exported",
        "fx",
        "interpreter",
        "pytorch-ir",
    ),
}

HEAD = """\
# {title}

`nox -s bench -- runtime --page docs/reference/{name}` writes this page.
Measured on {cpu}, with PyTorch {torch} and Python {python}, on {date}.

Each contender runs in a process of its own, and all take turns: the times are medians of one run. Compile
time is what it takes from the exported program (for ours: from the graph; for ONNX Runtime and OpenVINO,
which compute in float32 and are optimized for single calls: from what the program was converted to) until the
first call has returned, with everything imported and nothing cached. Peak memory is what PyTorch's allocator
hands out during one call, results included, weights excluded. The difference is the largest one from eager,
relative to the largest value.

![Time of a call relative to eager in inference mode]({plot})

The tables have the time of a call relative to eager PyTorch in inference mode: below 1 is faster.
"""


def write_page(results: dict[str, Any], path: Path) -> None:
    """Write the page, and the plot beside it."""
    path.write_text("\n".join(page(results, path)) + "\n")
    write_plot(path, "runtime-benchmarks")


def page(results: dict[str, Any], path: Path) -> Iterator[str]:
    head = {key: value for key, value in results.items() if key != "cases"}
    head["title"] = "How fast graphs run" + ("" if "AVX512" in head["cpu"] else ", without AVX-512")
    yield HEAD.format(name=path.name, plot=path.with_suffix(".svg").name, **head)
    for heading, contenders in TABLES.items():
        columns, *lines = overview(results, contenders)
        if len(columns) == 1:  # none of them was measured
            continue
        yield f"## {heading}\n"
        yield from _table(columns, lines)
    for case in results["cases"]:
        yield f"## {title(case)}\n"
        yield from _table(COLUMNS, rows(case))


def _table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}"
    yield from (f"| {' | '.join(line)} |" for line in lines)
    yield ""

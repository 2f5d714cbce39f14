"""The page of `runtime.py`, and its plot."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

from runtime_contenders import CONTENDERS
from runtime_models import MODELS
from runtime_report import COLUMNS, overview, rows, title

# Contenders of the plot, and their colours.
PLOTTED = {
    "compile": "#8c8c8c",
    "compile-freezing": "#3b6fb5",
    "onnxruntime": "#c98a1b",
    "executor": "#7fbf7b",
    "executor-cpu": "#1b7837",
    "executor-auto": "#5e3c99",
}
# Two tables, each as wide as a page.
TABLES = {
    "What is compiled or planned": (
        "executor-auto",
        "executor-cpu",
        "executor",
        "onnxruntime",
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
LEFT, WIDTH, ROW, TOP = 200, 460, 24, 56
LOWEST, HIGHEST = 0.0625, 2.0
TICKS = (0.0625, 0.125, 0.25, 0.5, 1.0, 2.0)

HEAD = """\
# How fast graphs run

`nox -s bench -- runtime --page docs/reference/runtime-benchmarks.md` writes this page.
Measured on {cpu}, with PyTorch {torch} and Python {python}, on {date}.

Each contender runs in a process of its own, and all take turns: the times are medians of one run. Compile
time is what it takes from the exported program (for ours: from the graph) until the first call has returned,
with everything imported and nothing cached. Peak memory is what PyTorch's allocator hands out during one
call, results included, weights excluded. The difference is the largest one from eager, relative to the
largest value.

![Time of a call relative to eager in inference mode]({plot})

The tables have the time of a call relative to eager PyTorch in inference mode: below 1 is faster.
"""


def write_page(results: dict[str, Any], path: Path) -> None:
    """Write the page, and the plot beside it."""
    plot = path.with_suffix(".svg")
    path.write_text("\n".join(page(results, plot.name)) + "\n")
    plot.write_text("\n".join(drawing(results)) + "\n")


def page(results: dict[str, Any], plot: str) -> Iterator[str]:
    yield HEAD.format(plot=plot, **{key: value for key, value in results.items() if key != "cases"})
    for heading, contenders in TABLES.items():
        columns, *lines = overview(results, contenders)
        yield f"## {heading}\n"
        yield from _table(columns, lines)
    for case in results["cases"]:
        yield f"## {title(case)}\n"
        yield from _table(COLUMNS, rows(case))


def _table(columns: Sequence[str], lines: Iterable[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(columns)} |\n|---|{'---:|' * (len(columns) - 1)}"
    yield from (f"| {' | '.join(line)} |" for line in lines)
    yield ""


def drawing(results: dict[str, Any]) -> Iterator[str]:
    """Yield an SVG: a row per case, a dot per contender, time relative to eager on a logarithmic axis."""
    cases = [case for case in results["cases"] if "seconds" in case["contenders"].get("eager", {})]
    height = TOP + ROW * len(cases) + 40
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + 20}" height="{height}" '
        'font-family="sans-serif" font-size="11">'
    )
    yield f'<rect width="{LEFT + WIDTH + 20}" height="{height}" fill="white"/>'
    yield from _legend()
    bottom = TOP + ROW * len(cases)
    for tick in TICKS:
        x = _x(tick)
        colour = "#333333" if tick == 1 else "#dddddd"
        yield f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{tick:g}x</text>'
    yield (
        f'<text x="{LEFT + WIDTH / 2}" y="{bottom + 32}" text-anchor="middle">time of a call; eager in '
        "inference mode is 1</text>"
    )
    for index, case in enumerate(cases):
        yield from _row(case, TOP + ROW * index + ROW / 2)
    yield "</svg>"


def _legend() -> Iterator[str]:
    x, y = 20, 14
    for name, colour in PLOTTED.items():
        text = CONTENDERS[name].title
        width = 28 + 6 * len(text)
        if x + width > LEFT + WIDTH + 20:
            x, y = 20, y + 18
        yield f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/>'
        yield f'<text x="{x + 9}" y="{y + 4}">{escape(text)}</text>'
        x += width


def _row(case: dict[str, Any], y: float) -> Iterator[str]:
    name = f"{MODELS[case['model']][0]}, {case['threads']}T"
    yield f'<text x="{LEFT - 12}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
    yield f'<line x1="{LEFT}" y1="{y}" x2="{LEFT + WIDTH}" y2="{y}" stroke="#eeeeee"/>'
    eager = case["contenders"]["eager"]["seconds"]
    for contender, colour in PLOTTED.items():
        seconds = case["contenders"].get(contender, {}).get("seconds")
        if seconds is not None:
            ratio = seconds / eager
            tip = f"{CONTENDERS[contender].title}: {ratio:.2f}x"
            yield (
                f'<circle cx="{_x(ratio):.1f}" cy="{y}" r="5" fill="{colour}" '
                f'fill-opacity="0.85"><title>{escape(tip)}</title></circle>'
            )


def _x(ratio: float) -> float:
    """Return the position of a ratio; those off the axis are at its end."""
    inside = min(max(ratio, LOWEST), HIGHEST)
    return LEFT + WIDTH * math.log(inside / LOWEST) / math.log(HIGHEST / LOWEST)

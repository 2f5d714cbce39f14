"""Plots beside the tables of pages: a row per case, a dot per contender, time relative to eager PyTorch.

A plot is drawn from the tables of its page, which have three digits, so that it can be drawn again without
measuring: ``python benchmarks/page_plot.py`` draws all of them.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from xml.sax.saxutils import escape

Cases = Mapping[str, Mapping[str, float]]  # times by contender, by case

PAGES = Path(__file__).resolve().parents[1] / "docs" / "reference"
UNITS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
TIME = re.compile(r"(?P<number>[\d.]+) (?P<unit>ns|us|ms|s)")
NUMBER = re.compile(r"[\d.]+")
SECTION = re.compile(r"^## (?P<title>.+)\n+(?P<table>\|  \|(?:.+\n)+)", re.MULTILINE)
SHORT = ((", 1 thread", ", 1T"), (" threads", "T"), ("SGD with momentum", "SGD"), ("language model", "LM"))
WIDTH, ROW, TOP, MARGIN, LETTER = 460, 24, 56, 20, 6


@dataclass(frozen=True, slots=True)
class Plot:
    """What a plot shows of its page.

    Attributes:
        caption: What stands below the axis.
        measure: The contender that is 1.
        colours: The contenders that are shown, if they were measured, and their colours.
        lowest: The left end of the axis, which is logarithmic; a power of two, like `highest`.
        highest: The right end.
        head: The beginning of the only table, a row per case; empty: a section per case, a row per contender.
    """

    caption: str
    measure: str
    colours: Mapping[str, str]
    lowest: float
    highest: float = 2.0
    head: str = ""


GRAPHS = Plot(
    "time of a call; eager in inference mode is 1",
    "eager, inference_mode",
    {
        "torch.compile": "#8c8c8c",
        "torch.compile, freezing": "#3b6fb5",
        "ONNX Runtime": "#c98a1b",
        "OpenVINO": "#b2433f",
        "IRExecutor, passes default": "#7fbf7b",
        "IRExecutor, passes cpu": "#1b7837",
        "IRExecutor": "#5e3c99",
    },
    lowest=0.0625,
)
PLOTS = {
    "runtime-benchmarks": GRAPHS,
    "runtime-benchmarks-avx2": GRAPHS,
    "training-benchmarks": Plot(
        "time of a training step; eager is 1",
        "eager",
        {
            "torch.compile, forward and loss": "#8c8c8c",
            "torch.compile, whole step": "#c98a1b",
            "torch.compile, loss and gradients; optimizer": "#3b6fb5",
            "TrainStep": "#5e3c99",
        },
        lowest=0.125,
    ),
    "gpu-benchmarks": Plot(
        "time on the device; eager is 1",
        "eager",
        {"eager, as a graph": "#8c8c8c", "aten": "#3b6fb5", "cuda": "#1b7837", "by cost": "#5e3c99"},
        lowest=0.125,
        highest=1.0,
        head="| | eager | eager, as a graph |",
    ),
}


def write_plot(page: Path, name: str | None = None) -> None:
    """Write the plot of a page beside it; ``name`` is that of its plot, if it is not that of the file."""
    plot = PLOTS[name or page.stem]
    page.with_suffix(".svg").write_text("\n".join(drawing(page.read_text(), plot)) + "\n")


def drawing(page: str, plot: Plot) -> Iterator[str]:
    """Yield the lines of the SVG."""
    cases = {
        _short(name): times
        for name, times in (_rows(page, plot.head) if plot.head else _sections(page)).items()
        if plot.measure in times
    }
    left = 24 + LETTER * max(map(len, cases), default=0)
    width, bottom = left + WIDTH + MARGIN, TOP + ROW * len(cases)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{bottom + 40}" '
        f'viewBox="0 0 {width} {bottom + 40}" font-family="sans-serif" font-size="11">'
    )
    yield f'<rect width="{width}" height="{bottom + 40}" fill="white"/>'
    yield from _legend(plot, set().union(*cases.values()), width)
    yield from _axis(plot, left, bottom)
    for index, (name, times) in enumerate(cases.items()):
        yield from _row(name, times, plot, left, TOP + ROW * index + ROW / 2)
    yield "</svg>"


def _sections(page: str) -> Cases:
    """Return the first column of times of each section that has a table of contenders."""
    return {section["title"]: dict(_times(section["table"])) for section in SECTION.finditer(page)}


def _times(table: str) -> Iterator[tuple[str, float]]:
    for line in table.splitlines()[2:]:
        name, time, *_ = _cells(line)
        if found := TIME.fullmatch(time):
            yield name, float(found["number"]) * UNITS[found["unit"]]


def _rows(page: str, head: str) -> Cases:
    """Return the numbers of each row of the table that begins with ``head``."""
    table = page[page.index(head) :].split("\n\n", maxsplit=1)[0].splitlines()
    _, *contenders = _cells(table[0])
    rows = (_cells(line) for line in table[2:])
    return {
        name: {
            who: float(cell) for who, cell in zip(contenders, cells, strict=True) if NUMBER.fullmatch(cell)
        }
        for name, *cells in rows
    }


def _cells(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split("|")]


def _short(name: str) -> str:
    for long, short in SHORT:
        name = name.replace(long, short)
    return name


def _legend(plot: Plot, measured: set[str], right: float) -> Iterator[str]:
    x, y = MARGIN, 14
    for name, colour in plot.colours.items():
        if name not in measured:
            continue
        width = 28 + LETTER * len(name)
        if x + width > right:
            x, y = MARGIN, y + 18
        yield f'<circle cx="{x}" cy="{y}" r="5" fill="{colour}"/>'
        yield f'<text x="{x + 9}" y="{y + 4}">{escape(name)}</text>'
        x += width


def _axis(plot: Plot, left: float, bottom: float) -> Iterator[str]:
    tick = plot.lowest
    while tick <= plot.highest:
        x, colour = left + _offset(tick, plot), "#333333" if tick == 1 else "#dddddd"
        yield f'<line x1="{x:.1f}" y1="{TOP - 8}" x2="{x:.1f}" y2="{bottom}" stroke="{colour}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 14}" text-anchor="middle">{tick:g}x</text>'
        tick *= 2
    yield f'<text x="{left + WIDTH / 2}" y="{bottom + 32}" text-anchor="middle">{escape(plot.caption)}</text>'


def _row(name: str, times: Mapping[str, float], plot: Plot, left: float, y: float) -> Iterator[str]:
    yield f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{escape(name)}</text>'
    yield f'<line x1="{left}" y1="{y}" x2="{left + WIDTH}" y2="{y}" stroke="#eeeeee"/>'
    for contender, colour in plot.colours.items():
        if contender in times:
            ratio = times[contender] / times[plot.measure]
            tip = escape(f"{contender}: {ratio:.2f}x")
            yield (
                f'<circle cx="{left + _offset(ratio, plot):.1f}" cy="{y}" r="5" fill="{colour}" '
                f'fill-opacity="0.85"><title>{tip}</title></circle>'
            )


def _offset(ratio: float, plot: Plot) -> float:
    """Return the position of a ratio on the axis; those beyond it are at its ends."""
    inside = min(max(ratio, plot.lowest), plot.highest)
    return WIDTH * math.log(inside / plot.lowest) / math.log(plot.highest / plot.lowest)


if __name__ == "__main__":
    for stem in PLOTS:
        write_plot(PAGES / f"{stem}.md")

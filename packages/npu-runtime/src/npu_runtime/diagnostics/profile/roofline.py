"""Rooflines: the speed of each instruction beside what the machine can do, as SVG.

S. Williams, A. Waterman, D. Patterson: "Roofline: an insightful visual performance model for multicore
architectures", Communications of the ACM 52(4), 2009. An instruction that does ``i`` floating-point
operations per byte can reach ``min(peak, i * bandwidth)`` of them per second.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape

from npu_ir.cli.quantities import time_text
from npu_runtime.diagnostics.profile.machine_limits import MachineLimits
from npu_runtime.diagnostics.profile.report import Profile, StepTime

_WIDTH, _HEIGHT, _LEFT, _TOP, _GAP, _BOTTOM = 460.0, 340.0, 64.0, 76.0, 84.0, 58.0
_FONTS, _TITLE_SIZE, _DETAIL_SIZE = "Helvetica, Arial, DejaVu Sans, sans-serif", 14, 12
_TEXT, _MUTED, _GRID, _ROOF, _PAPER = "#1b1f24", "#4b5563", "#e3e6eb", "#b4232a", "#ffffff"
# Of a text that stands out from the lines behind it.
_HALO = f'stroke="{_PAPER}" stroke-width="3" stroke-linejoin="round" paint-order="stroke"'
_COLOURS = ("#2563c9", "#c2620a", "#187a4b", "#7d3cb5")  # of backends
_LABELS = 5  # instructions that are named, those that take longest


@dataclass(frozen=True, slots=True)
class _Axis:
    """A logarithmic axis over whole decades."""

    start: float  # in the drawing
    length: float
    low: int  # decades
    high: int

    @classmethod
    def over(cls, values: Sequence[float], start: float, length: float) -> _Axis:
        low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
        return cls(start, length, low, max(high, low + 1))

    def at(self, value: float) -> float:
        return self.start + self.length * (math.log10(value) - self.low) / (self.high - self.low)

    @property
    def ticks(self) -> list[float]:
        return [10.0**decade for decade in range(self.low, self.high + 1)]


def to_roofline(profile: Profile, limits: MachineLimits) -> str:
    """Return a drawing of a profile as SVG: on the left the roofline, on the right the steps without FLOPs.

    A dot is an instruction, or an op of a native program; its area is its share of the time, and its colour
    that of its backend.

    Args:
        profile: The profile.
        limits: Those of the machine, as `measure_limits` returns them, with the same number of threads.
    """
    width, height = 2 * (_LEFT + _WIDTH) + _GAP - _LEFT + 24, _TOP + _HEIGHT + _BOTTOM
    title = f"{profile.graph}: {time_text(profile.steps_seconds)} in {len(profile.steps)} steps"
    colours = {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(_backends(profile))}
    size = f'width="{width:.0f}" height="{height:.0f}" viewBox="0 0 {width:.0f} {height:.0f}"'
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} font-family="{escape(_FONTS)}" fill="{_TEXT}">',
        f'<rect width="{width:.0f}" height="{height:.0f}" fill="{_PAPER}"/>',
        _text(title, _LEFT, 26, _TITLE_SIZE, 'font-weight="600"'),
        _text(f"this machine: {limits}", _LEFT, 46, _DETAIL_SIZE, f'fill="{_MUTED}"'),
        *_legend(colours, _LEFT + _WIDTH + _GAP),
        *_compute_panel(profile, limits, colours),
        *_memory_panel(profile, limits, colours, _LEFT + _WIDTH + _GAP),
        "</svg>",
    ]
    return "\n".join(lines) + "\n"


def _backends(profile: Profile) -> list[str]:
    return list(dict.fromkeys(step.backend for step in profile.steps))


def _legend(colours: dict[str, str], x: float) -> Iterator[str]:
    for name, colour in colours.items():
        yield f'<circle cx="{x + 5:.1f}" cy="42" r="5" fill="{colour}"/>'
        yield _text(name, x + 16, 46, _DETAIL_SIZE)
        x += 40 + 8 * len(name)


def _compute_panel(profile: Profile, limits: MachineLimits, colours: dict[str, str]) -> Iterator[str]:
    steps = [step for step in profile.steps if step.gflops and step.moved_bytes]
    points = [((step.flops or 0) / step.moved_bytes, step.gflops or 0.0) for step in steps]
    ridge = limits.gflops / limits.gbytes
    x = _Axis.over([ridge / 8, ridge * 8, *(point[0] for point in points)], _LEFT, _WIDTH)
    y = _Axis.over(
        [limits.gflops / 50, limits.gflops * 1.5, *(point[1] for point in points)], _TOP + _HEIGHT, -_HEIGHT
    )
    yield from _frame(x, y, "FLOPs per byte", "GFLOP/s")
    low, high = 10.0**x.low, 10.0**x.high
    bend = [(low, low * limits.gbytes), (ridge, limits.gflops), (high, limits.gflops)]
    if bend[0][1] < 10.0**y.low:  # the roof enters the panel from below
        bend[0] = 10.0**y.low / limits.gbytes, 10.0**y.low
    yield _roof([(x.at(a), y.at(b)) for a, b in bend])
    yield from _dots(steps, [(x.at(a), y.at(b)) for a, b in points], colours)


def _memory_panel(
    profile: Profile, limits: MachineLimits, colours: dict[str, str], left: float
) -> Iterator[str]:
    steps = [step for step in profile.steps if not step.gflops and step.gbytes]
    points = [(step.moved_bytes / 1024, step.gbytes or 0.0) for step in steps]
    x = _Axis.over([1.0, 1000.0, *(point[0] for point in points)], left, _WIDTH)
    y = _Axis.over(
        [limits.gbytes / 20, limits.gbytes * 1.5, *(point[1] for point in points)], _TOP + _HEIGHT, -_HEIGHT
    )
    yield from _frame(x, y, "KB read and written, of steps without FLOPs", "GB/s")
    yield _roof([(x.start, y.at(limits.gbytes)), (x.start + x.length, y.at(limits.gbytes))])
    yield from _dots(steps, [(x.at(a), y.at(b)) for a, b in points], colours)


def _frame(x: _Axis, y: _Axis, below: str, above: str) -> Iterator[str]:
    left, right, top, bottom = x.start, x.start + x.length, y.start + y.length, y.start
    for tick in x.ticks:
        yield _line(x.at(tick), top, x.at(tick), bottom, _GRID)
        yield _text(f"{tick:g}", x.at(tick), bottom + 18, _DETAIL_SIZE, 'text-anchor="middle"')
    for tick in y.ticks:
        yield _line(left, y.at(tick), right, y.at(tick), _GRID)
        yield _text(f"{tick:g}", left - 8, y.at(tick) + 4, _DETAIL_SIZE, 'text-anchor="end"')
    muted = f'fill="{_MUTED}"'
    yield _text(below, (left + right) / 2, bottom + 40, _DETAIL_SIZE, f'text-anchor="middle" {muted}')
    yield _text(above, left, top - 8, _DETAIL_SIZE, muted)


def _line(x1: float, y1: float, x2: float, y2: float, colour: str) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}"/>'


def _text(text: str, x: float, y: float, size: float, attributes: str = "") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size:g}" {attributes}>{escape(text, quote=False)}</text>'
    )


def _roof(points: Sequence[tuple[float, float]]) -> str:
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    return f'<polyline points="{path}" fill="none" stroke="{_ROOF}" stroke-width="2"/>'


def _dots(
    steps: Sequence[StepTime], points: Sequence[tuple[float, float]], colours: dict[str, str]
) -> Iterator[str]:
    for step, (x, y) in zip(steps, points, strict=True):
        speed = f"{step.gflops:.3g} GFLOP/s" if step.gflops else f"{step.gbytes:.3g} GB/s"
        told = escape(f"{step.name}: {step.op_type}, {time_text(step.seconds)}, {step.share:.1%}, {speed}")
        radius = 3 + 16 * math.sqrt(step.share)
        yield (
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:.1f}" fill="{colours[step.backend]}" '
            f'fill-opacity="0.55"><title>{told}</title></circle>'
        )
    yield from _names(sorted(zip(steps, points, strict=True), key=lambda item: -item[0].seconds)[:_LABELS])


def _names(labelled: Sequence[tuple[StepTime, tuple[float, float]]]) -> Iterator[str]:
    """Yield the names of instructions beside their dots, but for those that would cover another one."""
    placed: list[tuple[float, float]] = []
    for step, (x, y) in labelled:
        if any(abs(x - other) < 150 and abs(y - above) < _DETAIL_SIZE + 2 for other, above in placed):
            continue
        placed.append((x, y))
        yield _text(step.name, x - 8, y - 8, _DETAIL_SIZE, f'text-anchor="end" {_HALO}')

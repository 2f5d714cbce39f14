"""What `runtime.py` measured, in words: tables, and whether the bars are met."""

from __future__ import annotations

import datetime
import os
import platform
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean
from typing import Any

import torch
from runtime_contenders import BEST_OF, CONTENDERS, OURS
from runtime_models import MODELS, OVERHEAD_BOUND

COLUMNS = ("", "time", "to eager", "compile", "peak memory", "difference")


def machine() -> dict[str, Any]:
    """Return where and when this is measured."""
    cpu = platform.processor()
    if Path("/proc/cpuinfo").exists():
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        cpu = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), cpu)
    capability = torch.backends.cpu.get_cpu_capability()
    return {
        "cpu": f"{cpu}, {os.cpu_count()} cores, {capability}",
        "torch": torch.__version__,
        "python": platform.python_version(),
        "date": datetime.date.today().isoformat(),
    }


def time_text(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for factor, unit in ((1e6, "us"), (1e3, "ms"), (1, "s")):
        if seconds * factor < 999.5 or unit == "s":
            return f"{seconds * factor:.3g} {unit}"
    raise AssertionError


def bytes_text(count: int | None) -> str:
    if count is None:
        return ""
    return f"{count / 1e6:.3g} MB" if count >= 1e6 else f"{count / 1e3:.3g} KB"


def rows(case: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield one row per contender, as `COLUMNS` has them."""
    eager = case["contenders"].get("eager", {}).get("seconds")
    for name, result in case["contenders"].items():
        title = CONTENDERS[name].title
        if "error" in result:
            yield title, "-", "", "", "", result["error"]
            continue
        ratio = f"{result['seconds'] / eager:.2f}x" if eager else ""
        yield (
            title,
            time_text(result["seconds"]),
            ratio,
            time_text(result["compile_seconds"]),
            bytes_text(result["peak_bytes"]),
            f"{result['difference']:.0e}" if result["difference"] else "0",
        )


def title(case: dict[str, Any]) -> str:
    return f"{MODELS[case['model']][0]}, {case['threads']} thread{'s' if case['threads'] > 1 else ''}"


def print_case(case: dict[str, Any]) -> None:
    print(f"\n{title(case)} ({case['nodes']} nodes)", flush=True)
    table = [COLUMNS, *rows(case)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    for name in OURS:
        result = case["contenders"].get(name, {})
        if "overhead_us" in result:
            print(
                f"  {CONTENDERS[name].title}: {result['overhead_us']:.2f} us per step of {result['steps']} beyond its kernels"
            )
    print(end="", flush=True)


@dataclass(frozen=True, slots=True)
class Bar:
    """Something to reach.

    Attributes:
        text: What.
        limit: How much it may be at most.
        values: What was measured, by case.
        is_mean: Whether the geometric mean counts, and not the largest.
    """

    text: str
    limit: float
    values: dict[str, float]
    is_mean: bool = False

    @property
    def value(self) -> float | None:
        if not self.values:
            return None
        return geometric_mean(self.values.values()) if self.is_mean else max(self.values.values())

    @property
    def verdict(self) -> str:
        if self.value is None:
            return "not measured"
        return "met" if self.value <= self.limit else "missed"

    @property
    def missed(self) -> list[str]:
        if self.is_mean:
            return []
        return [f"{case} {value:.2f}" for case, value in self.values.items() if value > self.limit]


def bars(results: dict[str, Any], ours: str) -> list[Bar]:
    """Return what is to be reached, for one of our ways to run a graph."""
    cases = [case for case in results["cases"] if "seconds" in case["contenders"].get(ours, {})]
    small = [case for case in cases if case["model"] in OVERHEAD_BOUND]
    to_best = ratios(cases, ours, "seconds", BEST_OF)
    overhead = {title(case): case["contenders"][ours].get("overhead_us") for case in small}
    return [
        Bar("time to the best of eager, torch.compile and freezing", 1.0, to_best),
        Bar("the same, geometric mean", 0.85, to_best, is_mean=True),
        Bar("time to eager, where overhead counts", 0.55, ratios(small, ours, "seconds", ("eager",))),
        Bar(
            "compile time to that of torch.compile",
            0.05,
            ratios(cases, ours, "compile_seconds", ("compile",)),
        ),
        Bar(
            "us per step beyond its kernels, where overhead counts",
            0.3,
            {k: v for k, v in overhead.items() if v is not None},
        ),
        Bar("peak memory to that of eager", 1.0, ratios(cases, ours, "peak_bytes", ("eager",))),
    ]


def ratios(
    cases: Iterable[dict[str, Any]],
    ours: str,
    field: str,
    others: Iterable[str],
    best: Callable[..., Any] = min,
) -> dict[str, float]:
    """Return by case what ours takes to the best of the others; without the cases where any of them is missing."""
    found = {}
    for case in cases:
        theirs = [case["contenders"].get(name, {}).get(field) for name in others]
        known = [item for item in theirs if item]
        mine = case["contenders"].get(ours, {}).get(field)
        if known and mine:
            found[title(case)] = mine / best(known)
    return found


def overview(results: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the rows of a table: time to eager by case and contender, and the geometric means; its columns first."""
    names = [name for name in CONTENDERS if any(name in case["contenders"] for case in results["cases"])]
    found = {name: ratios(results["cases"], name, "seconds", ("eager",)) for name in names}
    yield ["time to eager", *(CONTENDERS[name].title for name in names)]
    for case in map(title, results["cases"]):
        yield [case, *(f"{found[name][case]:.2f}" if case in found[name] else "-" for name in names)]
    yield [
        "geometric mean",
        *(f"{geometric_mean(found[name].values()):.2f}" if found[name] else "-" for name in names),
    ]


def print_summary(results: dict[str, Any]) -> None:
    print(f"\n{results['cpu']}; PyTorch {results['torch']}, Python {results['python']}, {results['date']}")
    for ours in OURS:
        print(f"\n{CONTENDERS[ours].title}")
        for bar in bars(results, ours):
            value = "" if bar.value is None else f"{bar.value:.2f}, "
            print(f"  {bar.verdict:<12}  {bar.text}: {value}at most {bar.limit:g}")
            for case in bar.missed:
                print(f"                  {case}")

"""Report of `runtime.py`: tables, and whether the targets are met."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from statistics import geometric_mean
from typing import Any

from bars import Bar, print_bars
from runtime_contenders import BEST_OF, CONTENDERS, OTHER_RUNTIMES, OURS
from runtime_models import ALL_MODELS, OVERHEAD_BOUND

from npu_ir.cli.quantities import size_text, time_text

COLUMNS = ("", "time", "to eager", "compile", "peak memory", "difference")


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
            "" if result["compile_seconds"] is None else time_text(result["compile_seconds"]),
            "" if result["peak_bytes"] is None else size_text(result["peak_bytes"]),
            f"{result['difference']:.0e}" if result["difference"] else "0",
        )


def title(case: dict[str, Any]) -> str:
    return f"{ALL_MODELS[case['model']][0]}, {case['threads']} thread{'s' if case['threads'] > 1 else ''}"


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
                f"  {CONTENDERS[name].title}: {result['overhead_us']:.2f} us per step of "
                f"{result['steps']} beyond its kernels"
            )
    print(end="", flush=True)


def bars(results: dict[str, Any], ours: str) -> list[Bar]:
    """Return the targets of one of our ways to run a graph."""
    cases = [case for case in results["cases"] if ours in case["contenders"]]
    small = [case for case in cases if case["model"] in OVERHEAD_BOUND]
    best = "time to the best of eager, torch.compile and freezing"
    to_best = _ratio_bar(best, 1.0, cases, ours, "seconds", BEST_OF)
    everyone = "time to the best of these, ONNX Runtime and OpenVINO"
    to_all = _ratio_bar(everyone, 1.0, cases, ours, "seconds", (*BEST_OF, *OTHER_RUNTIMES))
    overhead = {title(case): case["contenders"][ours].get("overhead_us") for case in small}
    return [
        to_best,
        replace(to_best, text="the same, geometric mean", limit=0.85, is_mean=True),
        to_all,
        replace(to_all, text="the same, geometric mean", limit=0.75, is_mean=True),
        _ratio_bar("time to eager, where overhead counts", 0.55, small, ours, "seconds", ("eager",)),
        _ratio_bar(
            "compile time to that of torch.compile", 0.05, cases, ours, "compile_seconds", ("compile",)
        ),
        Bar(
            "us per step beyond its kernels, where overhead counts",
            0.3,
            {k: v for k, v in overhead.items() if v is not None},
        ),
        _ratio_bar("peak memory to that of eager", 1.0, cases, ours, "peak_bytes", ("eager",)),
    ]


def _ratio_bar(
    text: str, limit: float, cases: list[dict[str, Any]], ours: str, field: str, others: tuple[str, ...]
) -> Bar:
    values = ratios(cases, ours, field, others)
    return Bar(text, limit, values, lacking=tuple(name for name in map(title, cases) if name not in values))


def ratios(cases: Iterable[dict[str, Any]], ours: str, field: str, others: Iterable[str]) -> dict[str, float]:
    """Return by case our time relative to the best of the others; cases with a missing one are left out."""
    found = {}
    for case in cases:
        mine, *theirs = (case["contenders"].get(name, {}).get(field) for name in (ours, *others))
        if mine and all(theirs):
            found[title(case)] = mine / min(theirs)
    return found


def overview(results: dict[str, Any], contenders: Iterable[str]) -> Iterator[list[str]]:
    """Yield a table, columns first: time relative to eager by case and contender, and geometric means."""
    names = [name for name in contenders if any(name in case["contenders"] for case in results["cases"])]
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
        print_bars(bars(results, ours))

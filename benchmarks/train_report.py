"""Report of `train.py`: tables, and whether the targets are met."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bars import Bar, print_bars
from train_contenders import CONTENDERS, FORWARD, FULLY, OURS
from train_depth import growth
from train_models import MODELS, OPTIMIZERS

from npu_ir.cli.quantities import size_text, time_text

Case = dict[str, Any]
COLUMNS = ("", "a step", "to eager", "first step", "compile", "memory", "difference")
DEPTH_COLUMNS = ("layers", "nodes", "tracing", "per layer")
OVERHEAD_COLUMNS = ("step of ten tensors", "a call", "its program", "beyond it", "to it", "frames deep")


def title(case: Case) -> str:
    threads = case.get("threads", 1)
    of_threads = "" if threads == 1 else f", {threads} threads"
    return f"{MODELS[case['model']].title}, {OPTIMIZERS[case['optimizer']][0]}{of_threads}"


def rows(case: Case) -> Iterator[tuple[str, ...]]:
    """Yield one row per contender, as `COLUMNS` has them."""
    eager = case["contenders"].get("eager", {}).get("seconds")
    for name, result in case["contenders"].items():
        if "error" in result:
            yield CONTENDERS[name].title, "-", "", "", "", "", result["error"]
            continue
        compiling = result["compile_seconds"]
        yield (
            CONTENDERS[name].title,
            time_text(result["seconds"]),
            f"{result['seconds'] / eager:.2f}x" if eager else "",
            time_text(result["first_seconds"]),
            "" if compiling is None else time_text(compiling),
            "" if memory(result) is None else size_text(memory(result)),
            f"{result['difference']:.0e}" if result["difference"] else "0",
        )


def memory(result: dict[str, Any]) -> int | None:
    """Return the peak memory of a step: its allocations, and for ours the preallocated arena."""
    if "arena_bytes" in result:
        return int(result["arena_bytes"] + (result["peak_bytes"] or 0))
    return result.get("peak_bytes")


def depth_rows(depths: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield one row per depth, as `DEPTH_COLUMNS` has them."""
    for row in depths:
        per_layer = time_text(row["seconds"] / row["layers"])
        yield str(row["layers"]), str(row["nodes"]), time_text(row["seconds"]), per_layer


def overhead_rows(overhead: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield one row per step, as `OVERHEAD_COLUMNS` has them."""
    for row in overhead:
        call, program = row["seconds"], row["program_seconds"]
        times = (time_text(item) for item in (call, program, call - program))
        yield row["title"], *times, f"{call / program:.2f}x", str(row["frames"])


def overhead_bar(results: dict[str, Any]) -> Bar:
    """Return whether a call costs little beyond its program."""
    values = {
        row["title"]: (row["seconds"] - row["program_seconds"]) * 1e6 for row in results.get("overhead", [])
    }
    return Bar("us of a call beyond its program, ten tensors", 5.0, values)


def bars(results: dict[str, Any], ours: str) -> list[Bar]:
    """Return the targets of one of our ways to run a step."""
    cases = [case for case in results["cases"] if ours in case["contenders"]]
    limits = sorted({MODELS[case["model"]].limit for case in cases})
    to_eager = [
        ratio_bar(f"time to eager: {_names(chosen)}", limit, chosen, ours, "seconds", ("eager",))
        for limit in limits
        if (chosen := [case for case in cases if MODELS[case["model"]].limit == limit])
    ]
    lower = {title(case): _to_lower_bound(case["contenders"][ours]) for case in cases}
    return [
        *to_eager,
        ratio_bar("time to the best of torch.compile", 1.0, cases, ours, "seconds", (*FORWARD, *FULLY)),
        ratio_bar(
            "compile time to the least of torch.compile, whole step",
            0.3,
            cases,
            ours,
            "compile_seconds",
            FULLY,
        ),
        Bar("arena to its lower bound", 1.1, _known(lower), lacking=_unknown(lower)),
        ratio_bar("arena to the memory of eager", 1.0, cases, ours, "planned", ("eager",)),
        ratio_bar("arena and what a step allocates, to that", 1.0, cases, ours, "memory", ("eager",)),
    ]


def measured_ours(results: dict[str, Any]) -> list[str]:
    """Return those of our ways to make a step that the run had."""
    return [name for name in OURS if any(name in case["contenders"] for case in results["cases"])]


def depth_bar(results: dict[str, Any]) -> Bar:
    """Return whether tracing is linear in depth; a tenth is noise."""
    found = growth(results["depths"])
    layers = [row["layers"] for row in results["depths"]]
    values = {} if found is None else {f"{layers[0]} to {layers[-1]} layers": found}
    return Bar("tracing time of a layer, deep to shallow", 1.1, values)


def _names(cases: list[Case]) -> str:
    return ", ".join(dict.fromkeys(MODELS[case["model"]].title for case in cases))


def _to_lower_bound(result: dict[str, Any]) -> float | None:
    return result["arena_bytes"] / result["lower_bound_bytes"] if result.get("lower_bound_bytes") else None


def _known(values: dict[str, float | None]) -> dict[str, float]:
    return {name: value for name, value in values.items() if value is not None}


def _unknown(values: dict[str, float | None]) -> tuple[str, ...]:
    return tuple(name for name, value in values.items() if value is None)


def ratio_bar(
    text: str, limit: float, cases: list[Case], ours: str, field: str, others: tuple[str, ...]
) -> Bar:
    values = {title(case): ratio(case, ours, field, others) for case in cases}
    return Bar(text, limit, _known(values), lacking=_unknown(values))


def ratio(case: Case, ours: str, field: str, others: Iterable[str]) -> float | None:
    """Return our time relative to the best of the others; None where ours or all of them are missing."""
    mine = _field(case, ours, field)
    theirs = [value for name in others if (value := _field(case, name, field))]
    return mine / min(theirs) if mine and theirs else None


def _field(case: Case, name: str, field: str) -> float | None:
    result = case["contenders"].get(name, {})
    found = {"memory": memory(result), "planned": result.get("arena_bytes", result.get("peak_bytes"))}
    return found[field] if field in found else result.get(field)


def overview(results: dict[str, Any]) -> Iterator[list[str]]:
    """Yield the rows of a table: time to eager by case and contender, ours in front; its columns first."""
    contenders = [*OURS, *(name for name in CONTENDERS if name not in (*OURS, "eager"))]
    names = [name for name in contenders if any(name in case["contenders"] for case in results["cases"])]
    yield ["time to eager", *(CONTENDERS[name].title for name in names)]
    for case in results["cases"]:
        found = (ratio(case, name, "seconds", ("eager",)) for name in names)
        yield [title(case), *("-" if value is None else f"{value:.2f}" for value in found)]


def print_table(table: list[tuple[str, ...]]) -> None:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    for row in table:
        print("  " + "  ".join(f"{cell:{width}}" for cell, width in zip(row, widths, strict=True)).rstrip())
    print(end="", flush=True)


def print_case(case: Case) -> None:
    print(f"\n{title(case)}", flush=True)
    print_table([COLUMNS, *rows(case)])


def print_depths(depths: list[dict[str, Any]]) -> None:
    print("\nTracing the step of a transformer, by its layers")
    print_table([DEPTH_COLUMNS, *depth_rows(depths)])


def print_overhead(overhead: list[dict[str, Any]]) -> None:
    print("\nA call of TrainStep beside its program alone")
    print_table([OVERHEAD_COLUMNS, *overhead_rows(overhead)])


def print_summary(results: dict[str, Any]) -> None:
    print(f"\n{results['cpu']}; PyTorch {results['torch']}, Python {results['python']}, {results['date']}")
    print(f"load when it began: {results['load']:.1f}")
    for ours in measured_ours(results):
        print(f"\n{CONTENDERS[ours].title}")
        print_bars(bars(results, ours))
    print()
    print_bars([depth_bar(results), overhead_bar(results)])

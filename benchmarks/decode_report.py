"""Report of `decode.py`: tables, and whether the targets are met."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from bars import Bar, print_bars
from decode_contenders import CONTENDERS
from train_report import print_table

from npu_ir.cli.quantities import size_text, time_text

Case = dict[str, Any]
COLUMNS = ("", "a token", "to eager", "prompt", "ready after", "difference")
OVERVIEW = (
    *("Decoder", "a token", "to eager", "to torch.compile", "to ONNX Runtime", "of the bandwidth of a copy"),
    *("prompt", "to the best other"),
)
MEMORY = ("", "weights", "cache", "held", "to both", "at its peak", "allocated for a token", "logits")
LENGTHS = ("", "positions of the cache", "eager, a token", "Decoder, a token", "to the shortest")
OVERHEAD = ("", "kernels of a token", "beyond them", "of a call for each token")
# Our contenders, what they are called in the tables, and ONNX Runtime in the same form.
OURS = {
    "ours": ("", "onnxruntime"),
    "ours-int8": (", int8", "onnxruntime-int8"),
    "ours-int4": (", int4", "onnxruntime-int4"),
    "ours-int8-dynamic": (", int8-dynamic", "onnxruntime-int8"),
    "ours-int4-dynamic": (", int4-dynamic", "onnxruntime-int4"),
}
LAYERS_OF_OVERHEAD = "125M"


def title(case: Case, name: str = "ours") -> str:
    """Return what a case is called; for one of our contenders, by its weights."""
    form = OURS[name][0] or f", {case['form']}"
    return f"{case['size']}{form}, {case['threads']} thread{'s' if case['threads'] > 1 else ''}"


def rows(case: Case) -> Iterator[tuple[str, ...]]:
    """Yield one row per contender, as `COLUMNS` has them."""
    eager = field(case, "eager", "seconds")
    for name, result in case["contenders"].items():
        if "error" in result:
            yield CONTENDERS[name].title, "-", "", "", "", result["error"]
            continue
        yield (
            CONTENDERS[name].title,
            time_text(result["seconds"]),
            f"{result['seconds'] / eager:.2f}x" if eager else "",
            time_text(result["prompt_seconds"]) if "prompt_seconds" in result else "",
            time_text(result["ready_seconds"]),
            f"{result['difference']:.0e}" if result["difference"] else "0",
        )


def field(case: Case, name: str, key: str) -> float | None:
    """Return a number of a contender; None where it is missing."""
    found: float | None = case["contenders"].get(name, {}).get(key)
    return found


def ours(results: dict[str, Any]) -> Iterator[tuple[Case, str]]:
    """Yield the cases, and each of our contenders in them that has run."""
    for case in results["cases"]:
        yield from ((case, name) for name in OURS if field(case, name, "seconds"))


def ratio(case: Case, name: str, other: str, key: str = "seconds") -> float | None:
    mine, theirs = field(case, name, key), field(case, other, key)
    return mine / theirs if mine and theirs else None


def share_of_copy(case: Case, name: str) -> float:
    """Return the bandwidth at which a token reads what it has to, as a share of that of a copy."""
    result = case["contenders"][name]
    return float(result["read_bytes"] / result["seconds"] / case["bandwidth"])


def prompt_ratio(case: Case, name: str) -> float | None:
    """Return the time of a prompt relative to the best of the others."""
    others = ("eager", "compile", "compile-npu", OURS[name][1])
    theirs = [found for other in others if (found := field(case, other, "prompt_seconds"))]
    mine = field(case, name, "prompt_seconds")
    return mine / min(theirs) if mine and theirs else None


def overview(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield a row for each of our contenders in each case, as `OVERVIEW` has them."""
    for case, name in ours(results):
        result = case["contenders"][name]
        others = ("eager", "compile", OURS[name][1])
        yield (
            title(case, name),
            time_text(result["seconds"]),
            *(number(ratio(case, name, other)) for other in others),
            f"{share_of_copy(case, name):.2f}",
            time_text(result["prompt_seconds"]) if "prompt_seconds" in result else "-",
            number(prompt_ratio(case, name)),
        )


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def memory_rows(memory: list[dict[str, Any]]) -> Iterator[tuple[str, ...]]:
    """Yield one row per decoder, as `MEMORY` has them."""
    for row in memory:
        sizes = (row[f"{key}_bytes"] for key in ("weights", "cache", "held"))
        yield (
            f"{row['size']}, {row['form']}",
            *map(size_text, sizes),
            f"{held_ratio(row):.2f}",
            *(size_text(row[f"{key}_bytes"]) for key in ("peak", "token", "logits")),
        )


def held_ratio(row: dict[str, Any]) -> float:
    return float(row["held_bytes"] / (row["weights_bytes"] + row["cache_bytes"]))


def length_rows(lengths: list[Case]) -> Iterator[tuple[str, ...]]:
    """Yield one row per length of the cache, as `LENGTHS` has them."""
    for case in lengths:
        for length, eager, mine, to_shortest in times_by_length(case):
            yield title(case), str(length), time_text(eager), time_text(mine), f"{to_shortest:.2f}"


def times_by_length(case: Case) -> Iterator[tuple[int, float, float, float]]:
    """Yield length, seconds of eager and of ours, and ours relative to the shortest."""
    times = {name: found["seconds"] for name, found in case["contenders"].items() if "seconds" in found}
    lengths = sorted({int(name.partition("/")[2]) for name in times})
    for length in lengths:
        mine = times[f"ours/{length}"]
        yield length, times[f"eager/{length}"], mine, mine / times[f"ours/{lengths[0]}"]


def overhead_rows(results: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Yield one row for each of our contenders, as `OVERHEAD` has them."""
    for case, name in ours(results):
        result = case["contenders"][name]
        if "overhead_us" in result:
            times = (time_text(result[key] * 1e-6) for key in ("overhead_us", "fed_overhead_us"))
            yield title(case, name), str(result["launches"]), *times


def bars(results: dict[str, Any]) -> list[Bar]:
    """Return the targets."""
    found = list(ours(results))

    def bar(text: str, limit: float, values: dict[str, float | None]) -> Bar:
        known = {name: value for name, value in values.items() if value is not None}
        return Bar(text, limit, known, lacking=tuple(name for name in values if name not in known))

    def to(other: str) -> dict[str, float | None]:
        return {title(case, name): ratio(case, name, other) for case, name in found}

    onnx = {title(case, name): ratio(case, name, OURS[name][1]) for case, name in found}
    copies = {title(case, name): 1 / share_of_copy(case, name) for case, name in found}
    overhead = {
        title(case, name): field(case, name, "overhead_us")
        for case, name in found
        if case["size"] == LAYERS_OF_OVERHEAD
    }
    lengths = {title(case): max(row[3] for row in times_by_length(case)) for case in results["lengths"]}
    memory = {f"{row['size']}, {row['form']}": row for row in results["memory"]}
    return [
        bar("time of a token to eager", 0.9, to("eager")),
        bar("time of a token to torch.compile", 0.9, to("compile")),
        bar("time of a token to ONNX Runtime", 0.9, onnx),
        bar("time of a token to that of copying what it reads", 1.25, dict(copies)),
        bar("time of the prompt to the best of the others", 1.0, {
            title(case, name): prompt_ratio(case, name) for case, name in found
        }),
        bar("time of a token with the longest cache to that with the shortest", 1.05, dict(lengths)),
        bar("memory to that of weights and cache", 1.05, {
            name: held_ratio(row) for name, row in memory.items()
        }),
        bar("bytes allocated for a token to those of its logits", 1.01, {
            name: row["token_bytes"] / row["logits_bytes"] for name, row in memory.items()
        }),
        bar("us of a token beyond its kernels, 12 layers", 50.0, overhead),
    ]  # fmt: skip


def print_case(case: Case) -> None:
    print(f"\n{case['size']}, {case['form']}, threads: {case['threads']}", flush=True)
    print_table([COLUMNS, *rows(case)])


def print_lengths(lengths: list[Case]) -> None:
    print("\nLength of the cache")
    print_table([LENGTHS, *length_rows(lengths)])


def print_memory(memory: list[dict[str, Any]]) -> None:
    print("\nMemory")
    print_table([MEMORY, *memory_rows(memory)])


def print_summary(results: dict[str, Any]) -> None:
    print(f"\n{results['cpu']}; PyTorch {results['torch']}, Python {results['python']}, {results['date']}")
    print(f"load when it began: {results['load']:.1f}")
    print_table([OVERVIEW, *overview(results)])
    print_table([OVERHEAD, *overhead_rows(results)])
    print_bars(bars(results))

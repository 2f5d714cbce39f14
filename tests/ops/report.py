"""The coverage page: which operators run, and what keeps the others from it."""

from __future__ import annotations

import collections
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from tests.ops.cases import DTYPES, VARIANTS
from tests.ops.outcomes import UNINITIALIZED, Outcome
from tests.ops.workers import OpResult

_MEANINGS = {
    Outcome.PASS: "the graph returns what PyTorch returns: same structure, shapes, dtypes, and the same bits",
    Outcome.EAGER_REFUSES: "PyTorch itself raises on OpInfo's sample",
    Outcome.EXPORT_REFUSES: "`torch.export` raises: there is no program to convert",
    Outcome.SYMBOLIC_SIZE: "a size in the program depends on data; `ConversionError` says so",
    Outcome.RESHAPES_INPUT: "`x.t_()` and the like on an input: `torch.export` has no place for it; `ConversionError` says so",
    Outcome.SPARSE: "a tensor in the program is sparse; `ConversionError` says so",
    Outcome.PYTORCH_DIFFERS: "PyTorch does not agree with itself: run twice, or in place and as a function",
    Outcome.FAIL: "anything else: a bug of ours",
}
# What torch.export gives a program for.
_EXPORTABLE = (
    Outcome.PASS,
    Outcome.SYMBOLIC_SIZE,
    Outcome.RESHAPES_INPUT,
    Outcome.SPARSE,
    Outcome.PYTORCH_DIFFERS,
    Outcome.FAIL,
)

# Numbered symbols of torch.export, such as u12.
_SYMBOL = re.compile(r"\b(u|s|zuf)\d+\b")

_SHORT = {str(dtype).removeprefix("torch."): index for index, dtype in enumerate(DTYPES)}


def format_report(torch_version: str, results: Sequence[OpResult]) -> str:
    """Return the page as Markdown: the same text for the same results, in whatever order they came."""
    ordered = sorted(results, key=lambda result: result.op)
    return "\n".join([*_head(torch_version, ordered), *_exceptions(ordered), *_table(ordered)]) + "\n"


def _entries(results: Iterable[OpResult]) -> Iterator[tuple[str, Any]]:
    return ((result.op, entry) for result in results for entry in result.results)


def _head(torch_version: str, results: Sequence[OpResult]) -> Iterator[str]:
    counts = collections.Counter(entry["outcome"] for _, entry in _entries(results))
    exportable = sum(counts[outcome.value] for outcome in _EXPORTABLE)
    clean = sum(_is_covered(result) for result in results)
    able = sum(
        any(entry["outcome"] in [outcome.value for outcome in _EXPORTABLE] for entry in result.results)
        for result in results
    )
    yield "<!-- written by nox -s ops -->"
    yield "# Operator coverage"
    yield ""
    yield "Every operator of PyTorch's own test database (OpInfo), called as a function, as a method, in place and with"
    yield "`out=`, with every dtype it supports on the CPU: captured, saved, loaded, run, and compared with PyTorch to the bit."
    yield "Run it yourself: `nox -s ops`."
    yield ""
    yield f"- PyTorch {torch_version}"
    yield f"- {len(results)} operators, {sum(counts.values())} calls"
    yield f"- {exportable} calls that `torch.export` can export: **{_percent(counts[Outcome.PASS.value], exportable)} pass**"
    yield f"- {able} operators that `torch.export` can export: {clean} of them pass every call that it exports"
    yield ""
    yield "| outcome | calls | meaning |"
    yield "|---|---:|---|"
    for outcome, meaning in _MEANINGS.items():
        yield f"| {outcome.value} | {counts[outcome.value]} | {meaning} |"
    yield ""
    yield f"The values of {', '.join(f'`{op}`' for op in sorted(UNINITIALIZED))} are whatever memory held; the rest of"
    yield "their results is compared. No tolerance is used anywhere."
    yield ""


def _percent(part: int, whole: int) -> str:
    """Return a share; 100 % only where it is all of it."""
    if part == whole:
        return "100 %"
    return f"{int(10_000 * part / whole) / 100:.2f} %"


def _is_covered(result: OpResult) -> bool:
    outcomes = {entry["outcome"] for entry in result.results}
    return Outcome.PASS.value in outcomes and outcomes <= {
        Outcome.PASS.value,
        Outcome.EAGER_REFUSES.value,
        Outcome.EXPORT_REFUSES.value,
    }


def _exceptions(results: Sequence[OpResult]) -> Iterator[str]:
    yield "## Exceptions"
    for outcome in Outcome:
        if outcome is Outcome.PASS:
            continue
        grouped: dict[str, collections.Counter[str]] = {}
        for op, entry in _entries(results):
            if entry["outcome"] == outcome.value:
                grouped.setdefault(_kind(outcome, entry["reason"]), collections.Counter())[op] += 1
        yield ""
        yield f"### {outcome.value}"
        yield ""
        if not grouped:
            yield "None."
        for reason, ops in sorted(grouped.items()):
            yield f"- {_code(reason)}"
            yield f"  <br>{', '.join(f'{op} ({count})' for op, count in sorted(ops.items()))}"
    without = [result.op for result in results if not result.results]
    yield ""
    yield "### not run"
    yield ""
    yield f"OpInfo names no dtype for the CPU: {', '.join(without)}." if without else "None."
    yield ""


def _kind(outcome: Outcome, reason: str) -> str:
    """Return what a reason is listed under: what PyTorch says of OpInfo's samples is no news, its type is enough."""
    if outcome is Outcome.EAGER_REFUSES:
        return reason.partition(":")[0]
    if outcome is Outcome.SYMBOLIC_SIZE:
        return (
            reason.partition(" returns ")[0].partition(": ")[2]
            + " returns something whose size or value depends on data"
        )
    return _SYMBOL.sub(r"\1", reason)


def _code(text: str) -> str:
    """Return ``text`` as Markdown code on one line."""
    fence = "``" if "`" in text else "`"
    return f"{fence}{' '.join(text.split())}{fence}"


def _table(results: Sequence[OpResult]) -> Iterator[str]:
    yield "## By operator"
    yield ""
    yield "Calls that pass, of those that `torch.export` can export. Everything else is named under exceptions."
    yield ""
    yield f"| operator | {' | '.join(VARIANTS)} | dtypes | result |"
    yield f"|---|{'---:|' * len(VARIANTS)}---|---|"
    for result in results:
        cells = [_cell(result, variant) for variant in VARIANTS]
        dtypes = sorted(
            {entry["dtype"] for entry in result.results if entry["dtype"]}, key=_SHORT.__getitem__
        )
        yield f"| {result.op} | {' | '.join(cells)} | {', '.join(dtypes)} | {_result(result)} |"


def _cell(result: OpResult, variant: str) -> str:
    entries = [entry for entry in result.results if entry["variant"] == variant]
    exportable = [
        entry for entry in entries if entry["outcome"] in [outcome.value for outcome in _EXPORTABLE]
    ]
    passed = sum(entry["outcome"] == Outcome.PASS.value for entry in exportable)
    return f"{passed}/{len(exportable)}" if exportable else ""


def _result(result: OpResult) -> str:
    present = {entry["outcome"] for entry in result.results}
    return ", ".join(outcome.value for outcome in Outcome if outcome.value in present) or "not run"

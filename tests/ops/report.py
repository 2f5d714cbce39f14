"""The coverage page: which operators run, and what keeps the others from it."""

import collections
import re
from collections.abc import Iterable, Iterator, Sequence

import torch

from npu_ir.core.types import dtype_name
from tests.ops.cases import VARIANTS, dtype_order
from tests.ops.pipe import UNINITIALIZED
from tests.support.coverage_runs.outcomes import Outcome
from tests.support.coverage_runs.workers import OpResult, Result

_MEANINGS = {
    Outcome.PASS: "the graph returns what PyTorch returns: same structure, shapes, dtypes, and the same bits",
    Outcome.EAGER_REFUSES: "PyTorch itself raises on OpInfo's sample",
    Outcome.EXPORT_REFUSES: "`torch.export` raises: there is no program to convert",
    Outcome.SIZES_MISSTATED: (
        "PyTorch states sizes that are not those of the result; `ConversionError` says so"
    ),
    Outcome.RESHAPES_INPUT: (
        "`x.t_()` and the like on an input, lost by `torch.export`; `ConversionError` says so"
    ),
    Outcome.PYTORCH_DIFFERS: "PyTorch does not agree with itself: run twice, or in place and as a function",
    Outcome.FAIL: "anything else: a bug of ours",
}
_INTRODUCTION = """\
<!-- written by nox -s ops -->
# Operator coverage

Every operator of PyTorch's own test database (OpInfo): as a function, a method, in place (on an input, and on a
tensor made inside) and with `out=`; on several samples, with every dtype it supports on the CPU. Each call is
captured, saved, loaded, run, and compared with PyTorch to the bit: no tolerance is used anywhere.
Run it yourself: `nox -s ops`.
"""  # noqa: E501
_NOT_EXPORTED = {Outcome.EAGER_REFUSES, Outcome.EXPORT_REFUSES}

# Numbered symbols of torch.export, such as u12, or a list of them; a tensor with its sizes.
_SYMBOLS = re.compile(r"\b(u|s|zuf)\d+\b(, (u|s|zuf)\d+\b)*")
_TENSOR = re.compile(r"FakeTensor\(\.\.\., .*")


def format_report(torch_version: str, results: Sequence[OpResult]) -> str:
    ordered = sorted(results, key=lambda result: result.op)
    return "\n".join([*_head(torch_version, ordered), *_exceptions(ordered), *_table(ordered)]) + "\n"


def _outcomes(entries: Iterable[Result]) -> collections.Counter[Outcome]:
    return collections.Counter(Outcome(entry["outcome"]) for entry in entries)


def _exported(outcomes: collections.Counter[Outcome]) -> int:
    """Return how many calls torch.export gives a program for."""
    return sum(count for outcome, count in outcomes.items() if outcome not in _NOT_EXPORTED)


def _head(torch_version: str, results: Sequence[OpResult]) -> Iterator[str]:
    by_operator = [_outcomes(result.results) for result in results]
    outcomes = sum(by_operator, collections.Counter[Outcome]())
    exported, passed = _exported(outcomes), outcomes[Outcome.PASS]
    able = [each for each in by_operator if _exported(each)]
    whole = [each for each in able if each[Outcome.PASS] == _exported(each)]
    strides = sum(not entry["same_strides"] for result in results for entry in result.results)
    yield _INTRODUCTION
    yield f"- PyTorch {torch_version.partition('+')[0]}: {len(results)} operators, {outcomes.total()} calls"
    yield f"- **{_share(passed, exported)}** of the {exported} calls that `torch.export` exports pass,"
    yield f"  {outcomes[Outcome.FAIL]} fail, and the others are refused for a reason named below"
    yield (
        f"- {len(able)} operators have a call that `torch.export` exports; {len(whole)} of "
        "them pass every such call"
    )
    yield ""
    yield "| outcome | calls | meaning |"
    yield "|---|---:|---|"
    yield from (
        f"| {outcome.value} | {outcomes[outcome]} | {meaning} |" for outcome, meaning in _MEANINGS.items()
    )
    yield ""
    yield ", ".join(f"`{op}`" for op in sorted(UNINITIALIZED))
    yield "return whatever was in memory: their structure, shapes and dtypes are compared, not their values."
    yield (
        f"In {strides} calls that pass, a result has other strides than PyTorch's: an "
        "input was non-contiguous."
    )
    yield ""


def _share(part: int, whole: int) -> str:
    return "100 %" if part == whole else f"{10_000 * part // whole / 100:.2f} %"


def _exceptions(results: Sequence[OpResult]) -> Iterator[str]:
    yield "## Exceptions"
    yield ""
    for outcome in _MEANINGS:
        if outcome is not Outcome.PASS:
            yield f"### {outcome.value}"
            yield ""
            yield from _reasons(outcome, results)
            yield ""
    without = [f"`{result.op}`" for result in results if not result.results]
    yield "### not run"
    yield ""
    yield f"OpInfo names no dtype for the CPU: {', '.join(without)}." if without else "None."
    yield ""


def _reasons(outcome: Outcome, results: Sequence[OpResult]) -> Iterator[str]:
    """Yield each reason for ``outcome`` with the operators it is given for, and for how many calls."""
    operators: dict[str, collections.Counter[str]] = {}
    for result in results:
        for entry in result.results:
            if entry["outcome"] == outcome.value:
                reason = _general(outcome, entry["reason"])
                operators.setdefault(reason, collections.Counter())[result.op] += 1
    for reason, counts in sorted(operators.items()):
        yield f"- {_code(reason)}"
        yield f"  <br>{', '.join(f'`{op}` ({count})' for op, count in sorted(counts.items()))}"
    if not operators:
        yield "None."


def _general(outcome: Outcome, reason: str) -> str:
    """Return a reason without what differs from call to call."""
    if outcome is Outcome.EAGER_REFUSES and reason.startswith("RuntimeError"):
        return "RuntimeError"  # of shapes and dtypes that do not go together: no news
    return _SYMBOLS.sub(r"\1", _TENSOR.sub("FakeTensor(...)", reason))


def _code(text: str) -> str:
    fence = "``" if "`" in text else "`"
    return f"{fence}{' '.join(text.split())}{fence}"


def _table(results: Sequence[OpResult]) -> Iterator[str]:
    yield "## By operator"
    yield ""
    yield "How many calls pass of those that `torch.export` exports."
    yield ""
    yield f"| operator | {' | '.join(VARIANTS)} | dtypes | outcomes |"
    yield f"|---|{'---:|' * len(VARIANTS)}---|---|"
    for result in results:
        cells = [
            _cell(entry for entry in result.results if entry["variant"] == variant) for variant in VARIANTS
        ]
        dtypes = {getattr(torch, entry["dtype"]) for entry in result.results if entry["dtype"]}
        short = ", ".join(dtype_name(dtype) for dtype in sorted(dtypes, key=dtype_order))
        present = _outcomes(result.results)
        words = ", ".join(outcome.value for outcome in Outcome if present[outcome]) or "not run"
        yield f"| `{result.op}` | {' | '.join(cells)} | {short} | {words} |"


def _cell(entries: Iterable[Result]) -> str:
    outcomes = _outcomes(entries)
    return f"{outcomes[Outcome.PASS]}/{_exported(outcomes)}" if _exported(outcomes) else ""

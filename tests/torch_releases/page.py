"""The page docs/reference/torch-versions.md: a table of the runs, known failures, and private names."""

from __future__ import annotations

import functools
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tests.support.known_failures import KNOWN_FAILURES
from tests.support.places import ROOT
from tests.support.private_torch import private_torch_names
from tests.support.sources import source_trees

PAGE = ROOT / "docs" / "reference" / "torch-versions.md"
TIERS = {
    "tests": "all tests of npu-ir, npu-passes and npu-runtime",
    "core": "those of them on capture, conversion, execution and the tracing of training steps",
    "smoke": "about one test for each folder of all four packages, npu-cuda for the host",
}

HEAD = """<!-- written by nox -s torch_versions -->
# PyTorch releases

On which releases of PyTorch and Python the tests were run, and what came of it. The tiers:

{tiers}

A cell without a number was not run. npu-cuda is one library for every Python (its stable ABI), and does not
link PyTorch. The pinned release, {pinned}, is that of all other pages; every change is tested with it. Run
it yourself: `nox -s torch_versions`, which installs a release at a time, several GB, and deletes it after.

"""
PRIVATE = """
## Private names of PyTorch

The packages use {count} names that PyTorch does not document, in the folder or module `_torch` of each
package only. Each was looked up on the releases {releases}.
{absent} Attributes of objects, such as those of a `ShapeEnv`, are not in this list; the tests above use them.

| name | used by | present on |
|---|---|---|
"""


@dataclass(frozen=True, slots=True)
class Run:
    """A run of one tier on one release of PyTorch and Python.

    Attributes:
        torch: The release of PyTorch, such as "2.9.1".
        python: The minor release of Python.
        platform: System and machine.
        tier: The tests, as a key of `TIERS`.
        date: The day, in ISO format.
        passed: How many tests passed.
        skipped: How many were skipped, by reason.
        known: The tests that failed as expected, with causes.
        failed: The tests that failed otherwise, with messages.
    """

    torch: str
    python: str
    platform: str
    tier: str
    date: str
    passed: int
    skipped: Mapping[str, int]
    known: Mapping[str, str]
    failed: Mapping[str, str]

    def order(self) -> tuple[tuple[int, ...], tuple[int, ...], int]:
        """Return the key by which runs are sorted, and replaced."""
        return _numbers(self.torch), _numbers(self.python), list(TIERS).index(self.tier)


@dataclass(frozen=True, slots=True)
class Record:
    """All runs, and the private names that a release of PyTorch lacks."""

    runs: Sequence[Run]
    absent: Mapping[str, Sequence[str]]


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


@functools.cache
def private_uses() -> dict[str, tuple[str, ...]]:
    """Return the private names that the packages use, but for parents of others, with the packages."""
    packages: dict[str, set[str]] = defaultdict(set)
    for path, tree in source_trees().items():
        if found := re.search(r"/src/(\w+)/_torch[./]", path):
            for name in private_torch_names(tree):
                packages[name].add(found[1])
    parents = {name.rpartition(".")[0] for name in packages}
    parents |= {parent.rpartition(".")[0] for parent in parents}
    return {name: tuple(sorted(packages[name])) for name in sorted(packages) if name not in parents}


def format_page(record: Record) -> str:
    """Return the page in Markdown."""
    pins = (ROOT / "constraints.txt").read_text(encoding="utf-8")
    (pinned,) = re.findall(r"^torch==(.*)$", pins, re.MULTILINE)
    tiers = "\n".join(f"- *{name}*: {text}" for name, text in TIERS.items())
    lines = [*_table(record.runs), *_failures(record.runs), *_skips(record.runs)]
    head = HEAD.format(tiers=tiers, pinned=pinned)
    return head + "\n".join(lines) + "\n" + _private_part(record)


def _table(runs: Sequence[Run]) -> Iterator[str]:
    """Yield a row for each release and Python, with a cell for each tier that ran on any."""
    by_key = {run.order(): run for run in runs}
    tiers = sorted({run.order()[2] for run in runs})
    names = [list(TIERS)[tier] for tier in tiers]
    rows = sorted({run.order()[:2]: run for run in runs}.items())
    yield f"| PyTorch | Python | {' | '.join(names)} |"
    yield f"|---|---|{'---|' * len(tiers)}"
    for key, first in rows:
        cells = (_cell(by_key[(*key, tier)]) if (*key, tier) in by_key else "" for tier in tiers)
        yield f"| {first.torch} | {first.python} | {' | '.join(cells)} |"
    yield ""
    if runs:
        systems = ", ".join(sorted({run.platform for run in runs}))
        days = [min(run.date for run in runs), max(run.date for run in runs)]
        yield f"On {systems}, {' to '.join(dict.fromkeys(days))}. Tests that were fixed ran again, alone."


def _cell(run: Run) -> str:
    counts = (
        (run.passed, "passed"),
        (len(run.known), "known failures" if len(run.known) > 1 else "known failure"),
        (len(run.failed), "**failed**"),
    )
    return ", ".join(f"{count:,} {word}" for count, word in counts if count or word == "passed")


def _failures(runs: Sequence[Run]) -> Iterator[str]:
    """Yield what is marked, with its cause, and what else failed."""
    yield "\n## Known failures\n"
    yield "PyTorch itself does otherwise on these releases. Tests are marked by release, with the cause. On a"
    yield "release without a run of all *tests*, at most those that fail on another one were tried:\n"
    for row in KNOWN_FAILURES:
        yield f"- {', '.join(row.releases.split())}: {row.cause}."
        yield from (f"  - `{test}`" for test in row.patterns())
    for run in runs:
        for test, message in run.failed.items():
            yield f"- **failed** on {run.torch}, Python {run.python}: `{test}`: {message.replace('|', ' ')}"


def _skips(runs: Sequence[Run]) -> Iterator[str]:
    reasons: dict[str, set[str]] = defaultdict(set)
    for run in runs:
        for reason in run.skipped:
            reasons[reason].add(run.tier)
    yield "\n## Skipped\n"
    yield "Tests that need what the machine of the runs lacks, by reason, with the tiers that have them:\n"
    yield from (f"- {reason} ({', '.join(sorted(tiers))})" for reason, tiers in sorted(reasons.items()))


def _private_part(record: Record) -> str:
    uses, releases = private_uses(), sorted(record.absent, key=_numbers)
    missing = {name for names in record.absent.values() for name in names} & uses.keys()
    absent = "All releases have all of them." if not missing else "What some release lacks is first."
    head = PRIVATE.format(count=len(uses), releases=", ".join(releases), absent=absent)
    rows = []
    for name in (*sorted(missing), *(name for name in uses if name not in missing)):
        present = [release for release in releases if name not in record.absent[release]]
        where = ", ".join(present) if name in missing else "all"
        rows.append(f"| `{name}` | {', '.join(uses[name])} | {where} |\n")
    return head + "".join(rows)

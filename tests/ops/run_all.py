"""Run every operator of PyTorch's OpInfo database through the pipe, and write the coverage page.

Results are kept as they come, one line per operator; a run that was cut short goes on where it was
as long as neither PyTorch nor the code has changed.
"""

from __future__ import annotations

import argparse
import collections
import dataclasses
import hashlib
import json
import re
import sys
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch

import npu_ir
from tests.ops.cases import operators
from tests.ops.outcomes import Outcome
from tests.ops.report import format_report
from tests.ops.workers import ROOT, OpResult, Pool

BUILD = ROOT / "build" / "ops"
PAGE = ROOT / "docs" / "reference" / "op-coverage.md"


def main(arguments: Sequence[str] | None = None) -> int:
    """Return 0 where every operator that was run passes or has a named exception, else 1."""
    options = _parser().parse_args(arguments)
    store = Store(options.build / "results.jsonl", fingerprint(), any_code=options.keep)
    if options.fresh:
        store.clear()
    names = [name for name in operators() if re.search(options.only, name)][: options.limit]
    done = store.read()
    if not options.report_only:
        pending = [name for name in names if name not in done]
        progress = Progress(len(pending), len(names) - len(pending))

        def keep(result: OpResult) -> None:
            store.add(result)
            done[result.op] = result
            progress.show(result)

        Pool(options.build, options.workers, options.limit_s).run(pending, keep)
    return _report([done[name] for name in names if name in done], options)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="nox -s ops --", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--only", metavar="REGEX", default="", help="run the operators whose name contains this"
    )
    parser.add_argument("--limit", metavar="N", type=int, help="run the first N of them")
    parser.add_argument("--fresh", action="store_true", help="forget earlier results")
    parser.add_argument("--keep", action="store_true", help="count results of earlier code too")
    parser.add_argument("--report-only", action="store_true", help="write the report from what has been run")
    parser.add_argument("--workers", type=int, default=2, help="processes (default 2)")
    parser.add_argument(
        "--limit-s", type=float, default=120.0, help="longest time one call may take (default 120)"
    )
    parser.add_argument(
        "--build", type=Path, default=BUILD, help="where results are kept (default build/ops)"
    )
    return parser


def fingerprint() -> str:
    """Return what results depend on: the release of PyTorch and the code, as one short hash."""
    digest = hashlib.sha256(torch.__version__.encode())
    (package,) = npu_ir.__path__
    folders = (Path(package), Path(__file__).parent)
    for path in sorted(path for folder in folders for path in folder.rglob("*.py")):
        digest.update(path.read_bytes())
    return digest.hexdigest()[:16]


class Store:
    """A file with one line of JSON per operator.

    Args:
        path: The file.
        fingerprint: Marks the lines that are added.
        any_code: Count lines with another mark too.
    """

    def __init__(self, path: Path, fingerprint: str, *, any_code: bool = False) -> None:
        self._path = path
        self._fingerprint = fingerprint
        self._any_code = any_code

    def clear(self) -> None:
        self._path.unlink(missing_ok=True)

    def read(self) -> dict[str, OpResult]:
        """Return what has been run, by operator."""
        entries = [json.loads(line) for line in self._finished_lines()]
        marked = [(entry.pop("fingerprint"), OpResult(**entry)) for entry in entries]
        return {result.op: result for mark, result in marked if self._any_code or mark == self._fingerprint}

    def add(self, result: OpResult) -> None:
        """Append the result of one operator."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        line = json.dumps({"fingerprint": self._fingerprint, **dataclasses.asdict(result)}) + "\n"
        if self._path.exists() and not self._path.read_bytes().endswith(b"\n"):
            line = "".join(f"{finished}\n" for finished in self._finished_lines()) + line
            self._path.unlink()
        with self._path.open("a") as file:
            file.write(line)

    def _finished_lines(self) -> list[str]:
        """Return the lines; one that a run was writing when it ended is lost."""
        return self._path.read_text().split("\n")[:-1] if self._path.exists() else []


class Progress:
    """One line that says how far the run is; a line for every 25 operators where this is no terminal."""

    def __init__(self, total: int, done_before: int) -> None:
        self._total = total
        self._count = 0
        self._outcomes: collections.Counter[str] = collections.Counter()
        self._started = time.monotonic()
        if done_before:
            print(f"{done_before} operators were run before")

    def show(self, result: OpResult) -> None:
        self._count += 1
        self._outcomes.update(entry["outcome"] for entry in result.results)
        elapsed = time.monotonic() - self._started
        left = elapsed / self._count * (self._total - self._count)
        line = f"[{self._count}/{self._total}] {_clock(elapsed)} gone, {_clock(left)} left: {_counts(self._outcomes)}; {result.op}"
        if sys.stdout.isatty():
            print(f"\r\033[K{line[:150]}", end="" if self._count < self._total else "\n", flush=True)
        elif self._count % 25 == 0 or self._count == self._total:
            print(line, flush=True)


def _clock(seconds: float) -> str:
    return f"{int(seconds) // 60}:{int(seconds) % 60:02}"


def _counts(outcomes: Any) -> str:
    return ", ".join(
        f"{outcomes[outcome.value]} {outcome.value}" for outcome in Outcome if outcomes[outcome.value]
    )


def _report(results: Sequence[OpResult], options: Any) -> int:
    text = format_report(torch.__version__, results)
    is_complete = len(results) == len(operators())
    page = PAGE if is_complete and options.build == BUILD else options.build / PAGE.name
    page.parent.mkdir(parents=True, exist_ok=True)
    page.write_text(text)
    print(f"{len(results)} of {len(operators())} operators; report: {page}")
    failures = list(_failures(results))
    print("\n".join(failures) if failures else "no failures")
    return 1 if failures else 0


def _failures(results: Iterable[OpResult]) -> Iterable[str]:
    for result in results:
        for entry in result.results:
            if entry["outcome"] == Outcome.FAIL.value:
                yield f"FAIL {result.op}, {entry['call']}: {entry['reason']}"


if __name__ == "__main__":
    sys.exit(main())

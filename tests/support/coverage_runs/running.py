"""A long run of many jobs in worker processes: resumed where it was cut short, and reported as a page."""

import argparse
import collections
import re
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.coverage_runs.outcomes import Outcome
from tests.support.coverage_runs.store import Store
from tests.support.coverage_runs.workers import OpResult, Pool


@dataclass(frozen=True, slots=True)
class Run:
    """What is run, and where its results go.

    Attributes:
        session: The nox session that runs it.
        description: What its help says.
        things: What the jobs are, in the plural.
        names: Returns the names of all jobs.
        format_report: Makes the page.
        page: Where the page of a complete run goes.
        build: Where results are kept.
        mark: What the results depend on.
        command: Starts a worker.
        limit_s: The longest time that a worker may be silent.
    """

    session: str
    description: str
    things: str
    names: Callable[[], Iterable[str]]
    format_report: Callable[[Sequence[OpResult]], str]
    page: Path
    build: Path
    mark: str
    command: tuple[str, ...]
    limit_s: float = 120.0

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Return 0 where everything that was run passes or has a named exception, else 1."""
        options = self._parser().parse_args(arguments)
        store = Store(options.build / "results.jsonl", self.mark, any_code=options.keep)
        if options.fresh:
            store.clear()
        every = list(self.names())
        names = [name for name in every if re.search(options.only, name)][: options.limit]
        done = store.read()
        if not options.report_only:
            pending = [name for name in names if name not in done]
            progress = Progress(self.things, len(pending), len(names) - len(pending))

            def keep(result: OpResult) -> None:
                store.add(result)
                done[result.op] = result
                progress.show(result)

            Pool(options.build, options.workers, options.limit_s, self.command).run(pending, keep)
        results = [done[name] for name in names if name in done]
        page = self.page
        if len(results) < len(every) or options.build != self.build:
            page = options.build / page.name
        page.parent.mkdir(parents=True, exist_ok=True)
        page.write_text(self.format_report(results))
        print(f"{len(results)} of {len(every)} {self.things}; report: {page}")
        failures = list(_failures(results))
        print("\n".join(failures) if failures else "no failures")
        return 1 if failures else 0

    def _parser(self) -> argparse.ArgumentParser:
        parser = argparse.ArgumentParser(
            prog=f"nox -s {self.session} --",
            description=self.description,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        add = parser.add_argument
        add("--only", metavar="REGEX", default="", help=f"run the {self.things} whose name contains this")
        add("--limit", metavar="N", type=int, help="run the first N of them")
        add("--fresh", action="store_true", help="forget earlier results")
        add("--keep", action="store_true", help="count results of earlier code too")
        add("--report-only", action="store_true", help="write the report from what has been run")
        add("--workers", type=int, default=2, help="processes (default 2)")
        add(
            "--limit-s",
            type=float,
            default=self.limit_s,
            help=f"longest time one call may take (default {self.limit_s:g})",
        )
        folder = f"{self.build.parent.name}/{self.build.name}"
        add("--build", type=Path, default=self.build, help=f"where results are kept (default {folder})")
        return parser


class Progress:
    """One line that says how far the run is; a line for every 25 jobs where this is no terminal."""

    def __init__(self, things: str, total: int, done_before: int) -> None:
        self._total = total
        self._count = 0
        self._outcomes: collections.Counter[str] = collections.Counter()
        self._started = time.monotonic()
        if done_before:
            print(f"{done_before} {things} were run before")

    def show(self, result: OpResult) -> None:
        self._count += 1
        self._outcomes.update(entry["outcome"] for entry in result.results)
        elapsed = time.monotonic() - self._started
        left = elapsed / self._count * (self._total - self._count)
        line = (
            f"[{self._count}/{self._total}] {_clock(elapsed)} gone, {_clock(left)} left: "
            f"{_counts(self._outcomes)}; {result.op}"
        )
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


def _failures(results: Iterable[OpResult]) -> Iterable[str]:
    for result in results:
        for entry in result.results:
            if entry["outcome"] == Outcome.FAIL.value:
                yield f"FAIL {result.op}, {entry['call']}: {entry['reason']}"

"""Running tests for mutants: a recording of what each item reaches, and the items that fail with a mutant."""

from __future__ import annotations

import multiprocessing
import os
import re
import signal
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from xml.etree import ElementTree

import coverage
import pytest
import torch._dynamo
import torch.export  # noqa: F401 - a mutant is judged in a fork, which has PyTorch then
from mutants import Mutant

# How many items, of how many files, are tried one after the other.
PARTS = ((40, 10), (400, 60), (10**6, 10**6))
ITEM_SECONDS, PART_SECONDS = 60, 240  # of the processor: an item that takes longer has failed
NOT_PASSED = {"failure", "error", "skipped"}
CONFIG = """[run]
source_pkgs = npu_cuda, npu_ir, npu_passes, npu_runtime
context = ${PYTEST_CURRENT_TEST-}
parallel = true
data_file = lines
"""
# Python runs it when it starts: a child process of a test is recorded for that test.
CUSTOMIZE = 'import os; "PYTEST_CURRENT_TEST" in os.environ and __import__("coverage").process_startup()'


def record(folder: Path, tests: list[str]) -> None:
    """Run the tests and record which lines each item reaches, and its cost; once for a folder."""
    if (folder / "items.xml").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    folder = folder.resolve()
    (folder / "sitecustomize.py").write_text(CUSTOMIZE)
    (folder / "coveragerc").write_text(CONFIG.replace("lines", str(folder / "lines")))
    environment = {
        "PYTHONPATH": os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")]),
        "COVERAGE_PROCESS_START": str(folder / "coveragerc"),
        "OMP_NUM_THREADS": "1",
        "CI": "1",
    }
    options = ("-n", "2", "-q", "-o", "junit_family=xunit1", f"--junitxml={folder}/items.xml")
    # A process that is lost would be lost lines.
    options += ("--max-worker-restart=0", f"--basetemp={folder}/temporary")
    cover = ("--cov", f"--cov-config={folder}/coveragerc", "--cov-context=test", "--cov-report=")
    command = (sys.executable, "-m", "pytest", *options, *cover, *tests)
    subprocess.run(command, env=os.environ | environment, check=False)


class Recording:
    """Which items reach a line, and what each item costs; without those that failed."""

    def __init__(self, folder: Path) -> None:
        cases = ElementTree.parse(folder / "items.xml").iter("testcase")
        passed = (case.attrib for case in cases if not {part.tag for part in case} & NOT_PASSED)
        self._costs = {f"{case['file']}::{case['name']}": float(case["time"]) for case in passed}
        self._data = coverage.CoverageData(str(folder / "lines"))
        self._data.read()
        self._files = {path.rpartition("/packages/")[2]: path for path in self._data.measured_files()}

    def items_for(self, mutant: Mutant) -> list[str]:
        """Return the items that reach a mutant: all of npu-cuda for C++, which nothing records."""
        if mutant.path.endswith(".cpp"):
            return self._in_turn(name for name in self._costs if name.startswith("tests/npu_cuda/"))
        path = self._files.get(mutant.path.removeprefix("packages/"), "")
        contexts = self._data.contexts_by_lineno(path)
        found = {name for line in range(mutant.line, mutant.last_line + 1) for name in contexts.get(line, [])}
        if found == {""}:  # it runs when the module is imported
            found = {name for names in contexts.values() for name in names}
        names = (re.sub(r"\|\w+$| \(\w+\)$", "", name) for name in found)
        return self._in_turn(name for name in names if name in self._costs)

    def _in_turn(self, names: Iterable[str]) -> list[str]:
        """Return the cheapest item of each file, then the second of each, and so on."""
        files: dict[str, list[str]] = defaultdict(list)
        for name in sorted(set(names), key=lambda name: (self._costs[name], name)):
            files[file_of(name)].append(name)
        ranks = {name: rank for names in files.values() for rank, name in enumerate(names)}
        return sorted(ranks, key=lambda name: (ranks[name], self._costs[name], name))


def file_of(item: str) -> str:
    return item.partition("::")[0]


def judge(mutant: Mutant, number: int, items: list[str]) -> tuple[str, str, float]:
    """Return what became of a mutant in the tree that this process is in, the killer, and the seconds."""
    if not items:
        return "unreached", "", 0.0
    path, start = Path(mutant.path), time.monotonic()
    source = path.read_bytes()
    if path.suffix == ".py":
        path.write_bytes(mutant.applied_to(source))
        os.utime(path, (number, number))  # compiled code belongs to a source by its time and size
    try:
        killer = find_killer(items, number)
    finally:
        path.write_bytes(source)
        os.utime(path, (0, 0))
    return "killed" if killer else "survived", killer, round(time.monotonic() - start, 1)


def find_killer(items: list[str], number: int) -> str:
    """Return the first item found that fails: a few are tried, then more, then all."""
    for most_items, most_files in PARTS:
        files = set(list(dict.fromkeys(map(file_of, items)))[:most_files])
        part = [name for name in items if file_of(name) in files][:most_items]
        if failed := failing_items(part, number):
            return failed[0]
        done = set(part)
        items = [name for name in items if name not in done]
    return ""


def failing_items(items: list[str], number: int = 0, *, stop_at_first: bool = True) -> list[str]:
    """Run items in a child process, with a mutant of C++; return those that failed, or ended the process."""
    if not items:
        return []
    progress = Path("build", "progress")
    progress.parent.mkdir(exist_ok=True)
    progress.write_text("")
    context = multiprocessing.get_context("fork")
    child = context.Process(target=run_items, args=(items, number, stop_at_first, progress))
    child.start()
    child.join(10 * PART_SECONDS)
    if child.is_alive() and child.pid is not None:
        os.killpg(child.pid, signal.SIGKILL)
        child.join()
    steps = [line.partition(" ")[::2] for line in progress.read_text().splitlines()]
    failed = [name for step, name in steps if step == "failed"]
    if not steps or steps[-1][0] != "done":
        failed.append(steps[-1][1] if steps else "pytest does not start")
    return failed


def run_items(items: list[str], number: int, stop_at_first: bool, progress: Path) -> None:
    """Run items in this process, a fork, with the packages of the tree that it is in."""
    os.setsid()
    sources = [str(path) for path in Path.cwd().glob("packages/*/src")]
    sys.path[:0] = sources
    os.environ |= {"CI": "1", "NPU_MUTANT": str(number), "PYTHONPATH": os.pathsep.join(sources)}
    with open("build/output", "w") as output:
        os.dup2(output.fileno(), 1)
        os.dup2(output.fileno(), 2)
    stop = ["-x"] if stop_at_first else []
    pytest.main(
        ["-q", "-m", "", "-p", "no:cacheprovider", *stop, *set(map(file_of, items))], [Watch(items, progress)]
    )
    os._exit(0)


class Watch:
    """A plugin of pytest that runs some items in a given order, and writes down how far it has come."""

    def __init__(self, items: list[str], progress: Path) -> None:
        self._order = {name: index for index, name in enumerate(items)}
        self._file = progress.open("a", buffering=1)
        self._start = time.process_time()
        signal.signal(signal.SIGPROF, lambda *_: os._exit(1))  # the item that runs is written down last

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            print("failed", report.nodeid, file=self._file)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> object:
        print("start", item.nodeid, file=self._file)
        signal.setitimer(signal.ITIMER_PROF, ITEM_SECONDS)
        result = yield
        signal.setitimer(signal.ITIMER_PROF, 0)
        if time.process_time() - self._start > PART_SECONDS:
            item.session.shouldstop = "enough"
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            print("failed", report.nodeid, file=self._file)

    def pytest_sessionfinish(self) -> None:
        print("done", file=self._file)

"""The mutation sample: which of 150 wrong edits the tests notice, drawn by a fixed seed from all packages.

    python tools/mutate.py --out before.json                          draw, record and judge
    python tools/mutate.py --sample before.json --out after.json      the same mutants in another version
    python tools/mutate.py --compare before.json after.json

First the tests run once, recording which lines each item reaches (``coverage``) and what it costs. Then
each mutant is judged in a copy of the tree, with the items that reach its statement: the fastest of a few
files, then more, until one fails. The mutants of C++ are all in one build, and switched on by a variable
of the environment. Tools for this (mutmut, cosmic-ray) know no C++, and run all tests for each mutant.

A mutant is found again by function, text of the statement, and edit, also when its function has moved;
one whose code is gone is replaced by another one of the same folder, and listed. What a mutant is:
tools/mutants.py.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass, field
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

import coverage
import pytest
from mutants import CPP_SWITCH, Mutant, find_mutants

ROOT = Path(__file__).resolve().parents[1]
BUILD = ROOT / "build" / "mutate"
SEED = 18
# How many mutants of each folder: more where a wrong line does most harm.
SAMPLE = {
    "npu-ir/src/npu_ir": {"core": 6, "graph": 10, "capture": 12, "ops": 3, "serial": 5, "text": 4}
    | {"symbolic": 3, "interpreter": 2, "verify": 2},
    "npu-passes/src/npu_passes": {"core": 2, "rewriting": 5, "manager": 5, "library": 13, "patterns": 4}
    | {"prologue": 2},
    "npu-runtime/src/npu_runtime": {"lowering": 5, "codegen": 5, "executor": 6, "probing": 4, "planned": 6}
    | {"training": 10, "diagnostics": 4, "cpu": 2},
    "npu-cuda/src/npu_cuda": {"backend": 2, "extension": 2},
    "npu-cuda/csrc": {"core": 15, "bindings": 6, "host": 3, "ops": 3, "cuda": 3},
}
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", "build", "dist", "_build", "__pycache__", ".hypothesis", ".*_cache"
)
PARTS = ((40, 10), (400, 60), (10**6, 10**6))  # items, and the files they are in
ITEM_SECONDS, MUTANT_SECONDS = 60, 240  # of the processor; a mutant that loops counts as killed
HOOK = 'import os; "PYTEST_CURRENT_TEST" in os.environ and __import__("coverage").process_startup()'  # in children
RECORDING = """[run]
source_pkgs = npu_cuda, npu_ir, npu_passes, npu_runtime
context = ${PYTEST_CURRENT_TEST-}
parallel = true
data_file = %s
"""


@dataclass(slots=True)
class Verdict:
    """What became of a mutant."""

    mutant: Mutant
    folder: str
    status: str = "unreached"  # or killed, survived
    killer: str = ""
    items: int = 0
    seconds: float = 0.0
    diff: list[str] = field(default_factory=list)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=BUILD / "verdicts.json", help="the verdicts as JSON")
    parser.add_argument("--sample", type=Path, help="verdicts whose mutants are taken again")
    parser.add_argument(
        "--compare", type=Path, nargs=2, metavar="JSON", help="print two verdicts side by side"
    )
    parser.add_argument(
        "--record", type=Path, default=BUILD / "reach", help="the recording, reused if it exists"
    )
    parser.add_argument("-m", dest="tier", default="not exhaustive", help="which tests, as for pytest")
    options = parser.parse_args()
    if options.compare:
        return compare(*(json.loads(path.read_text()) for path in options.compare))
    known = json.loads(options.sample.read_text())["verdicts"] if options.sample else []
    verdicts, gone = draw_sample([Mutant(**row["mutant"]) for row in known])
    if not (options.record / "costs.json").exists():
        record(options.record, options.tier)
    judge_all(verdicts, Recording(options.record))
    options.out.write_text(
        json.dumps(
            {"verdicts": [asdict(item) for item in verdicts], "gone": [asdict(item) for item in gone]},
            indent=1,
        )
    )
    print_table(verdicts)
    for mutant in gone:
        print(f"gone: {mutant.path} {mutant.scope}: {mutant.statement[:80]} | {mutant.operator}")
    return 0


def draw_sample(known: list[Mutant]) -> tuple[list[Verdict], list[Mutant]]:
    """Return the sample of this version, with the known mutants that still exist; and those that do not."""
    draw = random.Random(SEED)
    everywhere: dict[tuple[str, ...], list[Mutant]] = defaultdict(list)
    pools = {}
    for package, folders in SAMPLE.items():
        for folder, count in folders.items():
            files = sorted(
                (ROOT / "packages" / package / folder).rglob("*.cpp" if "csrc" in package else "*.py")
            )
            pools[f"packages/{package}/{folder}"] = (
                count,
                [item for path in files for item in find_mutants(ROOT, path)],
            )
    for _, pool in pools.values():
        for mutant in pool:
            everywhere[(mutant.scope, *identity(mutant))].append(mutant)
            everywhere[identity(mutant)].append(mutant)
    kept: dict[str, list[Mutant]] = defaultdict(list)
    gone = []
    for mutant in known:
        if (found := find_again(mutant, everywhere)) is None:
            gone.append(mutant)
        else:
            kept[next(folder for folder in pools if mutant.path.startswith(folder + "/"))].append(found)
    verdicts = []
    for folder, (count, pool) in pools.items():
        chosen = kept[folder] + varied(draw, pool, kept[folder], count - len(kept[folder]))
        verdicts += [
            Verdict(mutant, folder.removeprefix("packages/"), diff=diff_of(mutant)) for mutant in chosen
        ]
    return verdicts, gone


def identity(mutant: Mutant) -> tuple[str, ...]:
    return (mutant.statement, mutant.operator, str(mutant.occurrence))


def find_again(mutant: Mutant, everywhere: dict[tuple[str, ...], list[Mutant]]) -> Mutant | None:
    """Return the mutant in this version: of the same module and function, or the only one with its text."""
    same_function = everywhere[(mutant.scope, *identity(mutant))]
    for found in same_function:
        if found == mutant:
            return found
    for candidates in (same_function, everywhere[identity(mutant)]):
        if len(candidates) == 1:
            return candidates[0]
    return None


def varied(draw: random.Random, pool: list[Mutant], taken: list[Mutant], count: int) -> list[Mutant]:
    """Draw mutants from different functions, of different kinds of edits in turn."""
    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for mutant in draw.sample(pool, len(pool)):
        kinds[mutant.operator.partition(":")[0]].append(mutant)
    functions = {(item.path, item.scope) for item in taken}
    chosen: list[Mutant] = []
    while len(chosen) < count and any(kinds.values()):
        for kind in draw.sample(sorted(kinds), len(kinds)):
            while kinds[kind] and len(chosen) < count:
                mutant = kinds[kind].pop()
                if (mutant.path, mutant.scope) not in functions:
                    functions.add((mutant.path, mutant.scope))
                    chosen.append(mutant)
                    break
    return chosen


def diff_of(mutant: Mutant) -> list[str]:
    """Return the lines that the edit changes, before and after."""
    source = (ROOT / mutant.path).read_bytes()
    start, end, text = mutant.edit
    first, last = source.rfind(b"\n", 0, start) + 1, source.find(b"\n", end)
    after = source[first:start] + text.encode() + source[end:last]
    return ["-" + source[first:last].decode(), "+" + after.decode()]


def record(folder: Path, tier: str) -> None:
    """Run the tests, and record which lines each item reaches, in child processes, too."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sitecustomize.py").write_text(HOOK)
    (folder / "coveragerc").write_text(RECORDING % (folder / "lines"))
    environment = {
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT), os.environ.get("PYTHONPATH", "")]),
        "COVERAGE_PROCESS_START": str(folder / "coveragerc"),
        "ITEM_COSTS": str(folder / "costs.json"),
        "OMP_NUM_THREADS": "1",
    }
    cover = ("--cov", f"--cov-config={folder}/coveragerc", "--cov-context=test", "--cov-report=")
    command = (sys.executable, "-m", "pytest", "-p", "tools.item_costs", *cover, "-n", "2", "-q", "-m", tier)
    subprocess.run(command, cwd=ROOT, env=os.environ | environment, check=False)


class Recording:
    """Which items reach a line, and what each item costs; items that failed are left out."""

    def __init__(self, folder: Path) -> None:
        costs = json.loads((folder / "costs.json").read_text())
        self._costs = {name: row["cpu_s"] for name, row in costs.items() if row["outcome"] == "passed"}
        self._data = coverage.CoverageData(str(folder / "lines"))
        self._data.read()
        self._files = {path.partition("/packages/")[2]: path for path in self._data.measured_files()}

    def items_for(self, mutant: Mutant) -> list[str]:
        """Return the items that reach a mutant, cheap ones of different files first."""
        if mutant.path.endswith(".cpp"):
            return self.in_turn(name for name in self._costs if name.startswith("tests/npu_cuda/"))
        path = self._files.get(mutant.path.removeprefix("packages/"), mutant.path)
        contexts = self._data.contexts_by_lineno(path).get(mutant.line, [])
        names = (re.sub(r"\|\w+$| \(\w+\)$", "", context) for context in contexts)
        return self.in_turn(name for name in names if name in self._costs)

    def in_turn(self, names: Iterable[str]) -> list[str]:
        """Return the items, the cheapest of each file first, then the second of each, and so on."""
        files: dict[str, list[str]] = defaultdict(list)
        for name in sorted(set(names), key=lambda name: (self._costs[name], name)):
            files[file_of(name)].append(name)
        ranked = (
            (rank, self._costs[name], name) for names in files.values() for rank, name in enumerate(names)
        )
        return [name for _, _, name in sorted(ranked)]


def judge_all(verdicts: list[Verdict], recording: Recording) -> None:
    """Judge the mutants, in two copies of the tree at a time; a test that fails anyway kills nothing."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        trees = [Path(name, "0"), Path(name, "1")]
        shutil.copytree(ROOT, trees[0], ignore=LEFT_OUT, symlinks=True)
        build_cpp(trees[0], verdicts)
        shutil.copytree(trees[0], trees[1], ignore=LEFT_OUT, symlinks=True)
        context = multiprocessing.get_context("fork")
        free = context.SimpleQueue()
        for tree in trees:
            free.put(tree)
        broken: set[str] = set()
        todo = dict(enumerate(verdicts, 1))
        with ProcessPoolExecutor(len(trees), context, initializer=take_tree, initargs=(free,)) as pool:
            while todo:
                jobs = {}
                for number, verdict in todo.items():
                    items = [item for item in recording.items_for(verdict.mutant) if item not in broken]
                    verdict.items = len(items)
                    jobs[pool.submit(judge, verdict.mutant, number, items)] = verdict
                for job in as_completed(jobs):
                    verdict = jobs[job]
                    verdict.status, verdict.killer, verdict.seconds = job.result()
                    print(describe(verdict), flush=True)
                killers = sorted({verdict.killer for verdict in todo.values()} - {""})
                failed = pool.submit(failing_items, 0, killers, stop_at_first=False).result()
                broken |= set(failed)
                todo = {number: verdict for number, verdict in todo.items() if verdict.killer in failed}


def build_cpp(tree: Path, verdicts: list[Verdict]) -> None:
    """Build npu-cuda with all mutants of C++, each behind a switch."""
    edits: dict[str, list[tuple[int, Mutant]]] = defaultdict(list)
    for number, verdict in enumerate(verdicts, 1):
        if verdict.mutant.path.endswith(".cpp"):
            edits[verdict.mutant.path].append((number, verdict.mutant))
    for path, mutants in edits.items():
        source = (tree / path).read_bytes()
        for number, mutant in sorted(mutants, key=lambda entry: -entry[1].edit[0]):
            source = mutant.applied_to(source).replace(b"npu_mutant(@)", f"npu_mutant({number})".encode())
        (tree / path).write_bytes(CPP_SWITCH.encode() + source)
    package, site = tree / "packages" / "npu-cuda", tree / "build" / "site"
    settings = ("-C", f"build-dir={tree}/build/cpp", "-C", "cmake.define.NPU_CUDA=OFF")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation")
    subprocess.run((*pip, *settings, "--target", site, package), check=True)
    shutil.copy(site / "npu_cuda" / "_C.abi3.so", package / "src" / "npu_cuda")


def take_tree(free: SimpleQueue[Path]) -> None:
    """Give this process a copy of the tree of its own."""
    os.chdir(free.get())


def judge(mutant: Mutant, number: int, items: list[str]) -> tuple[str, str, float]:
    """Return what became of a mutant, the item that killed it, and the seconds that took."""
    if not items:
        return "unreached", "", 0.0
    path, start = Path(mutant.path), time.monotonic()
    source = path.read_bytes()
    if path.suffix == ".py":
        path.write_bytes(mutant.applied_to(source))
        os.utime(path, (number, number))  # compiled code is taken for this one if time and size are the same
    try:
        killer = find_killer(number, items)
    finally:
        path.write_bytes(source)
        os.utime(path, (0, 0))
    return "killed" if killer else "survived", killer, round(time.monotonic() - start, 1)


def find_killer(number: int, items: list[str]) -> str:
    """Return the first item that fails, of items of a few files, then of more, then of all."""
    for most_items, most_files in PARTS:
        files = list(dict.fromkeys(map(file_of, items)))[:most_files]
        part = [name for name in items if file_of(name) in files][:most_items]
        if failed := failing_items(number, part):
            return failed[0]
        items = sorted(set(items) - set(part), key=items.index)
    return ""


def file_of(item: str) -> str:
    return item.partition("::")[0]


def failing_items(number: int, items: list[str], *, stop_at_first: bool = True) -> list[str]:
    """Run items in a child process, in which a C++ mutant may be on; return those that failed.

    One in which the process died, or hung, is among them.
    """
    if not items:
        return []
    progress = Path("build", "progress")
    progress.parent.mkdir(exist_ok=True)
    progress.write_text("")
    child = multiprocessing.get_context("fork").Process(
        target=run_items, args=(number, items, stop_at_first, progress)
    )
    child.start()
    child.join(10 * MUTANT_SECONDS)
    if child.is_alive():
        os.killpg(child.pid, signal.SIGKILL)
        child.join()
    steps = [line.partition(" ")[::2] for line in progress.read_text().splitlines()]
    failed = [name for step, name in steps if step == "failed"]
    if not steps or steps[-1][0] != "done":
        failed.append(steps[-1][1] if steps else "the start of pytest")
    return failed


def run_items(number: int, items: list[str], stop_at_first: bool, progress: Path) -> None:
    """Run items in this process, which is a fork, with the packages of the tree that it is in."""
    os.setsid()
    sources = [str(path) for path in Path.cwd().glob("packages/*/src")]
    sys.path[:0] = sources
    os.environ |= {"CI": "1", "NPU_MUTANT": str(number), "PYTHONPATH": os.pathsep.join(sources)}
    with open(os.devnull if "MUTANT_LOG" not in os.environ else os.environ["MUTANT_LOG"], "a") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    arguments = [
        "-q",
        "-p",
        "no:cacheprovider",
        *(["-x"] if stop_at_first else []),
        *set(map(file_of, items)),
    ]
    pytest.main(arguments, [Watch(items, progress)])
    os._exit(0)


class Watch:
    """A plugin of pytest that runs some items in a given order, and writes down how far it has come."""

    def __init__(self, items: list[str], progress: Path) -> None:
        self._order = {name: index for index, name in enumerate(items)}
        self._file = progress.open("a", buffering=1)
        signal.signal(signal.SIGPROF, lambda *_: os._exit(1))  # the item that is running has failed

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        chosen = [item for item in items if item.nodeid in self._order]
        items[:] = sorted(chosen, key=lambda item: self._order[item.nodeid])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            print("failed", report.nodeid, file=self._file)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        print("start", nodeid, file=self._file)
        signal.setitimer(signal.ITIMER_PROF, ITEM_SECONDS)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            print("failed", report.nodeid, file=self._file)

    def pytest_runtest_logfinish(self) -> None:
        signal.setitimer(signal.ITIMER_PROF, 0)
        if time.process_time() > MUTANT_SECONDS:
            self._session.shouldstop = "enough"

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_sessionfinish(self) -> None:
        print("done", file=self._file)


def describe(verdict: Verdict) -> str:
    place = f"{verdict.mutant.path}:{verdict.mutant.line} {verdict.mutant.scope}"
    return (
        f"{verdict.status:9} {verdict.seconds:6.1f} s  {place}: {verdict.mutant.operator}  [{verdict.killer}]"
    )


def print_table(verdicts: list[Verdict]) -> None:
    print(f"\n{'folder':42} mutants killed survived")
    rows = defaultdict(list)
    for verdict in verdicts:
        rows[verdict.folder].append(verdict.status == "killed")
    rows["all"] = [killed for row in list(rows.values()) for killed in row]
    for folder, row in rows.items():
        print(f"{folder:42} {len(row):7} {sum(row):6} {len(row) - sum(row):8}")
    for verdict in verdicts:
        if verdict.status != "killed":
            print(f"\n{describe(verdict)}", *verdict.diff, sep="\n")


def compare(before: dict[str, Any], after: dict[str, Any]) -> int:
    """Print both tables side by side, and what was killed before and is not after; fail if that is over 2 %."""
    rows: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
    for side, verdicts in enumerate((before["verdicts"], after["verdicts"])):
        for row in verdicts:
            for folder in (row["folder"], "all"):
                rows[folder][2 * side] += 1
                rows[folder][2 * side + 1] += row["status"] == "killed"
    rows["all"] = rows.pop("all")
    print(f"{'folder':42} mutants killed | mutants killed")
    for folder, counts in rows.items():
        print(f"{folder:42} {counts[0]:7} {counts[1]:6} | {counts[2]:7} {counts[3]:6}")
    killed = {key(row) for row in before["verdicts"] if row["status"] == "killed"}
    lost = [row for row in after["verdicts"] if row["status"] != "killed" and key(row) in killed]
    for row in lost:
        print("\nkilled before:", row["mutant"]["path"], row["mutant"]["scope"], *row["diff"], sep="\n")
    print(
        f"\nof {len(before['verdicts'])} mutants, {len(before['verdicts']) - len(after['gone'])} are in both; lost: {len(lost)}"
    )
    return int(len(lost) > 0.02 * len(before["verdicts"]))


def key(row: dict[str, Any]) -> tuple[str, ...]:
    """Return what identifies a mutant although its function may have moved."""
    mutant = row["mutant"]
    return mutant["statement"], mutant["operator"], str(mutant["occurrence"])


if __name__ == "__main__":
    sys.exit(main())

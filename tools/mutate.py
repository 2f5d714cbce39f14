"""The mutation sample: how many of 154 wrong edits, drawn by a fixed seed, the tests notice.

    python tools/mutate.py --out before.json                          draw, record and judge
    python tools/mutate.py --sample before.json --out after.json      the same mutants in another version
    python tools/mutate.py --compare before.json after.json

The tests run once first, recording what each item reaches and costs. Then each mutant is judged in a copy of
the tree by the items that reach it: cheap ones of a few files, then more, until one fails. All mutants of C++
are in one build, each behind a switch. (mutmut and cosmic-ray know no C++ and run all tests each time.)

A mutant is found again by function, statement and edit, also when its function has moved. One whose code is
gone is listed, and another of the same folder takes its place. What a mutant is: tools/mutants.py.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import asdict, dataclass
from multiprocessing.queues import SimpleQueue
from pathlib import Path
from typing import Any

from mutant_run import Recording, failing_items, judge, record
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
FOLDERS = {f"packages/{top}/{name}": count for top, row in SAMPLE.items() for name, count in row.items()}
LEFT_OUT = shutil.ignore_patterns(
    ".git", ".venv", ".nox", "build", "dist", "_build", "__pycache__", ".*_cache"
)
LOST = 0.02  # the share of the sample that a leaner set of tests may lose


@dataclass(slots=True)
class Verdict:
    """What became of a mutant: ``killed`` by an item, ``survived``, or ``unreached`` by any.

    Args:
        mutant: The mutant.
        folder: The folder that it stands for in the table.
        diff: Its lines, before and after.
    """

    mutant: Mutant
    folder: str
    diff: list[str]
    status: str = "unreached"
    killer: str = ""
    items: int = 0  # that reach it
    seconds: float = 0.0  # of judging


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tests", nargs="*", help="what pytest runs; all without")
    parser.add_argument("--out", type=Path, default=BUILD / "verdicts.json", help="where the verdicts go")
    parser.add_argument("--sample", type=Path, help="verdicts whose mutants are taken again")
    parser.add_argument("--record", type=Path, default=BUILD / "recording", help="reused where it exists")
    parser.add_argument("--compare", type=Path, nargs=2, metavar="JSON", help="print two results and leave")
    options = parser.parse_args()
    if options.compare:
        return compare(*(json.loads(path.read_text()) for path in options.compare))
    known = json.loads(options.sample.read_text())["verdicts"] if options.sample else []
    verdicts, gone = draw_sample([Mutant(**row["mutant"]) for row in known])
    record(options.record, options.tests)
    judge_all(verdicts, Recording(options.record))
    text = json.dumps({"verdicts": verdicts, "gone": gone}, default=asdict, indent=1)
    options.out.write_text(text)
    return compare(json.loads(text))


def draw_sample(known: list[Mutant]) -> tuple[list[Verdict], list[Mutant]]:
    """Return the sample of this version, with the known mutants that still exist, and those that are gone."""
    draw = random.Random(SEED)
    pools = {folder: list(mutants_of(folder)) for folder in FOLDERS}
    places: dict[tuple[str, ...], list[tuple[str, Mutant]]] = defaultdict(list)
    for folder, pool in pools.items():
        for mutant in pool:
            for key in keys(mutant):
                places[key].append((folder, mutant))
    kept: dict[str, list[Mutant]] = defaultdict(list)
    verdicts, gone = [], []
    for mutant in known:
        found = next((places[key][0] for key in keys(mutant) if len(places[key]) == 1), None)
        if found is None:
            gone.append(mutant)
        else:
            kept[found[0]].append(found[1])
    for folder, count in FOLDERS.items():
        chosen = kept[folder] + varied(draw, pools[folder], kept[folder], count - len(kept[folder]))
        verdicts += [Verdict(mutant, folder, diff_of(mutant)) for mutant in chosen]
    return verdicts, gone


def mutants_of(folder: str) -> Iterator[Mutant]:
    for path in sorted((ROOT / folder).rglob("*.cpp" if "csrc" in folder else "*.py")):
        yield from find_mutants(ROOT, path)


def keys(mutant: Mutant) -> list[tuple[str, ...]]:
    """Return by what a mutant is found: its module and function, its function, its statement alone."""
    edit = (mutant.statement, mutant.operator, str(mutant.occurrence))
    return [(mutant.path, mutant.scope, *edit), (mutant.scope, *edit), edit]


def varied(draw: random.Random, pool: list[Mutant], taken: list[Mutant], count: int) -> list[Mutant]:
    """Draw mutants from different functions, of each kind of edit in turn."""
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


def judge_all(verdicts: list[Verdict], recording: Recording) -> None:
    """Judge the mutants, in two copies of the tree at a time; an item that fails anyway kills nothing."""
    with tempfile.TemporaryDirectory(prefix="mutants-") as name:
        trees = [Path(name, "0"), Path(name, "1")]
        shutil.copytree(ROOT, trees[0], ignore=LEFT_OUT, symlinks=True)
        build_cpp(trees[0], [verdict.mutant for verdict in verdicts])
        shutil.copytree(trees[0], trees[1], ignore=LEFT_OUT, symlinks=True)
        context = multiprocessing.get_context("fork")
        free = context.SimpleQueue()
        for tree in trees:
            free.put(tree)
        todo, failing = dict(enumerate(verdicts, 1)), set[str]()
        with ProcessPoolExecutor(len(trees), context, initializer=enter_tree, initargs=(free,)) as pool:
            while todo:
                jobs = {}
                for number, verdict in todo.items():
                    items = [item for item in recording.items_for(verdict.mutant) if item not in failing]
                    verdict.items = len(items)
                    jobs[pool.submit(judge, verdict.mutant, number, items)] = verdict
                for job in as_completed(jobs):
                    verdict = jobs[job]
                    verdict.status, verdict.killer, verdict.seconds = job.result()
                    print(describe(asdict(verdict)), flush=True)
                killers = sorted({verdict.killer for verdict in todo.values()} - {""})
                failing.update(pool.submit(failing_items, killers, stop_at_first=False).result())
                todo = {number: verdict for number, verdict in todo.items() if verdict.killer in failing}


def enter_tree(free: SimpleQueue[Path]) -> None:
    """Take a copy of the tree for this process alone."""
    os.chdir(free.get())


def build_cpp(tree: Path, mutants: list[Mutant]) -> None:
    """Build npu-cuda with all mutants of C++, each behind a switch."""
    edits: dict[str, list[tuple[int, Mutant]]] = defaultdict(list)
    for number, mutant in enumerate(mutants, 1):
        if mutant.path.endswith(".cpp"):
            edits[mutant.path].append((number, mutant))
    for path, numbered in edits.items():
        source = (tree / path).read_bytes()
        for number, mutant in sorted(numbered, key=lambda entry: -entry[1].edit[0]):
            source = mutant.applied_to(source).replace(b"npu_mutant(@)", f"npu_mutant({number})".encode())
        (tree / path).write_bytes(CPP_SWITCH.encode() + source)
    package, site = tree / "packages" / "npu-cuda", tree / "build" / "site"
    settings = ("-C", f"build-dir={tree}/build/cpp", "-C", "cmake.define.NPU_CUDA=OFF")
    pip = (sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--no-build-isolation")
    subprocess.run((*pip, *settings, "--target", site, package), check=True)
    shutil.copy(site / "npu_cuda" / "_C.abi3.so", package / "src" / "npu_cuda")


def describe(verdict: dict[str, Any]) -> str:
    mutant = verdict["mutant"]
    place = f"{mutant['path']}:{mutant['line']} {mutant['scope']}: {mutant['operator']}"
    return f"{verdict['status']:9} {verdict['seconds']:6.1f} s  {place}  [{verdict['killer']}]"


def compare(*samples: dict[str, Any]) -> int:
    """Print the table of one sample or of two side by side; return 1 if the second has lost too many."""
    print(f"\n{'folder':44}" + len(samples) * " | mutants  killed  survived")
    for folder in [*FOLDERS, ""]:
        line = f"{folder.removeprefix('packages/') or 'all':44}"
        for sample in samples:
            rows = [row for row in sample["verdicts"] if folder in ("", row["folder"])]
            killed = sum(row["status"] == "killed" for row in rows)
            line += f" | {len(rows):7} {killed:7} {len(rows) - killed:9}"
        print(line)
    *before, after = samples
    survivors = [row for row in after["verdicts"] if row["status"] != "killed"]
    killed_before = [edit_of(row) for row in (before or [after])[0]["verdicts"] if row["status"] == "killed"]
    lost = [row for row in survivors if edit_of(row) in killed_before]
    for row in lost if before else survivors:
        print(f"\n{describe(row)}", *row["diff"], sep="\n")
    for mutant in after["gone"]:
        print(f"\ngone: {mutant['path']} {mutant['scope']}: {mutant['statement']}  {mutant['operator']}")
    print(f"\n{len(after['gone'])} mutants are gone; killed before and not now: {len(lost)}")
    return int(len(lost) > LOST * len(after["verdicts"]))


def edit_of(verdict: dict[str, Any]) -> tuple[str, ...]:
    """Return what a mutant keeps when its function moves."""
    return keys(Mutant(**verdict["mutant"]))[-1]


if __name__ == "__main__":
    sys.exit(main())

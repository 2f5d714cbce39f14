"""Add a run of the tests to docs/reference/torch-versions.json, and write the page of it."""

from __future__ import annotations

import argparse
import dataclasses
import datetime
import json
import platform
import re
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path

import torch

from tests.support.places import ROOT
from tests.support.private_torch import has_torch_name
from tests.torch_releases.page import PAGE, Record, Run, format_page, private_uses

RECORD = ROOT / "docs" / "reference" / "torch-versions.json"
_ADDRESS = re.compile(r"0x[0-9a-f]{6,}")


def read_record(path: Path = RECORD) -> Record:
    """Return the record; an empty one if there is none."""
    if not path.exists():
        return Record((), {})
    stored = json.loads(path.read_text(encoding="utf-8"))
    return Record(tuple(Run(**run) for run in stored["runs"]), stored["absent names"])


def write_record(record: Record, path: Path = RECORD) -> None:
    """Write a record, runs and releases in order."""
    stored = {
        "runs": [dataclasses.asdict(run) for run in sorted(record.runs, key=Run.order)],
        "absent names": dict(sorted(record.absent.items(), key=lambda item: version_key(item[0]))),
    }
    path.write_text(json.dumps(stored, indent=1) + "\n", encoding="utf-8")


def version_key(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def outcomes_of(reports: Iterable[Path]) -> dict[str, ElementTree.Element]:
    """Return the cases of junit reports by the id of the test; a later report replaces an earlier one's.

    A test that was running when a run was interrupted has no name in its report, and is left out.
    """
    return {
        f"{case.get('classname', '').replace('.', '/')}.py::{case.get('name')}": case
        for report in reports
        for case in ElementTree.parse(report).iter("testcase")
        if case.get("name")
    }


def run_of(reports: Iterable[Path], tier: str) -> Run:
    """Return what junit reports say of a run of these releases of PyTorch and Python, today."""
    skipped: Counter[str] = Counter()
    known, failed, passed = {}, {}, 0
    for test, case in outcomes_of(reports).items():
        wrong = next((item for item in case if item.tag in ("failure", "error")), None)
        skip = case.find("skipped")
        if wrong is not None:
            failed[test] = _first_line(wrong.get("message", ""))
        elif skip is None:
            passed += 1
        elif skip.get("type") == "pytest.xfail":
            known[test] = skip.get("message", "")
        else:
            # Of a whole module, the reason stands in the text only.
            module = re.search(r"Skipped: (.*)'\)", skip.text or "")
            skipped[module[1] if module else _first_line(skip.get("message", ""))] += 1
    return Run(
        torch=torch.__version__.partition("+")[0],
        python=".".join(platform.python_version_tuple()[:2]),
        platform=f"{platform.system()} {platform.machine()}",
        tier=tier,
        date=datetime.date.today().isoformat(),
        passed=passed,
        skipped=dict(sorted(skipped.items())),
        known=dict(sorted(known.items())),
        failed=dict(sorted(failed.items())),
    )


def _first_line(message: str) -> str:
    return _ADDRESS.sub("0x...", message.strip().partition("\n")[0])[:200]


def with_run(record: Record, run: Run, absent: Mapping[str, list[str]]) -> Record:
    """Return a record with a run in place of the one of the same releases and tier, and absent names."""
    others = tuple(item for item in record.runs if item.order() != run.order())
    return Record((*others, run), {**record.absent, **absent})


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.torch_releases.record", description=__doc__)
    parser.add_argument("reports", nargs="*", type=Path, help="junit reports of a run; none: write the page")
    parser.add_argument("--tier", default="tests", help="which tests ran (default: tests)")
    options = parser.parse_args()
    record, failures = read_record(), 0
    if options.reports:
        run = run_of(options.reports, options.tier)
        absent = [name for name in private_uses() if not has_torch_name(name)]
        record = with_run(record, run, {run.torch: absent})
        write_record(record)
        failures = len(run.failed)
        print(f"{run.passed} passed, {len(run.failed)} failed, {len(run.known)} known failures")
    PAGE.write_text(format_page(record), encoding="utf-8")
    print(f"wrote {PAGE.relative_to(ROOT)}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())

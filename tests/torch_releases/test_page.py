"""The page of the releases of PyTorch is made of the record; known failures are of tests that exist."""

import ast
import re
from pathlib import Path

import pytest
import torch

from npu_ir.plugins.distributions import TESTED_TORCH
from tests.support.known_failures import KNOWN_FAILURES, KnownFailure, known_failure, minor_release
from tests.support.places import ROOT
from tests.support.private_torch import has_torch_name
from tests.torch_releases.page import PAGE, Record, Run, format_page, private_uses
from tests.torch_releases.record import read_record, run_of, with_run, write_record

REPORT = """<?xml version="1.0" encoding="utf-8"?>
<testsuites><testsuite name="pytest">
<testcase classname="tests.npu_ir.test_a" name="test_right" time="1"/>
<testcase classname="tests.npu_ir.test_a" name="test_wrong[x]" time="1">
<failure message="AssertionError: 1 == 2&#10;more">...</failure></testcase>
<testcase classname="tests.npu_ir.test_a" name="test_absent">
<skipped type="pytest.skip" message="needs a drawer">...</skipped></testcase>
<testcase classname="tests.npu_ir.test_a" name="test_known">
<skipped type="pytest.xfail" message="the cause">...</skipped></testcase>
<testcase time="0.003"/>
</testsuite></testsuites>
"""


def run(release: str = "2.9.1", python: str = "3.12", **changes: object) -> Run:
    fields: dict[str, object] = {"passed": 7, "skipped": {}, "known": {}, "failed": {}, **changes}
    return Run(release, python, "Linux x86_64", "smoke", "2026-01-02", **fields)  # type: ignore[arg-type]


def test_the_page_is_what_the_record_says() -> None:
    page = PAGE.read_text(encoding="utf-8")

    assert page == format_page(read_record()), "python -m tests.torch_releases.record"


def test_the_record_has_no_failure_without_a_cause() -> None:
    record = read_record()

    assert {(item.torch, item.python): dict(item.failed) for item in record.runs if item.failed} == {}


def test_the_releases_of_the_record_are_those_that_the_doctor_knows_and_the_packages_accept() -> None:
    releases = list(dict.fromkeys(minor_release(item.torch) for item in read_record().runs))
    wanted = {
        path.parent.name: re.search(r'"torch>=([\d.]+)"', path.read_text(encoding="utf-8"))
        for path in ROOT.glob("packages/*/pyproject.toml")
    }

    assert releases == list(TESTED_TORCH)
    assert {found[1] for found in wanted.values() if found} == {releases[0]}


def test_a_known_failure_is_of_a_test_that_there_is() -> None:
    for row in KNOWN_FAILURES:
        for pattern in row.patterns():
            path, _, name = pattern.partition("::")
            tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
            names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}

            assert name.partition("[")[0] in names, pattern


def test_a_known_failure_is_found_by_test_and_minor_release(monkeypatch: pytest.MonkeyPatch) -> None:
    row = KnownFailure("2.9", "It rains", {"test_a.py": ("test_b[x-*]",)})
    monkeypatch.setattr("tests.support.known_failures.KNOWN_FAILURES", (row,))

    assert known_failure("tests/test_a.py::test_b[x-1]", "2.9.1+cpu") is row
    assert known_failure("tests/test_a.py::test_b[y-1]", "2.9.1") is None
    assert known_failure("tests/test_a.py::test_b[x-1]", "2.10.0") is None


def test_a_run_is_read_from_reports_of_which_the_last_counts(tmp_path: Path) -> None:
    first, second = tmp_path / "first.xml", tmp_path / "second.xml"
    first.write_text(REPORT)
    second.write_text(
        '<testsuite><testcase classname="tests.npu_ir.test_a" name="test_wrong[x]"/></testsuite>'
    )

    before, after = run_of([first], "smoke"), run_of([first, second], "smoke")

    assert before.failed == {"tests/npu_ir/test_a.py::test_wrong[x]": "AssertionError: 1 == 2"}
    assert (before.passed, after.passed, dict(after.failed)) == (1, 2, {})
    assert before.known == {"tests/npu_ir/test_a.py::test_known": "the cause"}
    assert before.skipped == {"needs a drawer": 1}
    assert minor_release(torch.__version__) == minor_release(before.torch)


def test_a_record_keeps_the_last_run_of_a_release_in_order_of_releases(tmp_path: Path) -> None:
    record = Record((), {})
    for item in (run("2.10.0"), run(), run(passed=8)):
        record = with_run(record, item, {item.torch: []})
    path = tmp_path / "record.json"

    write_record(record, path)

    assert [(item.torch, item.passed) for item in read_record(path).runs] == [("2.9.1", 8), ("2.10.0", 7)]
    assert read_record(tmp_path / "absent.json") == Record((), {})


def test_the_page_names_failures_with_causes_skips_and_absent_names(monkeypatch: pytest.MonkeyPatch) -> None:
    row = KnownFailure("2.8 2.9", "It rains", {"test_a.py": ("test_b",)})
    monkeypatch.setattr("tests.torch_releases.page.KNOWN_FAILURES", (row,))
    name = next(iter(private_uses()))
    failing = run(
        known={"tests/a.py::test_b": "It rains"}, failed={"tests/a.py::test_c": "No"}, skipped={"Why": 1}
    )
    record = Record((failing, run("2.10.0", "3.13")), {"2.9.1": [name], "2.10.0": []})

    page = format_page(record)

    assert "| 2.9.1 | 3.12 | 7 passed, 1 known failure, 1 **failed** |" in page
    assert "| 2.10.0 | 3.13 | 7 passed |" in page
    assert "- 2.8, 2.9: It rains.\n  - `tests/test_a.py::test_b`\n" in page
    assert "- **failed** on 2.9.1, Python 3.12: `tests/a.py::test_c`: No\n" in page
    assert "- Why (smoke)\n" in page
    assert f"| `{name}` | {', '.join(private_uses()[name])} | 2.10.0 |\n" in page


def test_private_names_are_looked_up_in_this_pytorch() -> None:
    assert has_torch_name("torch._C._dynamo.guards.TensorGuards")
    assert not has_torch_name("torch._C._no_such_name")
    assert not has_torch_name("torch._no_such_module.name")

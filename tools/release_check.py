"""Check of what a release states: ``nox -s release-check`` runs it, then builds and tries wheels and pages.

One version everywhere, a section of it in CHANGELOG.md, requirements and classifiers that agree.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from wheel_checks import PACKAGES, versions

ROOT = Path(__file__).resolve().parents[1]
_CLASSIFIERS = re.compile(r"^classifiers = (\[.*?^\])", re.MULTILINE | re.DOTALL)
_REQUIREMENT = re.compile(r'"(npu-[a-z]+(?:\[[a-z,]+\])?)(.*?)"')
_OF_ONE_PACKAGE = {"Programming Language :: C++"}


def find_problems(root: Path) -> Iterator[str]:
    """Yield what is wrong with the statements of a release."""
    stated = versions(root)
    version = stated["npu-ir"]
    if len(set(stated.values())) != 1:
        yield f"the packages have several versions: {', '.join(map(' '.join, stated.items()))}"
    yield from _changelog_problems((root / "CHANGELOG.md").read_text(encoding="utf-8"), version)
    projects = {
        name: (root / "packages" / name / "pyproject.toml").read_text(encoding="utf-8") for name in PACKAGES
    }
    for name, text in projects.items():
        yield from (
            f"{name} requires {item}{pin}, not {item}=={version}"
            for item, pin in _REQUIREMENT.findall(text.partition("\ndependencies = ")[2])
            if pin != f"=={version}"
        )
    classifiers = {name: _classifiers_of(text) for name, text in projects.items()}
    for name, found in classifiers.items():
        different = (found ^ classifiers["npu-ir"]) - _OF_ONE_PACKAGE
        if different:
            yield f"npu-ir and {name} differ in classifiers: {', '.join(sorted(different))}"


def _changelog_problems(text: str, version: str) -> Iterator[str]:
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE):
        fix = "turn 'Unreleased' into it, and open a new one"
        yield f"CHANGELOG.md has no section '## [{version}] - <date>': {fix}"
    if not re.search(r"^## \[Unreleased\]$", text, re.MULTILINE):
        yield "CHANGELOG.md has no section '## [Unreleased]' for work to come"


def _classifiers_of(text: str) -> set[str]:
    match = _CLASSIFIERS.search(text)
    return set(ast.literal_eval(match[1])) if match else set()


def main() -> None:
    problems = list(find_problems(ROOT))
    for problem in problems:
        print(f"problem: {problem}", file=sys.stderr)
    if problems:
        raise SystemExit(1)
    print(f"{versions(ROOT)['npu-ir']}: versions, changelog, requirements and classifiers agree")


if __name__ == "__main__":
    main()

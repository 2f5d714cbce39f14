"""ARCHITECTURE.md is complete: every folder has its row, every picture is right, every file exists."""

import re
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.support.places import ROOT
from tests.support.scripts import TOOLS, forgotten, imported

PAGE = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")


@pytest.fixture(name="architecture", scope="module")
def load() -> Iterator[ModuleType]:
    with forgotten(TOOLS):
        yield imported("architecture", TOOLS)


def test_every_folder_says_what_comes_in_and_goes_out(architecture: ModuleType) -> None:
    problems = {
        str(folder.relative_to(ROOT)): architecture.problem_of(folder)
        for package in architecture.PACKAGES
        for folder in architecture.folders(package)
    }

    assert len(problems) > 50
    assert {folder: problem for folder, problem in problems.items() if problem} == {}


def test_the_page_is_up_to_date(architecture: ModuleType) -> None:
    assert architecture.updated(PAGE) == PAGE, "python tools/architecture.py --write"


def test_files_that_the_page_names_exist() -> None:
    names = set(re.findall(r"`((?:npu_\w+|csrc)/[\w./]+\.(?:py|cpp|h))`", PAGE))
    found = {
        name
        for name in names
        if any(
            (folder / name).exists() for folder in (*ROOT.glob("packages/*/src"), ROOT / "packages/npu-cuda")
        )
    }

    assert len(names) > 25
    assert names - found == set()


def test_a_way_through_the_house_enters_at_most_eight_files() -> None:
    ways = re.split(r"^\*\*", PAGE.split("## Four ways")[1].split("\n## ")[0], flags=re.MULTILINE)[1:]
    counts = [len(re.findall(r"^\d+\. ", way, re.MULTILINE)) for way in ways]

    assert len(counts) == 4
    assert all(5 <= count <= 8 for count in counts)


def test_a_package_has_at_most_ten_loose_modules() -> None:
    loose = {
        package.name: len(list(package.glob("*.py")))
        for package in ROOT.glob("packages/*/src/npu_*")
        if package.is_dir()
    }

    assert len(loose) == 4
    assert all(count <= 10 for count in loose.values()), loose

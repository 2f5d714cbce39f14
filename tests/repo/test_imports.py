"""Tests import from `tests.support` and from their own folder, never from another folder of tests."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.support.places import ROOT

TESTS = ROOT / "tests"


def imports(path: Path) -> Iterator[tuple[str, ...]]:
    """Yield the modules of `tests` that a file imports from, as parts."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        yield from (tuple(name.split(".")) for name in names if name.startswith("tests."))


def test_what_several_folders_need_is_in_support() -> None:
    astray = {
        f"{path.relative_to(TESTS)}: {'.'.join(parts)}"
        for path in TESTS.rglob("*.py")
        for parts in imports(path)
        if not may_import(path.relative_to(ROOT).parent.parts, parts)
    }

    assert astray == set()


def may_import(folder: tuple[str, ...], parts: tuple[str, ...]) -> bool:
    """Whether a file of a folder may import this: from `tests.support`, or from a file beside it."""
    if parts[:2] == ("tests", "support"):
        return True
    beside = parts[: len(folder)] == folder and len(parts) > len(folder)
    return beside and Path(ROOT, *folder, f"{parts[len(folder)]}.py").exists()


def test_support_imports_no_tests() -> None:
    astray = {
        f"{path.relative_to(TESTS)}: {'.'.join(parts)}"
        for path in (TESTS / "support").rglob("*.py")
        for parts in imports(path)
        if parts[1] != "support"
    }

    assert astray == set()

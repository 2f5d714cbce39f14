"""Error texts are self-contained: users of an installed package have no repository."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.places import ROOT

PACKAGES = ROOT / "packages"
SOURCES = sorted(PACKAGES.glob("*/src/**/*.py"))
PAGE = re.compile(r"\bdocs/\S+|\b(README|ARCHITECTURE|CONTRIBUTING)\b")


def texts(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of what is raised, and of what is given as ``fix``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.keyword) and node.arg == "fix"):
            yield from (
                item.value
                for item in ast.walk(node)
                if isinstance(item, ast.Constant) and isinstance(item.value, str)
            )


def test_no_error_sends_its_reader_to_a_file_of_the_repository() -> None:
    assert len(SOURCES) > 300

    found = [
        f"{path.relative_to(PACKAGES)}: {text}"
        for path in SOURCES
        for text in texts(ast.parse(path.read_text(encoding="utf-8")))
        if PAGE.search(text)
    ]

    assert found == []


@pytest.mark.parametrize("fix", ["see docs/concepts/page.md", "as CONTRIBUTING says"])
def test_a_text_that_does_is_found(fix: str) -> None:
    (found,) = texts(ast.parse(f"error(fix={fix!r})"))

    assert PAGE.search(found)

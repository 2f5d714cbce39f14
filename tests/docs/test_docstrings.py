"""Docstrings say on the site what they say in the source: napoleon finds types where none are meant."""

from __future__ import annotations

import ast
import re
import runpy
from collections.abc import Iterator

import pytest

from tests.support.places import ROOT

SOURCES = sorted((ROOT / "packages").glob("*/src/**/*.py*"))
FIRST_OF_RETURNS = re.compile(r"^(?:Returns|Yields):\n +(?P<line>.*)", re.MULTILINE)
COLON = re.compile(r"(?<!:):(?!:)")


def lines_with_a_type(docstring: str) -> Iterator[str]:
    """Yield the lines that napoleon reads as ``type: description``."""
    for found in FIRST_OF_RETURNS.finditer(docstring):
        if COLON.search(re.sub(r"`+.*?`+", "", found["line"])):
            yield found["line"]


def test_what_a_function_returns_is_not_taken_for_a_type() -> None:
    taken = [
        f"{path.relative_to(ROOT)}, {node.name}: {line}"
        for path in SOURCES
        if path.suffix in (".py", ".pyi")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef)
        for line in lines_with_a_type(ast.get_docstring(node) or "")
    ]

    assert taken == [], "the types are in the signatures: write the first line of Returns without a colon"


def test_a_line_with_a_type_is_found() -> None:
    text = "Return it.\n\nReturns:\n    In order: the caller's ``a: b``.\n"

    assert list(lines_with_a_type(text)) == ["In order: the caller's ``a: b``."]
    assert list(lines_with_a_type("Return it.\n\nReturns:\n    ``{name: value}``, in order.\n")) == []


@pytest.mark.parametrize(
    "docstring",
    [
        pytest.param("The nodes in order: a snapshot.\n\nIt is safe to iterate over.", id="a colon"),
        pytest.param("The nodes in order.", id="no colon"),
        pytest.param("One of these:\n\n- a node\n- a value", id="a list"),
    ],
)
def test_the_docstring_of_a_property_is_shown_as_it_is(docstring: str) -> None:
    napoleon = pytest.importorskip("sphinx.ext.napoleon", reason="it makes the site")
    lines = docstring.split("\n")

    runpy.run_path(str(ROOT / "docs" / "conf.py"))["keep_colon"](None, "property", "", None, None, lines)
    shown = napoleon.GoogleDocstring("\n".join(lines), what="property", name="nodes").lines()

    assert "\n".join(shown).strip() == docstring

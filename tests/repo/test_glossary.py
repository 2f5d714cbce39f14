"""The words of the code are those of docs/glossary.md: retired names stay away, docstrings are plain."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

import pytest

from tests.support.places import ROOT

GLOSSARY = ROOT / "docs" / "glossary.md"
SOURCES = sorted(
    path for path in ROOT.glob("packages/*/src/**/*.py") if not {"templates", "build"} & set(path.parts)
)
# Identifiers of another word for an idea that has one, and the term.
RETIRED = {
    **dict.fromkeys(("Step", "NodeStep", "run_step", "step_of"), "instruction"),
    **dict.fromkeys(("Segment", "segment_of", "is_segment"), "partition"),
    **dict.fromkeys(("Seen", "Prober", "ProbeData"), "call traits, op probe, sample inputs"),
    "forms_of": "out-variant",
    **dict.fromkeys(("Memory", "Sharing"), "alias sets"),
    **dict.fromkeys(("Lifetime", "lifetimes"), "live range"),
    **dict.fromkeys(("Placer", "Placement", "Homes", "Offer", "Piece"), "buffer assignment"),
    **dict.fromkeys(("Whole", "Same", "Once", "Unbound"), "Allocate, Alias, Evaluate, deferred binding"),
    "Watch": "observer",
    **dict.fromkeys(("Variant", "Fingerprint"), "specialization, guards"),
    **dict.fromkeys(("Subjects", "Originals"), "training components, parameter substitution"),
    **dict.fromkeys(("Capturing", "Running", "OpByOpRunner"), "runner"),
    **dict.fromkeys(("StandIns", "stand_in", "stand_ins"), "fake value, substitute node, staging copy"),
    **dict.fromkeys(("place_of", "Place"), "location, device, path, address"),
    **dict.fromkeys(
        ("no_collection", "no_outside_influence", "is_undisturbed"), "paused_gc, isolated torch state"
    ),
}
# Gerunds that are nouns of the field.
NOUNS = {
    "aliasing",
    "binding",
    "lowering",
    "naming",
    "probing",
    "rewriting",
    "testing",
    "tracing",
    "training",
}


def names_defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            text = ast.get_docstring(node)
            if text is not None:
                yield getattr(node, "lineno", 1), text


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    return {str(path.relative_to(ROOT)): ast.parse(path.read_text(encoding="utf-8")) for path in SOURCES}


def test_retired_identifiers_are_not_used_again(trees: dict[str, ast.Module]) -> None:
    found = {
        f"{path}: {name}, for which the glossary has: {RETIRED[name]}"
        for path, tree in trees.items()
        for name in names_defined(tree)
        if name in RETIRED
    }

    assert found == set()


def test_modules_are_nouns() -> None:
    gerunds = {
        str(path.relative_to(ROOT))
        for path in SOURCES
        for name in (path.stem, path.parent.name)
        if name.endswith("ing") and not name.endswith("folding") and name not in NOUNS
    }

    assert gerunds == set()


def test_docstrings_begin_with_a_noun_phrase_or_an_imperative_of_one_line(
    trees: dict[str, ast.Module],
) -> None:
    questions = re.compile(r"(What|Which|How|Where|Why|Whether|Who|Whose|That|If)\b")
    odd = [
        f"{path}:{line}: {text.splitlines()[0]}"
        for path, tree in trees.items()
        for line, text in docstrings(tree)
        if questions.match(text) or (text.count("\n") and text.splitlines()[1].strip())
    ]

    assert odd == []


def test_sentences_are_those_of_the_language(trees: dict[str, ast.Module]) -> None:
    odd = re.compile(
        r"\b(is|are) no (?!\w+er\b|more\b|such\b|need\b|way\b|[a-z]+ (of|in|on|for|to|that)\b)[a-z]+"
    )
    found = [
        f"{path}:{line}: {match[0]}"
        for path, tree in trees.items()
        for line, text in docstrings(tree)
        for match in odd.finditer(text)
        if not re.search(r"there $", text[: match.start()], re.IGNORECASE)
    ]

    assert found == []


def test_the_glossary_names_classes_that_exist(trees: dict[str, ast.Module]) -> None:
    defined = {name for tree in trees.values() for name in names_defined(tree)}
    words = re.findall(r"`([A-Za-z_]+)(?:\.[a-z_]+)?`", GLOSSARY.read_text(encoding="utf-8"))

    assert {word for word in words if word[0].isupper()} <= defined


def test_every_term_of_the_glossary_stands_in_one_row() -> None:
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY.read_text(encoding="utf-8"), re.MULTILINE)
    terms = [term.strip() for row in rows for term in row.split(",") if row != "term"]

    assert len(terms) == len(set(terms)) > 50

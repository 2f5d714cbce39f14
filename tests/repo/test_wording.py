"""The words of the sources: those of docs/glossary.md, plain sentences, no page that users do not have."""

import ast
import re
import runpy
from collections.abc import Iterator

import pytest

from tests.support.places import ROOT
from tests.support.sources import docstrings, source_trees

GLOSSARY = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
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
NOUNS = r"aliasing|binding|\w*folding|lowering|naming|probing|rewriting|testing|tracing|training"
PAGE = re.compile(r"\bdocs/\S+|\b(README|ARCHITECTURE|CONTRIBUTING)\b")
FIRST_OF_RETURNS = re.compile(r"^(?:Returns|Yields):\n +(?P<line>.*)", re.MULTILINE)
COLON = re.compile(r"(?<!:):(?!:)")


def names_defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            yield node.target.id


def error_texts(tree: ast.AST) -> Iterator[str]:
    """Yield the strings of what is raised, and of what is given as ``fix``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) or (isinstance(node, ast.keyword) and node.arg == "fix"):
            constants = (item.value for item in ast.walk(node) if isinstance(item, ast.Constant))
            yield from (text for text in constants if isinstance(text, str))


def lines_with_a_type(docstring: str) -> Iterator[str]:
    """Yield the lines that napoleon reads as ``type: description``."""
    for found in FIRST_OF_RETURNS.finditer(docstring):
        if COLON.search(re.sub(r"`+.*?`+", "", found["line"])):
            yield found["line"]


def test_retired_identifiers_are_not_used_again() -> None:
    found = {
        f"{path}: {name}, for which the glossary has: {RETIRED[name]}"
        for path, tree in source_trees().items()
        for name in names_defined(tree)
        if name in RETIRED
    }

    assert found == set()


def test_modules_are_nouns() -> None:
    gerunds = {
        path
        for path in source_trees()
        for name in path.removesuffix(".py").split("/")[-2:]
        if name.endswith("ing") and not re.fullmatch(NOUNS, name)
    }

    assert gerunds == set()


def test_docstrings_begin_with_a_noun_phrase_or_an_imperative_of_one_line() -> None:
    questions = re.compile(r"(What|Which|How|Where|Why|Whether|Who|Whose|That|If)\b")
    odd = [
        f"{path}: {text.splitlines()[0]}"
        for path, tree in source_trees().items()
        if not path.endswith(".pyi")  # made by nanobind
        for _, text in docstrings(tree)
        if questions.match(text) or (text.count("\n") and text.splitlines()[1].strip())
    ]

    assert odd == []


def test_sentences_are_those_of_the_language() -> None:
    odd = re.compile(
        r"\b(is|are) no (?!\w+er\b|more\b|such\b|need\b|way\b|[a-z]+ (of|in|on|for|to|that)\b)[a-z]+"
    )
    found = [
        f"{path}: {match[0]}"
        for path, tree in source_trees().items()
        for _, text in docstrings(tree)
        for match in odd.finditer(text)
        if not re.search(r"there $", text[: match.start()], re.IGNORECASE)
    ]

    assert found == []


def test_the_glossary_names_classes_that_exist_and_each_term_once() -> None:
    defined = {name for tree in source_trees().values() for name in names_defined(tree)}
    words = re.findall(r"`([A-Za-z_]+)(?:\.[a-z_]+)?`", GLOSSARY)
    rows = re.findall(r"^\| ([^|]+) \|", GLOSSARY, re.MULTILINE)
    terms = [term.strip() for row in rows for term in row.split(",") if row != "term"]

    assert {word for word in words if word[0].isupper()} <= defined
    assert len(terms) == len(set(terms)) > 50


def test_no_error_sends_its_reader_to_a_file_of_the_repository() -> None:
    found = [
        f"{path}: {text}"
        for path, tree in source_trees().items()
        for text in error_texts(tree)
        if PAGE.search(text)
    ]

    assert len(source_trees()) > 300
    assert found == []
    for fix in ("see docs/concepts/page.md", "as CONTRIBUTING says"):
        assert PAGE.search(*error_texts(ast.parse(f"error(fix={fix!r})")))


def test_what_a_function_returns_is_not_taken_for_a_type() -> None:
    taken = [
        f"{path}, {node.name}: {line}"
        for path, tree in source_trees().items()
        for node, text in docstrings(tree)
        if isinstance(node, ast.FunctionDef)
        for line in lines_with_a_type(text)
    ]

    assert taken == [], "the types are in the signatures: write the first line of Returns without a colon"
    text = "Return it.\n\nReturns:\n    In order: the caller's ``a: b``.\n"
    assert list(lines_with_a_type(text)) == ["In order: the caller's ``a: b``."]
    assert list(lines_with_a_type("Return it.\n\nReturns:\n    ``{name: value}``, in order.\n")) == []


def test_the_docstring_of_a_property_is_shown_as_it_is() -> None:
    napoleon = pytest.importorskip("sphinx.ext.napoleon", reason="it makes the site")
    keep_colon = runpy.run_path(str(ROOT / "docs" / "conf.py"))["keep_colon"]
    for docstring in (
        "The nodes in order: a snapshot.\n\nIt is safe to iterate over.",
        "The nodes in order.",
        "One of these:\n\n- a node\n- a value",
    ):
        lines = docstring.split("\n")

        keep_colon(None, "property", "", None, None, lines)
        shown = napoleon.GoogleDocstring("\n".join(lines), what="property", name="nodes").lines()

        assert "\n".join(shown).strip() == docstring

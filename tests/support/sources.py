"""The sources of the packages, parsed once for all tests that read them."""

import ast
import functools
from collections.abc import Iterator

from tests.support.places import ROOT


@functools.cache
def source_trees() -> dict[str, ast.Module]:
    """Return each module of the packages, stubs included, by its path from the root of the repository."""
    paths = sorted(path for path in ROOT.glob("packages/*/src/**/*.py*") if path.suffix in (".py", ".pyi"))
    return {path.relative_to(ROOT).as_posix(): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def docstrings(tree: ast.Module) -> Iterator[tuple[ast.AST, str]]:
    """Yield the docstrings of a module, its classes and functions, each with what it documents."""
    for node in ast.walk(tree):
        has_one = isinstance(node, ast.Module | ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if has_one and (text := ast.get_docstring(node)):
            yield node, text

"""All models of the corpus, gathered from the files that hold them."""

from __future__ import annotations

import importlib
import pkgutil

import tests.support.corpus as corpus
from tests.support.corpus.case import Case, Table


def all_cases() -> list[Case]:
    """Return the cases of every module of this package that has a table called ``CASES``."""
    found: list[Case] = []
    for module in sorted(pkgutil.iter_modules(corpus.__path__), key=lambda item: item.name):
        table = getattr(importlib.import_module(f"{corpus.__name__}.{module.name}"), "CASES", None)
        if isinstance(table, Table):
            found += table
    return found

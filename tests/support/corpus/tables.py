"""All models of the corpus, gathered from the files that hold them."""

import importlib
import pkgutil
from collections.abc import Iterable

import tests.support.corpus as corpus
from tests.support.corpus.case import Case, Table

# The models of these files differ in their operators: all are captured the same way.
OPERATOR_TABLES = (
    "arithmetic",
    "attention",
    "dtypes",
    "layers",
    "layouts",
    "numbers",
    "pooling",
    "recurrent",
    "tensor_ops",
)


def all_cases() -> list[Case]:
    return cases_of(sorted(module.name for module in pkgutil.iter_modules(corpus.__path__)))


def cases_of(modules: Iterable[str]) -> list[Case]:
    tables = [
        getattr(importlib.import_module(f"{corpus.__name__}.{name}"), "CASES", None) for name in modules
    ]
    return [case for table in tables if isinstance(table, Table) for case in table]

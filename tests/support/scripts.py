"""Modules of benchmarks, tools and examples, which are no packages: scripts import them from their folder."""

import contextlib
import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from tests.support.places import ROOT

BENCHMARKS = ROOT / "benchmarks"
TOOLS = ROOT / "tools"


def imported(name: str, folder: Path = BENCHMARKS) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(folder))
        patch.setenv("HF_HUB_OFFLINE", "1")
        return importlib.import_module(name)


@contextlib.contextmanager
def forgotten(folder: Path = BENCHMARKS) -> Iterator[None]:
    """Forget the modules of a folder afterwards: their names are not theirs alone."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(folder)):
            del sys.modules[name]

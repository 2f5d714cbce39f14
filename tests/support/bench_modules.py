"""The modules of `benchmarks/`, which are no package: scripts import them from their folder."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from types import ModuleType

import pytest

from tests.support.places import ROOT

_FOLDER = ROOT / "benchmarks"


def imported(name: str) -> ModuleType:
    """Return a module of the benchmarks."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(_FOLDER))
        patch.setenv("HF_HUB_OFFLINE", "1")
        __import__(name)
        return sys.modules[name]


@contextlib.contextmanager
def forgotten() -> Iterator[None]:
    """Forget these modules afterwards: their names are not theirs alone."""
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(_FOLDER)):
            del sys.modules[name]

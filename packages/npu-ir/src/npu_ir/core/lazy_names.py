"""Names that a package exports and imports on first access, so that its own import stays quick."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, modules: Mapping[str, str]
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the ``__getattr__`` and the ``__dir__`` of a package that imports names on first access.

    Type checkers read the same names from imports under ``TYPE_CHECKING``.

    Args:
        package: ``__name__`` of the package.
        modules: The module of each name; one that begins with a dot is below the package.
    """

    def get(name: str) -> Any:
        if name not in modules:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return getattr(importlib.import_module(modules[name], package), name)

    def names() -> list[str]:
        here = vars(sys.modules[package])
        return sorted({*here, *here["__all__"]})

    return get, names

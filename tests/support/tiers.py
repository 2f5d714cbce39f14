"""Tiers of tests: what every run takes of a long list of cases, and what only the exhaustive run does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

import pytest
from _pytest.mark import ParameterSet

T = TypeVar("T")
_tier = {"is_exhaustive": False}


def choose_tier(markers: str) -> None:
    """Set the tier by the expression of markers that pytest runs; ``conftest.py`` calls it first."""
    _tier["is_exhaustive"] = markers.startswith("exhaustive")


def examples(few: int, many: int) -> int:
    """Return how many examples a property is tried on: ``many`` in the exhaustive tier only."""
    return many if _tier["is_exhaustive"] else few


def thin(cases: Sequence[T], keep: int, name: Callable[[T], str] | None = None) -> list[ParameterSet]:
    """Return all cases as parameters; those besides ``keep`` of them, evenly spread, are exhaustive.

    Args:
        cases: The cases.
        keep: How many of them run in every tier but ``smoke``.
        name: The id of a case; pytest's own if not given.
    """
    kept = {index * len(cases) // keep for index in range(keep)} if keep < len(cases) else range(len(cases))
    return [
        pytest.param(
            case,
            id=None if name is None else name(case),
            marks=() if index in kept else pytest.mark.exhaustive,
        )
        for index, case in enumerate(cases)
    ]

"""Tiers of tests: what every run takes of a long list of cases, and what only the exhaustive run does."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import hypothesis
import pytest
from _pytest.mark import ParameterSet

T = TypeVar("T")


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


def some(rows: Sequence[T], keep: int) -> Sequence[T]:
    """Return so many rows of a table, evenly spread; all of them in the exhaustive tier."""
    if is_exhaustive() or keep >= len(rows):
        return rows
    return [rows[index * len(rows) // keep] for index in range(keep)]


def examples(usual: int, **options: Any) -> hypothesis.settings:
    """Return the settings of a property test: so many examples, ten times as many in the exhaustive tier."""
    return hypothesis.settings(max_examples=usual * 10 if is_exhaustive() else usual, **options)


def is_exhaustive() -> bool:
    """Return whether this is a run of the exhaustive tier."""
    return hypothesis.settings.get_current_profile_name() == "exhaustive"

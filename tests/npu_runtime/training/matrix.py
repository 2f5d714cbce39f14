"""Combinations that are trained: all for the page; for the tests, a part that covers each row and column."""

from __future__ import annotations

from tests.support.training.cases import CASES, Case
from tests.support.training.optimizers import RECIPES, Recipe, recipe_named

Pair = tuple[Case, Recipe]

# What keeps several tensors per parameter, and a counter.
FOR_EVERY_MODEL = "Adam"


def sample() -> list[Pair]:
    """Return every optimizer on the first model, and every other model with one optimizer."""
    first, *others = CASES
    pairs = [(first, recipe) for recipe in RECIPES]
    return pairs + [(case, recipe_named(FOR_EVERY_MODEL)) for case in others]


def everything() -> list[Pair]:
    """Return every optimizer on every model."""
    return [(case, recipe) for case in CASES for recipe in RECIPES]


def title(pair: Pair) -> str:
    return f"{pair[0].name} / {pair[1].name}"

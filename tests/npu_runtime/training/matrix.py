"""What is trained with what: all of it for the page, and a part for the tests in which every row and column occurs."""

from __future__ import annotations

from tests.npu_runtime.training.cases import CASES, Case
from tests.npu_runtime.training.optimizers import RECIPES, Recipe, recipe_named

Pair = tuple[Case, Recipe]

# What keeps one tensor per parameter, and what keeps several and a counter.
FOR_EVERY_MODEL = ("SGD, nesterov", "Adam")


def sample() -> list[Pair]:
    """Return every optimizer on the first model, and every model with two optimizers."""
    first, *others = CASES
    pairs = [(first, recipe) for recipe in RECIPES]
    return pairs + [(case, recipe_named(name)) for case in others for name in FOR_EVERY_MODEL]


def everything() -> list[Pair]:
    """Return every optimizer on every model."""
    return [(case, recipe) for case in CASES for recipe in RECIPES]


def title(pair: Pair) -> str:
    return f"{pair[0].name} / {pair[1].name}"

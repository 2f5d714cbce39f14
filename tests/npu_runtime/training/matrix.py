"""What is trained with what: all of it for the page, and a part for the tests in which every row and column occurs."""

from __future__ import annotations

from tests.npu_runtime.training.cases import CASES, Case
from tests.npu_runtime.training.optimizers import RECIPES, Recipe, recipe_named

Pair = tuple[Case, Recipe]

# What keeps several tensors per parameter and a counter, and what keeps one.
FOR_EVERY_MODEL = "Adam"
FOR_EVERY_OTHER = "SGD, nesterov"


def sample() -> list[Pair]:
    """Return every optimizer on the first model, every model with one optimizer, and every other with two."""
    first, *others = CASES
    pairs = [(first, recipe) for recipe in RECIPES]
    pairs += [(case, recipe_named(FOR_EVERY_MODEL)) for case in others]
    return pairs + [(case, recipe_named(FOR_EVERY_OTHER)) for case in others[::2]]


def everything() -> list[Pair]:
    """Return every optimizer on every model."""
    return [(case, recipe) for case in CASES for recipe in RECIPES]


def title(pair: Pair) -> str:
    return f"{pair[0].name} / {pair[1].name}"

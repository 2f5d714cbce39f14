"""Combinations of a model and an optimizer, and their outcomes on everything that runs a step."""

from dataclasses import dataclass

from tests.npu_runtime.training.ours import ways_of
from tests.support.training.cases import CASES, Case
from tests.support.training.eager import State, differences, trained
from tests.support.training.judging import judged, reference
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


# Each is to give the bits of the one behind it: it runs the same kernels.
TWINS = {"executor": "interpreter", "replay": "interpreter"}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one pair.

    Attributes:
        case: The model.
        recipe: The optimizer.
        problems: What is wrong, by the way it was run; empty where all is right.
        shares: The largest error in relation to what is allowed, by the way it was run.
        worst: Where it is.
        tensors: How many tensors were compared, over all steps.
    """

    case: str
    recipe: str
    problems: dict[str, str]
    shares: dict[str, float]
    worst: str
    tensors: int

    def __str__(self) -> str:
        verdict = "; ".join(f"{way}: {problem}" for way, problem in self.problems.items()) or "as eager"
        return f"{self.case} / {self.recipe}: {verdict}"


def outcome(pair: Pair) -> Outcome:
    """Train with eager and with everything of ours, and compare."""
    found: dict[str, list[State]] = {}
    problems: dict[str, str] = {}
    for way, make in ways_of(pair[1].name).items():
        try:
            found[way] = trained(make, *pair)
        except Exception as error:
            problems[way] = f"{type(error).__name__}: {error}".partition("\n")[0]
    wanted = reference(*pair)
    shares, worst, count = {}, (0.0, ""), 0
    for way, states in found.items():
        findings = judged(states, wanted)
        wrong = [finding for finding in findings if finding.problem]
        if wrong:
            problems[way] = f"{len(wrong)} of {len(findings)} tensors, first {wrong[0]}"
        largest = max(findings, key=lambda finding: finding.share)
        shares[way], count = largest.share, len(findings)
        worst = max(worst, (largest.share, f"{largest.name} on the {way}"))
    for way, twin in TWINS.items():
        unlike = differences(found[way], found[twin]) if {way, twin} <= found.keys() else []
        if unlike:
            problems.setdefault(
                way, f"{len(unlike)} tensors have other bits than on the {twin}, first {unlike[0]}"
            )
    reference.cache_clear()
    return Outcome(pair[0].name, pair[1].name, problems, shares, worst[1], count)

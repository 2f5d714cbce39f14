"""Comparison of training with eager: each tensor against float64, relative to eager's own rounding.

A tensor passes where it is as near to the same training in float64 as eager in float32 is, up to a multiple:

    |ours - f64| <= k * max |eager_i - f64| + tiny

The maximum is over eager runs in equivalent forms (`FORMS`): a single one may be exact by chance. The
comparison is made twice: of the largest element with k = 8, and of the root of the mean square, which is
subject to chance less, with k = 4: the multiples of `npu_runtime.diagnostics.compare`, and for its reason:
two ways to sum n numbers have errors of the same size but for chance, and a wrong value is off by orders of
magnitude. ``tiny`` is 8 units in the last place of the largest element that the tensor has had up to there:
where all eager runs happen to be exact, ours still may round.

Integers are equal, dtypes and shapes are, and NaN and infinity are where they are in eager. Of dropout the
masks are those of eager: PyTorch draws the same ones in float64 from the same seed. Autocast does not act
on float64, and who left it out would be nearer to that than eager: with it, the first results are compared
with eager's themselves.
"""

import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from npu_runtime.diagnostics.compare import NOISE_MULTIPLE, NOISE_MULTIPLE_RMS, Error
from npu_runtime.diagnostics.compare.metrics import measure_error
from tests.support.training.cases import Case
from tests.support.training.eager import EagerStep, State, trained
from tests.support.training.optimizers import Recipe

FORMS: tuple[bool, ...] = (False, True)  # foreach
TINY_ULP = 8


@dataclass(frozen=True, slots=True)
class Reference:
    """Eager training in equivalent forms in float32, and in float64; a list of states each."""

    case: Case
    eager: tuple[list[State], ...]
    exact: list[State]


@dataclass(frozen=True, slots=True)
class Finding:
    """One tensor after one step.

    Attributes:
        name: Of the tensor.
        step: Index of the step.
        problem: What is wrong; "" where nothing is.
        share: The error, in relation to what is allowed; 0 where nothing is measured.
    """

    name: str
    step: int
    problem: str = ""
    share: float = 0.0

    def __str__(self) -> str:
        return f"{self.name} after step {self.step}: {self.problem}"


@functools.cache
def reference(case: Case, recipe: Recipe) -> Reference:
    eager = tuple(trained(EagerStep, case, recipe, foreach=foreach) for foreach in FORMS)
    return Reference(case, eager, trained(EagerStep, case, recipe, dtype=torch.float64, foreach=False))


def judged(found: Sequence[State], wanted: Reference) -> list[Finding]:
    """Return a finding per tensor and step, in the order of steps."""
    findings = []
    for index, state in enumerate(found):
        eager = [form[index] for form in wanted.eager]
        findings += _misnamed(state, eager[0], index)
        for name in state.keys() & eager[0].keys():
            findings.append(_compared(name, index, state, eager, wanted))
    return findings


def problems(found: Sequence[State], wanted: Reference) -> str:
    """Return what is wrong, the earliest first, a line each; "" where nothing is."""
    wrong = [finding for finding in judged(found, wanted) if finding.problem]
    if len(found) != len(wanted.exact):
        return f"{len(found)} steps, not {len(wanted.exact)}"
    return "\n".join(map(str, wrong[:20]))


def _misnamed(state: State, eager: State, index: int) -> Iterator[Finding]:
    yield from (Finding(name, index, "is missing") for name in sorted(eager.keys() - state.keys()))
    yield from (
        Finding(name, index, "eager has no such thing") for name in sorted(state.keys() - eager.keys())
    )


def _compared(name: str, index: int, state: State, eager: Sequence[State], wanted: Reference) -> Finding:
    ours, forms, wide = state[name], [form[name] for form in eager], wanted.exact[index][name]
    if (ours.dtype, ours.shape) != (forms[0].dtype, forms[0].shape):
        sides = [f"{item.dtype} {list(item.shape)}" for item in (ours, forms[0])]
        return Finding(name, index, f"is {sides[0]}, not {sides[1]}")
    if not ours.is_floating_point():
        return Finding(name, index, "" if torch.equal(ours, forms[0]) else f"is {ours}, not {forms[0]}")
    kept = _with_gradient(name, wanted.case, ours)
    ours, forms, wide = ours[kept], [form[kept] for form in forms], wide[kept]
    if not torch.equal(ours.isfinite(), forms[0].isfinite()):
        return Finding(name, index, "is NaN or infinite where eager is not, or the other way round")
    if "autocast" in wanted.case.options and index == 0 and name.startswith("result"):
        wide = forms[0]
    largest = max(float(past[name].nan_to_num(0, 0, 0).abs().max()) for past in wanted.exact[: index + 1])
    return _judged(Finding(name, index), ours, forms, wide, TINY_ULP * torch.finfo(ours.dtype).eps * largest)


def _with_gradient(name: str, case: Case, tensor: torch.Tensor) -> torch.Tensor:
    """Return which elements of a parameter, or of what an optimizer keeps for it, are not chance."""
    kept = torch.ones_like(tensor, dtype=torch.bool)
    for key, chance in case.without_gradient.items():
        if tensor.ndim and f"{name}.".startswith(f"{key}."):
            kept[chance] = False
    return kept


def _judged(
    finding: Finding, ours: torch.Tensor, forms: Sequence[torch.Tensor], wide: torch.Tensor, tiny: float
) -> Finding:
    error, floor = _error(ours, wide), [_error(form, wide) for form in forms]
    allowed = Error(
        NOISE_MULTIPLE * max(item.max for item in floor) + tiny,
        NOISE_MULTIPLE_RMS * max(item.rms for item in floor) + tiny,
    )
    share = max(
        (got / most if most else float(got > 0))
        for got, most in ((error.max, allowed.max), (error.rms, allowed.rms))
    )
    if share <= 1:
        return Finding(finding.name, finding.step, "", share)
    problem = f"error {error.max:.3g}, allowed {allowed.max:.3g} ({share:.3g} times that)"
    return Finding(finding.name, finding.step, problem, share)


def _error(actual: torch.Tensor, exact: torch.Tensor) -> Error:
    found = measure_error(actual, exact)
    assert found is not None, "both are dense floats of one shape"
    return found

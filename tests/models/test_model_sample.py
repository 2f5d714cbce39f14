"""A fixed sample of the model run, and what the run itself promises."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

import npu_ir
from npu_ir import Graph
from tests.models import verdicts
from tests.models.case import Case, Input
from tests.models.cases_transformers import CASES
from tests.models.extraction import extract
from tests.models.report import format_report
from tests.models.verdicts import DYNAMIC, FORMS, STATIC, judge
from tests.support.coverage_runs.outcomes import Outcome
from tests.support.coverage_runs.workers import OpResult
from tests.support.rows import each_row
from tests.support.tiers import thin

PASS, FAIL = Outcome.PASS.value, Outcome.FAIL.value
ARCHITECTURES = {case.name: case for case in CASES}
assert len(ARCHITECTURES) == len(CASES) >= 30, "every case has a name of its own"
MODELS = [(name, form) for name in ("bert", "mistral", "mixtral", "t5", "vit", "wav2vec2") for form in FORMS]


@pytest.mark.parametrize("model", thin(MODELS, 4, "-".join))
def test_an_architecture_comes_through_the_pipe(model: tuple[str, str]) -> None:
    name, form = model
    case = ARCHITECTURES[name]

    verdict = judge(case, form)

    assert (verdict.outcome, verdict.reason) == (PASS, "")
    assert (verdict.same_bits, verdict.max_abs) == (True, 0.0)
    assert verdict.sizes == (case.varying if form == DYNAMIC else ())
    assert verdict.copied == ""


class Scaled(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls.add_(1)
        return x * self.weight


class Reading(Scaled):
    """Reads what a tensor holds while it is built."""

    def __init__(self) -> None:
        super().__init__()
        self.factor = float(torch.full((), 2.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight * self.factor


class Deciding(Scaled):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + 1 if x.sum() > 0 else x


class Constant(Scaled):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.zeros_like(x)


def case_of(model: type[torch.nn.Module], *shape: int | str) -> Case:
    return Case("made up", "here", "other", model, (Input("x", shape or ("batch", 3)),))


@each_row("spoil, reason", [
    (lambda results, mutations: (results + 0.01, mutations), "elements differ"),
    (lambda results, mutations: (results.double(), mutations), "got f64"),
    (lambda results, mutations: (results[:1], mutations), "got f32[1, 3]"),
    (lambda results, mutations: ((results,), mutations), "structure:"),
    (lambda results, mutations: (results, {}), "elements differ"),
])  # fmt: skip
def test_a_wrong_result_is_a_failure(spoil: Callable[..., Any], reason: str) -> None:
    def execute_wrongly(graph: Graph, **call: Any) -> Any:
        return spoil(*npu_ir.execute_ir(graph, **call))

    verdict = judge(case_of(Scaled), STATIC, execute=execute_wrongly)

    assert verdict.outcome == FAIL
    assert verdict.reason.startswith("compare: ")
    assert reason in verdict.reason


@each_row("model, shape, outcome, reason", [
    (Constant, (), Outcome.FAIL, "nothing is compared"),
    (Deciding, (), Outcome.EXPORT_REFUSES, "GuardOnDataDependentSymNode: Could not guard"),
    (Scaled, ("batch", 5), Outcome.EAGER_REFUSES, "must match the size"),
])  # fmt: skip
def test_a_model_that_gives_nothing_to_compare_is_named_with_the_reason(
    model: type[torch.nn.Module], shape: tuple[int | str, ...], outcome: Outcome, reason: str
) -> None:
    verdict = judge(case_of(model, *shape), STATIC)

    assert verdict.outcome == outcome.value
    assert reason in verdict.reason


def test_a_dynamic_graph_is_compared_with_two_sizes() -> None:
    def execute_wrongly(graph: Graph, kwargs: dict[str, Any], **call: Any) -> Any:
        results, mutations = npu_ir.execute_ir(graph, kwargs=kwargs, **call)
        return (results if len(kwargs["x"]) == 2 else results + 0.01), mutations

    verdict = judge(case_of(Scaled), DYNAMIC, execute=execute_wrongly)

    assert verdict.reason.startswith("compare, other size: ")


def test_sizes_that_torch_export_keeps_fixed_are_named_and_the_others_vary() -> None:
    class Fixed(Scaled):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * self.weight[:1] + (1 if x.shape[1] == 8 else 2)

    verdict = judge(case_of(Fixed, "batch", "sequence"), DYNAMIC)

    assert (verdict.outcome, verdict.sizes) == (PASS, ("batch",))
    assert list(verdict.refused) == ["batch, sequence"]
    assert "Constraints violated" in verdict.refused["batch, sequence"]


def test_a_model_that_cannot_be_built_on_meta_is_copied_there() -> None:
    made = extract(case_of(Reading))

    assert "meta" in made.copied
    assert extract(case_of(Scaled)).copied == ""


def test_neither_weights_nor_content_of_arguments_reach_the_capture(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[torch.Tensor] = []

    def look(model: torch.nn.Module, args: Any, kwargs: dict[str, Any], **options: Any) -> Graph:
        seen.extend([*model.parameters(), *model.buffers(), *kwargs.values()])
        return Graph("seen")

    monkeypatch.setattr(npu_ir, "extract_ir", look)
    extract(case_of(Scaled))

    assert len(seen) == 3
    assert all(tensor.is_meta for tensor in seen)


def entry(call: str, **more: Any) -> dict[str, Any]:
    verdict = verdicts.Verdict(
        call, **{"outcome": PASS, "nodes": 4, "export_s": 2.0, "conversion_s": 0.1, **more}
    )
    return {name: getattr(verdict, name) for name in verdict.__slots__}


PAGE = (
    "- torch 2.0; on the CPU, one thread",
    "- **here**: 4 models; 2 of the 3 that `torch.export` exports pass with fixed sizes, 1 with dynamic",
    "ones (0 with all that were tried), 1 fail; 2 of these 3 graphs are equal to eager to the bit",
    "- static graphs: 4 s in `torch.export`, 0 s in conversion; conversion is 5% of export",
    "- `refused`, static: export refuses: `Guard: on u0`",
    "- `crashed`, static: FAIL: `run: the process ended`",
    "- `exact`, batch, sequence: `of 8`",
    "- `near`, static: 1.5e-07 absolute",
    "- `near`: `RuntimeError: item on meta`",
    "| `exact` | other | 0 | 4 / 4 | equal | equal | batch | 2.00 / 2.00 | 5% / 5% |",
    "| `near` | other | 0 | 4 | within 1.5e-07 |  |  | 2.00 | 5% |",
)


def test_the_page_says_what_passes_and_names_the_rest() -> None:
    names = ("exact", "near", "refused", "crashed", "not run")
    near = {"same_bits": False, "max_abs": 1.5e-7, "copied": "RuntimeError: item on meta"}
    crash = {"call": STATIC, "outcome": FAIL, "reason": "run: the process ended"}
    partly = entry(DYNAMIC, sizes=("batch",), refused={"batch, sequence": "of 8"})
    refused = entry(STATIC, outcome=Outcome.EXPORT_REFUSES.value, reason="Guard: on u0", nodes=0)
    results = {
        "near": [entry(STATIC, **near)],
        "exact": [entry(STATIC), partly],
        "refused": [refused],
        "crashed": [crash],
    }

    page = format_report(
        {"torch": "2.0+cpu"},
        [Case(name, "here", "other", Scaled, ()) for name in names],
        [OpResult(name, entries) for name, entries in results.items()],
    )

    assert [line for line in PAGE if line not in page] == []
    assert "not run" not in page

"""One model through the whole pipe: captured without weights, saved, loaded, run, and compared with eager."""

import copy
import dataclasses
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils._pytree import tree_map

import npu_ir
from npu_ir import Graph
from tests.models.case import Case
from tests.models.effects import compare_trees, real_model, run_eagerly, run_graph, says_something
from tests.models.extraction import ExportRefusesError, extract
from tests.support.comparison import first_difference
from tests.support.coverage_runs.outcomes import Outcome, first_line, saved_and_loaded

STATIC, DYNAMIC = "static", "dynamic"
FORMS = (STATIC, DYNAMIC)


@dataclass(slots=True)
class Verdict:
    """What became of a model in one form.

    Attributes:
        call: The form: ``static``, or ``dynamic`` for one graph that is run with two sizes.
        outcome: As for an operator.
        reason: Why it is no pass.
        sizes: Which sizes vary.
        refused: Which sizes torch.export does not let vary, with what it says.
        copied: Why the model could not be built on ``meta`` and was copied there; "" where it was built.
        parameters: How many numbers the parameters hold.
        nodes: How many nodes the graph has.
        max_abs: The largest absolute difference from eager; 0.0 where all is equal.
        max_rel: Likewise, relative to eager.
        same_bits: Whether every bit is eager's.
        as_program: Whether every bit is that of torch.export's own program; True where ``same_bits`` is.
        export_s: Seconds in torch.export.
        conversion_s: Seconds in the rest of `extract_ir`.
    """

    call: str
    outcome: str = Outcome.FAIL.value
    reason: str = ""
    sizes: tuple[str, ...] = ()
    refused: dict[str, str] = dataclasses.field(default_factory=dict)
    copied: str = ""
    parameters: int = 0
    nodes: int = 0
    max_abs: float = 0.0
    max_rel: float = 0.0
    same_bits: bool = True
    as_program: bool = True
    export_s: float = 0.0
    conversion_s: float = 0.0


def judge(
    case: Case,
    form: str,
    announce: Callable[[str], None] = lambda stage: None,
    execute: Callable[..., Any] = npu_ir.execute_ir,
) -> Verdict:
    """Return what becomes of a model.

    Args:
        case: The model.
        form: ``static`` or ``dynamic``.
        announce: Called with the name of each stage before it begins.
        execute: Runs a graph.
    """
    verdict = Verdict(form)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        announce("eager")
        try:
            model = real_model(case)
            run_eagerly(model, case.examples())
        except Exception as error:  # noqa: BLE001 - PyTorch's own refusal, whatever it raises, is an outcome
            verdict.outcome, verdict.reason = Outcome.EAGER_REFUSES.value, first_line(error)
            return verdict
        verdict.parameters = sum(parameter.numel() for parameter in model.parameters())
        try:
            announce("export")
            graph = _extracted(case, verdict)
            if graph is not None:
                announce("run")
                verdict.reason = _problem(case, graph, model, verdict, execute)
                verdict.outcome = Outcome.FAIL.value if verdict.reason else Outcome.PASS.value
        except Exception as error:  # noqa: BLE001 - any error of ours is a failure
            verdict.reason = first_line(error)
    return verdict


def _extracted(case: Case, verdict: Verdict) -> Graph | None:
    """Return the graph with the most sizes that vary; None where torch.export gives none."""
    for sizes in [()] if verdict.call == STATIC else case.choices():
        try:
            extraction = extract(case, sizes)
        except ExportRefusesError as refusal:
            verdict.outcome, verdict.reason = Outcome.EXPORT_REFUSES.value, str(refusal)
            verdict.refused[", ".join(sizes)] = str(refusal)
        else:
            verdict.sizes, verdict.nodes = sizes, len(extraction.graph)
            verdict.copied = extraction.copied
            verdict.export_s, verdict.conversion_s = extraction.export_s, extraction.conversion_s
            return extraction.graph
    return None


def _problem(
    case: Case, graph: Graph, model: torch.nn.Module, verdict: Verdict, execute: Callable[..., Any]
) -> str:
    """Return how a graph, saved and loaded, differs from its model; "" where it does not."""
    loaded = saved_and_loaded(graph)
    if loaded != graph or str(loaded) != str(graph):
        return "file: the loaded graph differs"
    for other in [()] if verdict.call == STATIC else [(), verdict.sizes]:
        kwargs = case.examples(other)
        expected = run_eagerly(model, kwargs)
        if not says_something(expected.results):
            return "the model's results are not finite, or all the same: nothing is compared"
        actual = run_graph(loaded, model, kwargs, execute)
        if first_difference(expected.parts, actual.parts):
            verdict.same_bits = False
            verdict.as_program &= _is_as_program(case, verdict.sizes, model, kwargs, actual.results)
        comparisons = compare_trees(actual.parts, expected.parts)
        verdict.max_abs = max(verdict.max_abs, *(each.max_abs for each in comparisons))
        verdict.max_rel = max(verdict.max_rel, *(each.max_rel for each in comparisons))
        problem = next((str(each) for each in comparisons if not each.ok), "")
        if problem:
            return f"compare{', other size' if other else ''}: {problem}"
    return ""


def _is_as_program(
    case: Case, sizes: tuple[str, ...], model: torch.nn.Module, kwargs: dict[str, Any], results: Any
) -> bool:
    """Return whether torch.export's own program of the real model gives ``results``, to the bit."""
    shapes = case.dynamic_shapes(sizes) if sizes else None
    program = torch.export.export(
        copy.deepcopy(model), (), case.examples(), dynamic_shapes=shapes, strict=False
    )
    with torch.no_grad():
        return not first_difference(program.module()(**tree_map(torch.clone, kwargs)), results)

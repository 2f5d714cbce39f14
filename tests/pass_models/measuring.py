"""Effects of pipelines on a model: nodes, folded norms, numerics in checked mode, and time."""

import functools
import statistics
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from npu_ir import Graph, Interpreter, extract_ir
from npu_passes import Checked, PassManager, PassResult, passes_of
from npu_passes.manager.checked_mode import relative_error
from tests.pass_models.cases import Case

PIPELINES = ("minimal", "default", "fuse")
NORMS = ("aten.batch_norm.default", "aten._native_batch_norm_legit_no_training.default")


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one pipeline made of one model."""

    result: PassResult
    norms: tuple[int, int]
    eager_error: float
    error: float
    seconds: float
    speed: float


def measure(case: Case, pipeline: str, *, whole: bool, repeat: int = 1) -> Outcome:
    """Run a pipeline over a model in checked mode, and compare the graph with eager in float64.

    Raises:
        PassError: A pass fails, or changes what the model computes by more than it says.
    """
    model, inputs, graph, exact = _captured(case, whole)
    weights = model.state_dict()
    result = PassManager(passes_of(pipeline), checked=Checked(weights, [((), inputs)])).run(graph)
    with torch.no_grad():
        eager = model(**inputs)
    before, after = Interpreter(graph, weights), Interpreter(result.graph, weights)
    return Outcome(
        result,
        (_norms(graph), _norms(result.graph)),
        relative_error(eager, exact),
        relative_error(after.run(**inputs), exact),
        result.seconds,
        _ratio(before, after, inputs, repeat),
    )


@functools.lru_cache(maxsize=1)
def _captured(case: Case, whole: bool) -> tuple[nn.Module, dict[str, torch.Tensor], Graph, Any]:
    """Return a model, its inputs, its graph and what it computes in float64: the same for each pipeline."""
    model, inputs = case.model(whole), case.inputs(whole)
    graph = extract_ir(model, (), inputs, name=case.name)
    with torch.no_grad():
        exact = case.model(whole).double()(**{name: _wide(value) for name, value in inputs.items()})
    return model, inputs, graph, exact


def _ratio(before: Interpreter, after: Interpreter, inputs: dict[str, torch.Tensor], repeat: int) -> float:
    """Return the median of ``after / before``, each pair of runs right behind each other."""
    ratios = []
    for _ in range(repeat):
        first, second = _seconds(before, inputs), _seconds(after, inputs)
        ratios.append(second / first)
    return statistics.median(ratios)


def _seconds(interpreter: Interpreter, inputs: dict[str, torch.Tensor]) -> float:
    start = time.perf_counter()
    interpreter.run(**inputs)
    return time.perf_counter() - start


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.double() if value.is_floating_point() else value


def _norms(graph: Graph) -> int:
    return sum(node.op_type in NORMS for node in graph.body)

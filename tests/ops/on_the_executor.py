"""Run calls of every OpInfo operator on the executor, and compare with eager, bit for bit.

``python -m tests.ops.on_the_executor`` prints what fails here though it passes on the
interpreter; its exit code is 1 if anything does.
"""

import sys
import warnings
from typing import Any

import torch

from npu_ir import Graph
from npu_ir.core.structure import unflatten
from npu_ir.testing import OpCall
from npu_runtime import IRExecutor
from tests.ops.cases import FUNCTION, IN_PLACE_INSIDE, Budget, print_problems
from tests.ops.pipe import Verdict, judge
from tests.support.coverage_runs.outcomes import Outcome

BUDGET = Budget(main={FUNCTION: 3, IN_PLACE_INSIDE: 1}, other={FUNCTION: 1}, dtypes=3)


def execute(graph: Graph, tensors: tuple[torch.Tensor, ...]) -> tuple[Any, dict[str, torch.Tensor]]:
    """Run a graph as it is, compiled; return results and mutations."""
    leaves, mutations = IRExecutor(graph, passes=None).run_flat(tensors)
    return unflatten(graph.results[0], leaves), mutations


def verdict_of(call: OpCall) -> Verdict:
    """Return what becomes of a call on the executor; that of the interpreter where it fails there, too."""
    verdict = judge(call, execute)
    if verdict.outcome is not Outcome.FAIL:
        return verdict
    on_interpreter = judge(call)
    return on_interpreter if on_interpreter.outcome is Outcome.FAIL else verdict


def outcome_of(call: OpCall) -> tuple[str, str]:
    verdict = verdict_of(call)
    return verdict.outcome.name, verdict.reason if verdict.outcome is Outcome.FAIL else ""


def main() -> int:
    warnings.simplefilter("ignore")
    return print_problems(outcome_of, BUDGET)


if __name__ == "__main__":
    sys.exit(main())

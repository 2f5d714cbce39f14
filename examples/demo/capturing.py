"""Steps common to all models of the demo: extraction, a run in a new process, verification."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

import torch
from claims import Claim
from processes import NewProcess
from results import Capture, Run, shown_difference
from torch import Tensor, nn

from npu_ir import VerificationReport, extract_ir
from npu_ir.verify import compare

# Of the largest result. Matrix-vector products round by where the weights lie in memory, and in
# another process, mapped from a file, they lie elsewhere: eager PyTorch differs by as much.
TOLERANCE = 1e-5
_REPEATS = 2
_T = TypeVar("_T")


def warm_up() -> None:
    """Export a small model, so that no model pays for the modules that PyTorch loads at its first export."""
    extract_ir(nn.Linear(1, 1), (torch.ones(1, 1),))


def capture(model: nn.Module, example: Tensor) -> Capture:
    """Extract a model's graph, and time torch.export alone for comparison: the best of two each."""
    exports, extractions = [], []
    for _ in range(_REPEATS):
        exports.append(timed(lambda: torch.export.export(model, (example,), strict=False))[1])
        graph, seconds = timed(lambda: extract_ir(model, (example,)))
        extractions.append(seconds)
    return Capture(graph, min(exports), min(extractions))


def timed(action: Callable[[], _T]) -> tuple[_T, float]:
    """Return the result of ``action`` and its duration in seconds."""
    start = time.perf_counter()
    result = action()
    return result, time.perf_counter() - start


def compared(eager: Tensor, eager_seconds: float, process: NewProcess) -> Run:
    """Put eager PyTorch's results beside those of the new process."""
    return Run(eager, eager_seconds, process, compare("result", process.result, eager).max_abs)


def run_claims(name: str, run: Run) -> list[Claim]:
    """Return the claims of the demo on a run in a new process."""
    largest = float(run.eager.abs().max())
    comparison = compare("result", run.process.result, run.eager, rtol=0.0, atol=TOLERANCE * largest)
    difference = f"largest difference {shown_difference(comparison.max_abs)}, largest result {largest:.3g}"
    code = run.process.measured["model_code"]
    return [
        Claim(
            name,
            "The new process imports none of the model's code",
            ", ".join(code) or "graph and weights only",
            not code,
        ),
        Claim(
            name,
            "The new process computes what eager PyTorch computes",
            comparison.problem or difference,
            comparison.ok,
        ),
    ]


def verification_claim(name: str, report: VerificationReport) -> Claim:
    """Return the claim that verify_ir finds no difference between graph and model."""
    agreed = f"largest difference {shown_difference(report.max_abs)}"
    measured = agreed if report.ok else str(report)
    return Claim(name, "verify_ir finds that graph and model agree", measured, report.ok)

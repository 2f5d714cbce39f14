"""What all models of the demo go through: extraction, verification, a run in a new process."""

from __future__ import annotations

import time
from collections.abc import Sequence

import torch
from claims import Claim
from processes import NewProcess
from results import Capture, Run, shown_difference
from torch import Tensor, nn

from npu_ir import VerificationReport, extract_ir
from npu_ir.verify import compare


def warm_up() -> None:
    """Export something small, so that no model pays for what PyTorch loads at its first export."""
    extract_ir(nn.Linear(1, 1), (torch.ones(1, 1),))


def capture(model: nn.Module, example: Tensor) -> Capture:
    """Extract a model's graph, and time torch.export alone for comparison."""
    start = time.perf_counter()
    torch.export.export(model, (example,), strict=False)
    exported = time.perf_counter()
    graph = extract_ir(model, (example,))
    return Capture(graph, exported - start, time.perf_counter() - exported)


def compared(eager: Tensor, eager_seconds: float, process: NewProcess) -> Run:
    """Put eager PyTorch's results beside those of the new process."""
    return Run(eager, eager_seconds, process, compare("result", process.result, eager).max_abs)


def run_claims(name: str, run: Run) -> list[Claim]:
    """Return what the demo claims of a run in a new process."""
    comparison = compare("result", run.process.result, run.eager)
    difference = comparison.problem or f"largest difference {shown_difference(comparison.max_abs)}"
    code: Sequence[str] = run.process.measured["model_code"]
    return [
        Claim(name, "The new process imports none of the model's code", ", ".join(code) or "graph and weights only", not code),
        Claim(name, "The new process computes what eager PyTorch computes", difference, comparison.ok),
    ]


def verification_claim(name: str, report: VerificationReport) -> Claim:
    """Return the claim that verify_ir finds no difference between graph and model."""
    compared = f"{len(report.outputs)} result and {len(report.mutations)} mutations compared"
    measured = f"{compared}, largest difference {shown_difference(report.max_abs)}" if report.ok else str(report)
    return Claim(name, "verify_ir finds that graph and model agree", measured, report.ok)

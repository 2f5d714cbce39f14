"""A graph on the executor beside the model in eager PyTorch, in one process."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from capturing import TOLERANCE, timed
from claims import Claim
from results import Execution, shown_difference, shown_seconds
from torch import Tensor, nn

from npu_ir import Graph
from npu_ir.verify import compare
from npu_runtime import IRExecutor

_SECONDS = 0.5
_TURNS = 3


def execute(model: nn.Module, graph: Graph, example: Tensor) -> Execution:
    """Compile the graph with two pipelines, and call both and the model in turns."""
    executor, ready_seconds = timed(lambda: IRExecutor(graph, model.state_dict()))
    result = executor.run_flat((example,))[0][0]
    cpu = IRExecutor(graph, model.state_dict(), passes="cpu")
    cpu(example)

    def eager() -> Any:
        with torch.inference_mode():
            return model(example)

    eager()
    eager_seconds, seconds, cpu_seconds = medians(eager, lambda: executor(example), lambda: cpu(example))
    return Execution(result, ready_seconds, seconds, eager_seconds, cpu_seconds)


def medians(*calls: Callable[[], Any]) -> list[float]:
    """Return how many seconds each call takes; they take turns, for half a second or three turns."""
    times: list[list[float]] = [[] for _ in calls]
    end = time.perf_counter() + _SECONDS
    while len(times[0]) < _TURNS or time.perf_counter() < end:
        for found, call in zip(times, calls, strict=True):
            found.append(timed(call)[1])
    return [statistics.median(found) for found in times]


def execution_claim(name: str, execution: Execution, eager: Tensor) -> Claim:
    """Return the claim that executor and eager PyTorch agree."""
    largest = float(eager.abs().max())
    comparison = compare("result", execution.result, eager, rtol=0.0, atol=TOLERANCE * largest)
    measured = f"largest difference {shown_difference(comparison.max_abs)}, largest result {largest:.3g}"
    text = "The executor computes what eager PyTorch computes"
    return Claim(name, text, comparison.problem or measured, comparison.ok)


def execution_rows(execution: Execution) -> list[tuple[str, str]]:
    """Return how the executor compares, for the summary of a chapter."""

    def beside_eager(seconds: float) -> str:
        times = f"{shown_seconds(seconds)} and {shown_seconds(execution.eager_seconds)}"
        return f"{times}: {seconds / execution.eager_seconds:.2f}x"

    return [
        ("executor beside eager, one call", beside_eager(execution.seconds)),
        ("likewise, with the pipeline cpu", beside_eager(execution.cpu_seconds)),
        ("compiling the executor", shown_seconds(execution.ready_seconds)),
    ]

"""Results of the demo, for the report and for results.json."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from claims import Claim
from digits import Digits, Training
from processes import NewProcess
from torch import Tensor

from npu_ir import Graph


@dataclass(frozen=True, slots=True)
class Capture:
    """A graph extracted from a model with its weights, and the cost of that.

    Attributes:
        graph: The graph.
        export_seconds: What torch.export alone takes.
        extract_seconds: What extract_ir takes, which calls torch.export.
    """

    graph: Graph
    export_seconds: float
    extract_seconds: float


@dataclass(frozen=True, slots=True)
class Run:
    """The same inputs through eager PyTorch and through the graph in a new process."""

    eager: Tensor
    eager_seconds: float
    process: NewProcess
    max_difference: float


@dataclass(frozen=True, slots=True)
class Execution:
    """A graph on the executor, and its cost.

    Attributes:
        result: What the executor computes.
        ready_seconds: Its compilation: passes, code, weights.
        seconds: Of a call, with the default pipeline.
        eager_seconds: Of a call of the model in eager PyTorch, on the same input.
        cpu_seconds: Of a call with the pipeline ``cpu``.
    """

    result: Tensor
    ready_seconds: float
    seconds: float
    eager_seconds: float
    cpu_seconds: float


@dataclass(frozen=True, slots=True)
class TrainingRuns:
    """The same training twice.

    Attributes:
        eager: In eager PyTorch.
        graph: With TrainStep.
        eager_step_seconds: Of a step in eager PyTorch, when both take turns.
        step_seconds: Of a step of TrainStep.
    """

    eager: Training
    graph: Training
    eager_step_seconds: float
    step_seconds: float

    @property
    def break_even(self) -> int | None:
        """The number of steps from which on TrainStep takes less time in all; None if there is none.

        Its first step makes the graph; each one behind it gains what it takes less than a step in eager
        PyTorch.
        """
        gain = self.eager_step_seconds - self.step_seconds
        lead = self.graph.first_seconds - self.eager.first_seconds
        return max(1, 1 + math.ceil(lead / gain)) if gain > 0 else None


@dataclass(frozen=True, slots=True)
class TrainedResult:
    """The chapter on the network that was trained.

    Attributes:
        digits: The images.
        training: How it went.
        capture: The graph.
        graph_file: Where the graph was saved.
        weights_file: Where the weights were.
        run: All test images.
        execution: One batch of them, on the executor.
        verification: What verify_ir says of the graph.
        damage: What verify_ir says of a copy in which one number was changed.
        claims: What the chapter claims.
    """

    digits: Digits
    training: TrainingRuns
    capture: Capture
    graph_file: Path
    weights_file: Path
    run: Run
    execution: Execution
    verification: str
    damage: str
    claims: tuple[Claim, ...]


@dataclass(frozen=True, slots=True)
class UntrainedResult:
    """The chapter on one architecture with random weights.

    Attributes:
        name: What the demo calls it.
        title: Its heading.
        weight_free: What `weight_free.py` measured.
        graph: The graph it saved.
        graph_file: Where.
        capture: The graph of the model with weights; None where they do not fit here.
        run: Eager and new process; None likewise.
        execution: The executor; None likewise.
        claims: What the chapter claims.
    """

    name: str
    title: str
    weight_free: dict[str, Any]
    graph: Graph
    graph_file: Path
    capture: Capture | None
    run: Run | None
    execution: Execution | None
    claims: tuple[Claim, ...]


def parameter_count(graph: Graph) -> int:
    """Return how many numbers the parameters of ``graph`` hold; tied ones count once."""
    return sum(value.type.numel for value in graph.parameters.values())


def weight_bytes(graph: Graph) -> int:
    """Return the size of the weights of ``graph`` in bytes."""
    values = [*graph.parameters.values(), *graph.buffers.values()]
    return sum(value.type.nbytes for value in values if value.argument.persistent)


def op_counts(graph: Graph) -> list[tuple[str, int]]:
    """Return how often each op occurs, the most frequent first."""
    return Counter(node.op_type for node in graph.nodes).most_common()


def shown_bytes(count: float) -> str:
    """Return a size as people read it: ``98.2 MB``; a kB is 1,000 bytes."""
    for unit in ("bytes", "kB", "MB"):
        if count < 1000:
            return f"{count:.3g} {unit}"
        count /= 1000
    return f"{count:,.1f} GB"


def shown_count(count: int) -> str:
    """Return a count as people read it: ``124.4 million``."""
    for size, name in ((10**9, "billion"), (10**6, "million")):
        if count >= size:
            return f"{count / size:.1f} {name}"
    return f"{count:,}"


def shown_difference(difference: float) -> str:
    """Return a largest difference in words."""
    return "0, equal to the bit" if difference == 0 else f"{difference:.2g}"


def shown_seconds(seconds: float) -> str:
    """Return a time as people read it."""
    if seconds < 0.01:
        return f"{seconds * 1000:.1f} ms"
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"

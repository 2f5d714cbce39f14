"""Options of compiling and capturing a training step."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypedDict

import torch

from npu_ir.plugins.backend import Backend
from npu_runtime.backends.registry import AUTO, usable_backends
from npu_runtime.errors import CaptureError
from npu_runtime.executor.options import Passes
from npu_runtime.training.capture.cuda_graphs import GraphDevice

CAPTURE_MODES = ("require", "prefer", "off")


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CaptureOptions:
    """Options of compiling a training step and of capturing it.

    Attributes:
        backend: A name, a `Backend`, or several in order of preference; ATen runs the ops they refuse.
        passes: The name of a pipeline, or passes to run over the graph; None for none. ``"auto"`` is
            the pipeline that suits the first backend: ``"train-cpu"`` where ATen runs the step on a CPU,
            ``"train-host"`` on the backend ``host``.
        capture: ``"require"``: fail if the step cannot be captured. ``"prefer"``: then run the graph op by
            op, and report the reason. ``"off"``: always run it op by op.
        device: Where the step runs; by default the device of the weights.
        weights: Parameters, buffers and state of a graph, by name, updated in their own memory; other steps
            bring theirs. The optimizer takes over its state from the artifact with the first step that is
            taken.
        warmup_runs: The number of runs before the capture.
        warmup_sync: Wait for the device after each of these runs.
        validate: Run the capture check.
        trace: Record the call log during compilation; otherwise on first access.
        enforce_ops: Kinds of ops that the lowered graph must contain.
        generators: Further generators that the step draws from, besides PyTorch's default ones.
        graph_device: The device that records; by default CUDA where the step is on a CUDA device.
        memory_budget_bytes: The most memory that a step may take for intermediate values and gradients:
            values of the forward pass are recomputed until it fits (pass ``recompute``). None for no limit.
        cache: Keep the compiled step on disk, and use it in later processes, where everything is the same
            that it was traced for. What is compiled of a graph is not kept.

    Raises:
        CaptureError: There is no such capture mode; the budget is not positive; or ``cache`` is not a bool.
        BackendError: There is no such backend, or it cannot run here.
    """

    backend: str | Backend | Sequence[str | Backend] = "aten"
    passes: Passes = AUTO
    capture: str = "prefer"
    device: torch.device | str | None = None
    weights: Mapping[str, torch.Tensor] | None = None
    warmup_runs: int = 2
    warmup_sync: bool = True
    validate: bool = True
    trace: bool = True
    enforce_ops: Sequence[str] = ()
    generators: Sequence[torch.Generator] = ()
    graph_device: GraphDevice | None = None
    memory_budget_bytes: int | None = None
    cache: bool = False

    def __post_init__(self) -> None:
        if self.backend != AUTO:
            usable_backends(self.backend)
        if self.capture not in CAPTURE_MODES:
            raise CaptureError(
                f"there is no capture mode {self.capture!r}", fix=f"use one of {', '.join(CAPTURE_MODES)}"
            )
        if type(self.cache) is not bool:
            raise CaptureError(
                f"cache= is True or False, not {self.cache!r}",
                fix="the variable NPU_CACHE says in which folder",
            )
        budget = self.memory_budget_bytes
        if budget is not None and (type(budget) is not int or budget <= 0):
            raise CaptureError(
                f"a memory budget is a positive number of bytes, not {budget!r}",
                fix="leave memory_budget_bytes= out for no limit",
            )


class CaptureKeywords(TypedDict, total=False):
    """`CaptureOptions` as keywords."""

    backend: str | Backend | Sequence[str | Backend]
    passes: Passes
    capture: str
    device: torch.device | str | None
    weights: Mapping[str, torch.Tensor] | None
    warmup_runs: int
    warmup_sync: bool
    validate: bool
    trace: bool
    enforce_ops: Sequence[str]
    generators: Sequence[torch.Generator]
    graph_device: GraphDevice | None
    memory_budget_bytes: int | None
    cache: bool

"""Training steps: traced into one graph, checked, planned and replayed.

In: a model with its optimizer and loss function, or a step function. Out: a `TrainStep` to call in a loop, or
the graph of the step (`compile_ir`). Start with ``train_step.py``; ``tracing`` makes the graph, ``checks``
finds what a replay would get wrong, ``capture`` makes the step replayable.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from npu_runtime.training.step_function import StepFunction
    from npu_runtime.training.trace import compile_ir, trace_step
    from npu_runtime.training.tracing.traced_step import TracedStep
    from npu_runtime.training.train_step import TrainStep

__all__ = ["StepFunction", "TracedStep", "TrainStep", "compile_ir", "trace_step"]

_MODULES = {
    "StepFunction": "step_function",
    "TracedStep": "tracing.traced_step",
    "TrainStep": "train_step",
    "compile_ir": "trace",
    "trace_step": "trace",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)

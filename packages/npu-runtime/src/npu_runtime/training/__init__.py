"""Training steps: traced, checked, compiled, captured, replayed.

In: a model, an optimizer, a loss function, then a batch per step. Out: the loss; parameters and optimizer
state advance in place. Open `train_step.py` first, then `compiled_step.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from npu_ir.core.lazy_names import lazy_names

if TYPE_CHECKING:
    from npu_runtime.training.step_function import StepFunction
    from npu_runtime.training.trace import compile_ir, trace_step
    from npu_runtime.training.tracing.traced_step import TracedStep
    from npu_runtime.training.train_step import TrainStep

__all__ = ["StepFunction", "TracedStep", "TrainStep", "compile_ir", "trace_step"]

_MODULES = {
    "StepFunction": ".step_function",
    "TracedStep": ".tracing.traced_step",
    "TrainStep": ".train_step",
    "compile_ir": ".trace",
    "trace_step": ".trace",
}

__getattr__, __dir__ = lazy_names(__name__, _MODULES)

"""A graph of fixed sizes over fixed memory: planned once, bound to weights, run with nothing but calls of kernels."""

from npu_runtime.planned.plan import Buffer, Plan
from npu_runtime.planned.planner import plan
from npu_runtime.planned.program import PlannedProgram

__all__ = ["Buffer", "Plan", "PlannedProgram", "plan"]

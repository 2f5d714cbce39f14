"""Planned programs: graphs of fixed sizes over memory that is assigned before anything runs.

In: a graph without symbolic sizes. Out: a `Plan` (every buffer, one arena) and a `PlannedProgram` that only
calls kernels. Open `planner.py` first, then `assign_buffers.py`.
"""

from npu_runtime.planned.plan import Buffer, Plan
from npu_runtime.planned.plan_memo import PlanMemo
from npu_runtime.planned.planner import plan
from npu_runtime.planned.program import PlannedProgram

__all__ = ["Buffer", "Plan", "PlanMemo", "PlannedProgram", "plan"]

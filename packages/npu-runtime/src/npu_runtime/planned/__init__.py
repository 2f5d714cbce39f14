"""Static memory planning: from a graph of fixed sizes to a `Plan`, and to a `PlannedProgram`.

`planning.plan` is the entry point. It evaluates constants (`constants`), splits the instructions into two
phases (`phases`), assigns a buffer to each value (`placing`, `allocations`) and lays the buffers out in one arena
(`arena`).
"""

from npu_runtime.planned.plan import Buffer, Plan
from npu_runtime.planned.planner import plan
from npu_runtime.planned.program import PlannedProgram

__all__ = ["Buffer", "Plan", "PlannedProgram", "plan"]
